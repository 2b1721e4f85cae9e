"""Training and its evaluations with answers scored in threads."""

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


def test_threads_score_all_answers_and_change_nothing(
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
    for threads in (0, 3):
        scored_by.clear()
        trainer = Trainer(letters_config(model=str(broken_model), name=f"with-{threads}", scorer_threads=threads))
        trainer.train()
        found.append((trainer.folder.metrics.read_bytes(), trainer.evaluate("after").rewards))
        assert "left out because the scorer failed: broken\n" in capsys.readouterr().out
        assert (threading.main_thread() in scored_by) == (threads == 0)
        assert scored_by
    (metrics, rewards), (metrics_of_threads, rewards_of_threads) = found
    assert metrics == metrics_of_threads
    np.testing.assert_array_equal(rewards, rewards_of_threads)
    assert json.loads(metrics.splitlines()[0])["invalid_rollouts"] > 0
