"""Training and its evaluations with answers scored in a pool."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vpo_agent.config import Job, TrainConfig, make_config
from vpo_agent.job import train_and_report
from vpo_agent.trainer import Trainer

SIGNING_ID = "test/SigningMaze-v0"


@pytest.fixture
def signatures(tmp_path: Path) -> Iterator[Path]:
    """A folder in which each process that scores leaves a file with its number."""
    folder = tmp_path / "signatures"
    folder.mkdir()
    gym.register(SIGNING_ID, "toy_mazes:SigningMaze", kwargs={"folder": folder}, disable_env_checker=True)
    yield folder
    del gym.registry[SIGNING_ID]


def config_of(runs: Path, **changes: Any) -> TrainConfig:
    settings = {
        "env": SIGNING_ID,
        "env_kwargs": {"preset": "compact"},
        "model": "tiny-maze",
        "steps": 3,
        "prompts_per_step": 3,
        "rollouts_per_prompt": 4,
        "max_new_tokens": 60,
        "learning_rate": 3e-4,
        "eval_every": 1,
        "eval_every_prompts": 2,
        "eval_prompts": 2,
        "eval_answers": 6,
        "device": "cpu",
        "runs_dir": str(runs),
        "name": "run",
    }
    return make_config({**settings, **changes})


def pids(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.iterdir()}


def test_a_pool_of_processes_scores_all_and_changes_nothing(tmp_path: Path, signatures: Path) -> None:
    found = []
    for pool in ("none", "processes"):
        for path in signatures.iterdir():
            path.unlink()
        trainer = Trainer(config_of(tmp_path / pool, scorer_pool=pool, scorer_workers=1))
        trainer.train()
        found.append((trainer.folder.metrics.read_bytes(), trainer.evaluate("after").rewards, pids(signatures)))
    (metrics, rewards, here), (metrics_of_pool, rewards_of_pool, there) = found
    assert metrics == metrics_of_pool
    np.testing.assert_array_equal(rewards, rewards_of_pool)
    assert here == {os.getpid()}
    # One worker for the steps and the evaluations between them, another for the one after the training.
    assert len(there) == 2
    assert os.getpid() not in there
    assert not any(Path(f"/proc/{pid}").exists() for pid in there)


def test_the_same_workers_score_all_of_a_job(tmp_path: Path, signatures: Path) -> None:
    config = config_of(tmp_path, scorer_pool="processes", scorer_workers=1)
    train_and_report(Job(config, resume=False, overwrite=False))
    # The advice before training rests on good answers that are scored here.
    (worker,) = pids(signatures) - {os.getpid()}
    assert not Path(f"/proc/{worker}").exists()


def test_the_pool_is_closed_after_an_error(tmp_path: Path, signatures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(config_of(tmp_path, scorer_pool="processes", scorer_workers=1))

    def fail(*_: Any) -> None:
        raise RuntimeError("in the update")

    monkeypatch.setattr(trainer._update, "step", fail)
    with pytest.raises(RuntimeError, match="in the update"):
        trainer.train()
    (worker,) = pids(signatures)
    assert not Path(f"/proc/{worker}").exists()


def test_rollouts_whose_scorer_failed_are_left_out_whatever_the_pool(
    letters_config: Callable[..., TrainConfig], broken_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = []
    for pool in ("none", "threads"):
        trainer = Trainer(letters_config(model=str(broken_model), name=pool, scorer_pool=pool, scorer_workers=3))
        trainer.train()
        metrics.append(trainer.folder.metrics.read_bytes())
        assert "left out because the scorer failed: broken\n" in capsys.readouterr().out
    assert metrics[0] == metrics[1]
    assert json.loads(metrics[0].splitlines()[0])["invalid_rollouts"] > 0
