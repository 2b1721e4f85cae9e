"""Scoring in Ray, on a cluster of this host alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_mazes

from vpo_envs import MazeEnv, Status
from vpo_envs.scoring import ray_pool, scorers
from vpo_envs.scoring.scorers import Scorer
from vpo_envs.text import format_answers

TESTS = Path(__file__).parents[2]

ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install -c constraints.txt '.[ray]'")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # What is imported here must be importable there.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS.parent)]))
        # Ray's own 15 leaves workers nothing on a machine whose processors are all busy.
        patch.setenv("RAY_worker_niceness", "0")
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def test_actors_give_the_same_scores_and_only_what_one_dies_of_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty, deadly = (kind(num_answers=2, preset="paper") for kind in (toy_mazes.FaultyMaze, toy_mazes.DeadlyMaze))
    tasks = [faulty.task(index) for index in range(8)]
    texts = [format_answers([first, "RIGHT"]) for first in ("UP", "DOWN", "LEFT", "?")] * 2
    with Scorer(faulty, "ray", others=[deadly]) as scorer:
        found = scorer.score_batch(tasks, texts)
        expected = faulty.score_batch(tasks, texts)
        np.testing.assert_array_equal(found.rewards, expected.rewards)
        np.testing.assert_array_equal(found.status, expected.status)
        # All in one part, of which the actor dies.
        monkeypatch.setattr(scorers, "CHUNKS_PER_WORKER", 1)
        found = scorer.score_batch(tasks[:3], [texts[1], texts[0], texts[1]], deadly)
        assert found.status.tolist() == [[Status.OK] * 2, [Status.INVALID] * 2, [Status.OK] * 2]


def test_a_mistake_in_a_scorer_comes_through() -> None:
    class Broken(MazeEnv):
        """Defined where no other process can import it."""

        def evaluate(self, task: Any, answer: str) -> Any:
            raise ZeroDivisionError("a mistake")

    env = Broken(preset="paper")
    with Scorer(env, "ray", 1) as scorer, pytest.raises(ZeroDivisionError, match="a mistake"):
        scorer.score_batch([env.task(0)], ["<answer>UP</answer>"])


def test_what_the_cluster_has_no_room_for_is_named() -> None:
    env = MazeEnv(preset="paper")
    with pytest.raises(ValueError, match="scorer_workers is 2, but the Ray cluster has 1 processors"):
        Scorer(env, "ray", 2).score_batch([env.task(0)], [""])
    env.judge = (number for number in range(3))  # type: ignore[attr-defined]  # what cannot be pickled at all
    with pytest.raises(ValueError, match="MazeEnv cannot be copied to the workers of scorer_pool 'ray'"):
        Scorer(env, "ray")


@pytest.mark.parametrize("workers", [1, None])
def test_processors_that_others_hold_are_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, workers: int | None
) -> None:
    class Busy:
        def ready(self) -> bool:
            return True

    busy: Any = ray.remote(num_cpus=1)(Busy).remote()
    assert ray.get(busy.ready.remote())
    env = MazeEnv(preset="paper")
    task = env.task(0)
    with Scorer(env, "ray", workers) as scorer:
        with monkeypatch.context() as patch:
            patch.setattr(ray_pool, "START_SECONDS", 2.0)
            with pytest.raises(ValueError, match="the Ray cluster has 0 of its 1 processors free, and 1 worker"):
                scorer.score_batch([task], [""])
        ray.kill(busy)
        assert scorer.score_batch([task], [""]).status.shape == (1, env.num_answers)
