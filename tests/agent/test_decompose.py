"""``vpo decompose``, and training on what it found: evaluated on the criteria, and frozen with the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys
from paths import ROOT
from pools import maze_pool

from vpo_agent.command import main
from vpo_agent.config import TrainConfig, make_config
from vpo_agent.measure.pool import Pool
from vpo_agent.runs.study import read_study, runs_of
from vpo_agent.trainer import Trainer
from vpo_envs.decomposition.linear import read_decomposition
from vpo_envs.registration import make_text_env

MEAN = {"name": "mean", "weights": {"left": 0.5, "right": 0.5}}
RIGHT = {"name": "right only", "weights": {"right": 1.0}}


@pytest.fixture
def letters_file(tmp_path: Path) -> Path:
    """A decomposition of the environment of letters, written by hand."""
    path = tmp_path / "letters.json"
    path.write_text(json.dumps({"criteria": ["left", "right"], "objectives": [MEAN, RIGHT]}))
    return path


@pytest.fixture
def on_letters(letters_config: Callable[..., TrainConfig], letters_file: Path) -> Callable[..., TrainConfig]:
    """Settings of a short run on letters under that decomposition."""
    kwargs = {"env": toys.LETTERS_ID, "decomposition": str(letters_file)}
    return lambda **changes: letters_config(env="vpo/Decomposed-v0", env_kwargs=kwargs, **changes)


def test_the_command_writes_a_decomposition_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maze_pool(prompts=8, rollouts=6).save(tmp_path / "pool.npz")
    assert main(["decompose", str(tmp_path / "pool.npz"), "--objectives", "2", "--by", "cluster"]) == 0
    found = read_decomposition(tmp_path / "pool_cluster_2.json")
    assert found.env == "vpo/Maze-v0"
    assert len(found.objectives) == 2
    report = (tmp_path / "pool_cluster_2.md").read_text()
    assert report in capsys.readouterr().out
    assert "2 objectives by cluster from 4 criteria of vpo/Maze-v0" in report
    assert "worth of the vector on the exact fronts" in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{pool}", "--objectives", "5"], "4 criteria can be decomposed into 1 to 4 objectives, got 5"),
        (["{pool}", "--by", "guess"], "--by: invalid choice: 'guess'"),
        (["none.npz"], "cannot read the pool of answers 'none.npz': No such file"),
        (["{pool}", "--objectives", "2", "--out", "no/folder/x.json"], "cannot write 'no/folder/x.json': No such file"),
    ],
)
def test_a_bad_request_is_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maze_pool().save(tmp_path / "pool.npz")
    assert main(["decompose", *(one.format(pool=tmp_path / "pool.npz") for one in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_training_sees_the_objectives_and_evaluation_the_criteria(on_letters: Callable[..., TrainConfig]) -> None:
    trainer = Trainer(on_letters(eval_every=3))
    trainer.train()
    pool = trainer.evaluate("after")
    assert trainer.env.objective_names == ("mean", "right only")
    assert pool.objectives == ("left", "right")
    assert pool.source["env"] == toys.LETTERS_ID
    assert pool.fronts is not None
    first, *_, last = (json.loads(line) for line in trainer.folder.metrics.read_text().splitlines())
    assert first["kind"] == last["kind"] == "eval"
    assert {"left", "right"} <= first.keys()
    assert main(["eval", str(trainer.folder.path), "--prompts", "4", "--k", "6", "--examples", "0"]) == 0
    again = Pool.load(trainer.folder.path / "eval_test_step_000003" / "pool.npz")
    np.testing.assert_array_equal(again.rewards, pool.rewards)


def test_a_policy_that_reads_weights_is_evaluated_on_those_it_knows(on_letters: Callable[..., TrainConfig]) -> None:
    trainer = Trainer(on_letters(method="goal_conditioned", steps=1))
    assert trainer._eval_env.objective_names == ("mean", "right only")


def test_the_run_keeps_the_decomposition_that_it_began_with(
    on_letters: Callable[..., TrainConfig], letters_file: Path
) -> None:
    config = on_letters(steps=2, checkpoint_every=1)
    Trainer(config).train()
    saved = json.loads((config.runs_dir / "run" / "config.json").read_text())
    held: dict[str, Any] = saved["run"]["env_kwargs"]["decomposition"]
    assert [one["name"] for one in held["objectives"]] == ["mean", "right only"]
    letters_file.unlink()
    again = Trainer(make_config({**saved, "optimisation": saved["optimisation"]}), resume=True)
    assert again.step == 2
    assert again.env.objective_names == ("mean", "right only")


def test_scalar_weights_of_a_run_are_those_of_its_objectives(on_letters: Callable[..., TrainConfig]) -> None:
    trainer = Trainer(on_letters(method="grpo", steps=1, scalar_weights=[0.0, 1.0]))
    trainer.train()
    assert trainer.evaluate("after").scalar_weights.tolist() == [[0.5, 0.5]] * 4
    with pytest.raises(ValueError, match="need 2 values, one per objective \\(mean, right only\\); got 3"):
        Trainer(on_letters(method="grpo", steps=1, scalar_weights=[0.0, 1.0, 0.0], name="other"))


def test_a_missing_file_is_named_before_anything_is_made(
    on_letters: Callable[..., TrainConfig], letters_file: Path
) -> None:
    letters_file.unlink()
    with pytest.raises(ValueError, match=r"cannot read the decomposition '.*letters.json'"):
        on_letters()


def test_the_study_judges_every_arm_on_the_tests_of_compact_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    runs = runs_of(read_study(ROOT / "studies" / "decompose.toml"), tmp_path, seeds=[0])
    sizes = {}
    for run in runs:
        env = make_text_env(run.config.env, **run.config.env_kwargs)
        assert env.criteria_env.objective_names == tuple(f"{name}_{i}" for name in "abc" for i in range(1, 6))
        sizes[run.label] = env.reward_dim
    assert {label: sizes[label] for label in ("all-tests", "grpo-mean", "hand")} == {
        "all-tests": 15,
        "grpo-mean": 15,
        "hand": 3,
    }
    assert [sizes[label] for label in ("select", "cluster", "nmf", "pca")] == [4] * 4
