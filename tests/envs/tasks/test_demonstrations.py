"""Demonstrations of every preset: answers that differ, since a duplicate would be learned for nothing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vpo_envs import Status, TaskEnv
from vpo_envs.registration import env_type, text_env_ids
from vpo_envs.tasks.base import of_each_kind
from vpo_envs.text import format_answers

PRESETS = [
    (env_id, preset)
    for env_id in text_env_ids()
    if env_id != "vpo/RewardModels-v0"  # which has none
    for preset in env_type(env_id).presets
]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 30])
@pytest.mark.parametrize(("env_id", "preset"), PRESETS)
def test_demonstrations_are_readable_and_differ_whatever_their_number(env_id: str, preset: str, count: int) -> None:
    env: Any = gym.make(env_id, preset=preset, split="validation").unwrapped
    tasks = [env.task(index) for index in range(1 if env.runs_programs else 12)]
    answers = [env.demonstrations(task, np.random.default_rng(0), count) for task in tasks]
    assert [*map(len, answers)] == [count] * len(tasks)
    batch = env.score_batch(tasks, [format_answers(texts, count) for texts in answers], count)
    assert (batch.status == Status.OK).all()
    assert batch.rewards.any()


@pytest.mark.parametrize(("env_id", "preset"), PRESETS)
def test_a_single_demonstration_is_mostly_a_good_one(env_id: str, preset: str) -> None:
    env: Any = gym.make(env_id, preset=preset).unwrapped
    tasks = [env.task(index) for index in range(2 if env.runs_programs else 12)]
    texts = [format_answers(env.demonstrations(task, np.random.default_rng(0), 1)) for task in tasks]
    assert env.score_batch(tasks, texts).rewards.any(axis=(1, 2)).mean() >= 0.7


def test_more_demonstrations_than_differ_are_refused() -> None:
    env: TaskEnv[Any, Any, Any] = gym.make("vpo/Maze-v0", preset="compact").unwrapped  # type: ignore[assignment]
    task = env.task(0)
    with pytest.raises(NotImplementedError, match="MazeCompactEnv has 2 different demonstrations, not 3"):
        env.different(task, ["R", "R ", "D"] * 10, 3)


def test_the_best_of_each_kind_come_first() -> None:
    vectors = np.array([[1.0, 0, 0], [0.2, 0.2, 0.2], [0, 1.0, 0], [0, 0, 1.0], [0.6, 0.6, 0.6]])
    order = of_each_kind(np.random.default_rng(0), vectors)
    assert sorted(order[:4]) == [0, 2, 3, 4]
    assert order[4:] == [1]
