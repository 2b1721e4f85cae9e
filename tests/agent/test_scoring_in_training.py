"""Training and its evaluations with answers scored in a pool."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import LettersEnv

from vpo_agent.config import TrainConfig
from vpo_agent.trainer import Trainer


def test_a_pool_scores_all_answers_and_changes_nothing(
    letters_config: Callable[..., TrainConfig],
    broken_model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scored_by: set[threading.Thread] = set()

    class SigningEnv(LettersEnv):
        namespace = LettersEnv.namespace

        def evaluate(self, task: Any, answer: str) -> tuple[float, float]:
            scored_by.add(threading.current_thread())
            return super().evaluate(task, answer)

    monkeypatch.setattr("toys.LettersEnv", SigningEnv)
    found = []
    for pool in ("none", "threads"):
        scored_by.clear()
        trainer = Trainer(letters_config(model=str(broken_model), name=pool, scorer_pool=pool, scorer_workers=3))
        trainer.train()
        found.append((trainer.folder.metrics.read_bytes(), trainer.evaluate("after").rewards))
        assert "left out because the scorer failed: broken\n" in capsys.readouterr().out
        assert (threading.main_thread() in scored_by) == (pool == "none")
        assert scored_by
    (metrics, rewards), (metrics_of_pool, rewards_of_pool) = found
    assert metrics == metrics_of_pool
    np.testing.assert_array_equal(rewards, rewards_of_pool)
    assert json.loads(metrics.splitlines()[0])["invalid_rollouts"] > 0
