"""``vpo export verl``: the files and the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from vpo_agent.adapters.verl import compute_score
from vpo_agent.command import main
from vpo_agent.rollouts.collect import make_text_env
from vpo_envs.text import format_answers

pytest.importorskip("pyarrow", reason="parquet needs the data extra, which the dev extra installs")

from pyarrow import parquet

SMALL = ["--train", "3", "--validation", "2"]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return parquet.read_table(path).to_pylist()


def test_the_files_hold_what_a_score_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kwargs = json.dumps({"preset": "compact"})
    assert main(["export", "verl", "vpo/Maze-v0", "--env-kwargs", kwargs, "--out", str(tmp_path), *SMALL]) == 0
    train, validation = rows_of(tmp_path / "train.parquet"), rows_of(tmp_path / "validation.parquet")
    assert (len(train), len(validation)) == (3, 2)
    env = make_text_env("vpo/Maze-v0", preset="compact", num_answers=3, split="validation")
    for index, row in enumerate(validation):
        assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
        task = env.task(index)
        assert row["prompt"] == [{"role": "user", "content": env.prompt(task, 3)}]
        assert row["extra_info"]["index"] == index
        front = format_answers([point.answer for point in env.front(task)][:3], 3)
        found = compute_score(
            row["data_source"], front, row["reward_model"]["ground_truth"], extra_info=row["extra_info"]
        )
        nothing = compute_score(
            row["data_source"], "", row["reward_model"]["ground_truth"], extra_info=row["extra_info"]
        )
        assert found["score"] > 0.3 > nothing["score"] == 0.0
    tasks = {row["reward_model"]["ground_truth"] for row in train + validation}
    assert len(tasks) == 5


def test_the_printed_command_trains_on_these_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--method", "grpo", "--rollouts", "6", "--model", "some/model"]
    assert main(["export", "verl", "vpo/Maze-v0", "--out", str(tmp_path / "a b"), *SMALL, *options]) == 0
    printed = capsys.readouterr().out.split("\n\n", 1)[1]
    words = shlex.split(printed.replace("\\\n", " "))
    assert words[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    settings = dict(word.split("=", 1) for word in words[3:])
    assert Path(settings["data.train_files"]).is_file()
    assert Path(settings["data.val_files"]).is_file()
    assert settings["algorithm.adv_estimator"] == "grpo"
    assert settings["algorithm.norm_adv_by_std_in_grpo"] == "True"
    assert settings["actor_rollout_ref.rollout.n"] == "6"
    assert settings["actor_rollout_ref.model.path"] == "some/model"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["vpo/Maze-v0", "--method", "max_at_k"], "max_at_k compares the rollouts of a group"),
        (["vpo/Maze-v0", "--train", "0"], "--train must be at least 1, got 0"),
        (["vpo/Maze-v0", "--model", "tiny.gguf"], "verl takes no GGUF file such as 'tiny.gguf'"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    options: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "verl", *options, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["export", "verl", "vpo/Maze-v0", "--out", str(tmp_path / "file"), *SMALL]) == 2
    assert "cannot write" in capsys.readouterr().err
