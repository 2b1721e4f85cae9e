"""Demonstrations of every preset: good answers that differ, since a duplicate would be learned for nothing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs_data.code_problems import load_problems
from vpo_envs import Status, TaskEnv
from vpo_envs.registration import env_type, text_env_ids
from vpo_envs.tasks.base import of_each_kind
from vpo_envs.tasks.code.task import CodeTask
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


RANDOM_ROUTES = {("vpo/Maze-v0", "conflict"), ("vpo/Maze-v0", "paper")}
"""Presets whose demonstrations go anywhere, so that hardly any is best on an objective."""
MANY_POINTS = {("vpo/GSM8K-v0", "paper")}
"""Presets whose fronts have more points than thirty demonstrations can show."""


@pytest.mark.parametrize(("env_id", "preset"), [case for case in PRESETS if case not in RANDOM_ROUTES | MANY_POINTS])
def test_thirty_demonstrations_hold_the_best_answer_for_each_objective(env_id: str, preset: str) -> None:
    env: Any = gym.make(env_id, preset=preset, split="validation").unwrapped
    for task in [env.task(index) for index in range(2 if env.runs_programs else 12)]:
        answers = env.demonstrations(task, np.random.default_rng(0), 30)
        [rewards] = env.score_batch([task], [format_answers(answers, 30)], 30).rewards
        front = np.array([point.vector for point in env.front(task)])
        active = env.active(task)
        np.testing.assert_allclose(rewards.max(axis=0)[active], front.max(axis=0)[active], atol=1e-6)


def tasks_with_readings() -> list[tuple[str, str, CodeTask]]:
    """Every problem of a registered preset whose statement has several readings, each with tests of its own."""
    found: dict[str, tuple[str, str, CodeTask]] = {}
    for env_id, preset in PRESETS:
        if issubclass(env_type(env_id).class_of(preset).task_type, CodeTask):
            for split in ("train", "validation", "test"):
                env: Any = gym.make(env_id, preset=preset, split=split).unwrapped
                tasks = [env.task(index) for index in range(60)]
                found |= {task.content_hash(): (env_id, preset, task) for task in tasks if task.readings}
    return [*found.values()]


WITH_READINGS = tasks_with_readings()


def test_all_problems_with_readings_are_tried() -> None:
    assert len(WITH_READINGS) == len(load_problems("conflict"))


@pytest.mark.parametrize(("env_id", "preset", "task"), WITH_READINGS, ids=[task.title for _, _, task in WITH_READINGS])
def test_the_program_of_each_reading_earns_the_tests_of_its_reading(env_id: str, preset: str, task: CodeTask) -> None:
    """If all tests of a reading expected one result, its program would count as constant and earn nothing."""
    env: Any = gym.make(env_id, preset=preset).unwrapped
    count = len(task.readings)
    for reading in range(count):
        assert len({test.output for test in task.tests[reading::count]}) > 1
    scored = env.score_batch([task] * count, [format_answers([source]) for source in task.readings], 1)
    expected = [[float(test % count == reading) for test in range(len(task.tests))] for reading in range(count)]
    assert scored.rewards[:, 0, env.active(task)].tolist() == expected
    front = [list(point.vector[: len(task.tests)]) for point in env.front(task)]
    assert all(vector in front for vector in expected)


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
