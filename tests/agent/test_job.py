"""A whole job: what it prints and leaves, also when it is stopped or resumed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys
from matplotlib.figure import Figure
from transformers import MistralConfig, MistralForCausalLM

from vpo_agent.command import main
from vpo_agent.config import Job, TrainConfig
from vpo_agent.job import train_and_report
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.report.tables import change_rows
from vpo_agent.runs.run_lock import LOCK_FILE
from vpo_agent.trainer import Trainer

MakeConfig = Callable[..., TrainConfig]
Finished = Callable[..., tuple[TrainConfig, str]]

pytestmark = pytest.mark.usefixtures("no_figures")


def test_objectives_may_have_the_names_of_columns_and_measures(
    letters_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = toys.LettersEnv.objectives
    metrics, tables = [], []
    for names in ("abcdef", ("kind", "step", "loss", "diversity", "best@1", "expected_utility")):
        named = tuple(one._replace(name=name) for one, name in zip([left, right] * 3, names, strict=True))
        monkeypatch.setattr(toys.LettersEnv, "objectives", named)
        config = letters_config(steps=1, eval_every=1, name=names[0])
        train_and_report(config)
        folder = config.runs_dir / names[0]
        metrics.append([json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()])
        tables.append({row["measure"]: row for row in json.loads((folder / "results.json").read_text())["measures"]})
    of_rows = {
        "train": ("reward/kind", "reward/step", "reward/loss", "reward/diversity", "best@1", "expected_utility"),
        "eval": ("reward/kind", "reward/step", "loss", "reward/diversity", "reward/best@1", "reward/expected_utility"),
    }
    of_tables = ("kind", "step", "loss", "reward/diversity", "reward/best@1", "expected_utility")

    def renamed(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        return {dict(zip("abcdef", names, strict=True)).get(name, name): value for name, value in row.items()}

    assert metrics[1] == [renamed(row, of_rows[row["kind"]]) for row in metrics[0]]
    assert list(tables[1]) == list(renamed(tables[0], of_tables))


def test_a_job_says_once_that_its_model_takes_a_slower_path(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str], drawn: list[Figure], tmp_path: Path
) -> None:
    tokenizer = toys.letters_tokenizer()
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "head_dim": 8,
    }
    tokens = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    MistralForCausalLM(MistralConfig(sliding_window=6, num_key_value_heads=2, **sizes, **tokens)).save_pretrained(
        tmp_path
    )
    tokenizer.save_pretrained(tmp_path)
    train_and_report(letters_config(model=str(tmp_path), steps=1))
    out, _ = capsys.readouterr()
    assert out.count("slower than with other models, since some of its layers attend to a sliding window") == 1


def test_a_job_leaves_a_run_folder_and_prints_its_table(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str], drawn: list[Figure]
) -> None:
    config = letters_config(eval_every=2)
    text = train_and_report(config)
    out, err = capsys.readouterr()
    folder = config.runs_dir / "run"
    assert text in out
    assert str(folder) in out
    assert "Best on the exact fronts, on average: scalar reward 0.500, utility " in out
    assert "the model has no chat template: prompts reach it as plain text" in out
    assert "\nsampled by the backend native\n" in out
    assert "are unknown to the model" not in out
    assert "slower than with other models" not in out
    assert "Writing model shards" not in err
    assert "TensorFlow" not in err
    files = {path.name for path in folder.iterdir() if path.name != LOCK_FILE}
    assert files == {
        "best_at_k.png",
        "checkpoints",
        "config.json",
        "inputs.json",
        "learning_curves.png",
        "metrics.jsonl",
        "pool_after.npz",
        "pool_before.npz",
        "results.json",
        "results.md",
        "tensorboard",
        "timings.jsonl",
        "transcripts.jsonl",
    }
    (labels,) = [
        [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        for figure in drawn
        if any("best@k" in axes.get_ylabel() for axes in figure.axes)
    ]
    assert labels[:2] == ["base", f"after {config.steps} steps"]
    assert text in (folder / "results.md").read_text()
    results = json.loads((folder / "results.json").read_text())
    assert results["optimum"] == pytest.approx(0.5)
    before, after = (summarise(Pool.load(folder / f"pool_{label}.npz")) for label in ("before", "after"))
    assert results["measures"] == change_rows(before, after)
    for name in ("best@1", "utility@1", "expected utility", "hypervolume", "coverage", "diversity", "left", "right"):
        assert f"| {name} ↑ |" in text or f"| {name} ↓ |" in text
    rows = [line.split(" ↑ |")[0] for line in text.splitlines() if line.startswith("| ")][2:]
    assert rows[:4] == ["| expected utility", f"| best@{config.eval_answers} drawn singly", "| diversity", "| best@1"]
    assert len(rows) == len(set(rows)) == sum(row["headline"] for row in results["measures"])
    assert f"Best@{config.eval_answers} drawn singly: the best scalar reward" in text


def test_prompts_that_the_model_cannot_read_are_said_with_the_way_out(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"steps": 1, "prompts_per_step": 1, "rollouts_per_prompt": 2, "max_new_tokens": 4, "eval_prompts": 2}
    settings = {**few, "env": "vpo/Maze-v0", "model": "tiny-maze", "eval_answers": 3}
    train_and_report(letters_config(**settings, name="unread"))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "are unknown to the model" in line]
    assert re.match(r"9\d% of the first prompt.s tokens are unknown to the model: choose one", line)
    way_out = json.loads(line.split("--env-kwargs ")[1].strip("'"))
    train_and_report(letters_config(**settings, env_kwargs=way_out))
    assert "are unknown to the model" not in capsys.readouterr().out


def test_a_budget_that_the_rollouts_cannot_train_for_is_said(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"steps": 1, "prompts_per_step": 1, "eval_prompts": 2, "eval_answers": 3, "search_budget": 18}
    train_and_report(letters_config(**few, rollouts_per_prompt=4, name="few"))
    said = "--search-budget 18 trains for 6 answers only, since a pool takes at most half of the 4 rollouts: give"
    assert f"{said} --rollouts-per-prompt 12\n" in capsys.readouterr().out
    train_and_report(letters_config(**few, rollouts_per_prompt=12))
    assert "--search-budget" not in capsys.readouterr().out


def test_responses_too_short_for_the_tags_are_said(
    letters_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {"steps": 1, "prompts_per_step": 1, "rollouts_per_prompt": 2, "eval_prompts": 2, "eval_answers": 3}
    train_and_report(letters_config(**few, max_new_tokens=3, backend="native"))
    out = capsys.readouterr().out
    assert "\nsampled by the backend native\n" in out
    assert re.search(
        r"^no response can hold 3 answers: the tags alone take (\d+) tokens, and --max-new-tokens is 3; raise it well "
        r"above \1$",
        out,
        re.M,
    )
    nothing = (
        r"none of the 6 answers earns anything \(\d+% cannot be read\), so no group has a signal to learn from: start"
    )
    for when in ("before training, ", "After training, "):
        assert re.search(rf"^{when}{nothing} .*\. The first response: '", out, re.M), out


def test_a_finished_job_is_evaluated_and_reported_again(letters_config: MakeConfig, finished: Finished) -> None:
    config, first = finished(lora_rank=0)
    folder = config.runs_dir / "run"
    metrics = (folder / "metrics.jsonl").read_text()
    (folder / "results.md").unlink()
    assert train_and_report(Job(config, resume=True)) == first
    assert (folder / "metrics.jsonl").read_text() == metrics
    assert (folder / "results.md").exists()


def test_a_stopped_job_says_how_to_go_on_and_does(
    letters_config: MakeConfig, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finished(lora_rank=0)[1]
    config = letters_config(name="stopped")
    prepare = Trainer.prepare

    def interrupted(self: Trainer) -> Any:
        if self.step == 2:
            raise KeyboardInterrupt
        return prepare(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "prepare", interrupted)
        with pytest.raises(KeyboardInterrupt) as stop:
            train_and_report(config)
    assert str(stop.value).startswith("continue with: ")
    command = f" train --resume --name stopped --runs-dir {config.runs_dir} --import {toys.__file__}"
    assert str(stop.value).endswith(command)
    assert train_and_report(Job(config, resume=True)) == expected


@pytest.mark.parametrize(("damaged", "lora_rank"), [(True, 0), (False, 2)])
def test_a_pool_from_before_that_is_missing_or_damaged_is_sampled_again(
    letters_config: MakeConfig, finished: Finished, capsys: pytest.CaptureFixture[str], damaged: bool, lora_rank: int
) -> None:
    config, expected = finished(lora_rank=lora_rank)
    path = config.runs_dir / "run" / "pool_before.npz"
    lost = Pool.load(path)
    if damaged:
        data = bytearray(path.read_bytes())
        data[50:150] = bytes(100)
        path.write_bytes(data)
    else:
        path.unlink()
    capsys.readouterr()
    assert train_and_report(Job(config, resume=True)) == expected
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "pool_before" in line]
    assert line.startswith(f"cannot read the sample file {str(path)!r}: ")
    assert line.endswith(": sampling it again from the base")
    again = Pool.load(path)
    np.testing.assert_array_equal(again.rewards, lost.rewards)
    assert again.responses == lost.responses
    assert again.source == lost.source


def test_a_run_of_the_trainer_alone_is_reported_on_as_that_of_a_job(
    letters_config: MakeConfig, finished: Finished
) -> None:
    expected = finished(lora_rank=0)[1]
    config = letters_config(name="alone")
    Trainer(config).train()
    assert train_and_report(Job(config, resume=True)) == expected


def test_a_run_for_one_answer_and_three_is_measured_and_searched_with_both(finished: Finished, tmp_path: Path) -> None:
    run = finished(num_answers=[1, 3])[0].runs_dir / "run"
    results = json.loads((run / "results.json").read_text())
    assert results["measures"] != results["measures_of_1"]
    tables = (run / "results.md").read_text()
    assert [int(m) for m in re.findall(r"rollouts? x (\d) answers? each", tables)] == [3, 1]
    for m, file in ((3, "pool_after.npz"), (1, "pool_after_of_1.npz")):
        assert Pool.load(run / file).rewards.shape[2] == m
    for options, m in (([], 3), (["--num-answers", "1"], 1)):
        out = tmp_path / f"asked-{m}"
        assert main(["eval", str(run), *options, "--eval-prompts", "2", "--k", "3", "--out", str(out)]) == 0
        assert Pool.load(out / "pool.npz").source["num_answers"] == m
        words = ["search", str(run), *options, "--method", "best-of-n", "--iterations", "3", "--eval-prompts", "1"]
        assert main([*words, "--out", str(tmp_path / f"searched-{m}")]) == 0
        assert f'"num_answers": {m}' in (tmp_path / f"searched-{m}" / "search.json").read_text()
