"""Threads that score: the same scores wherever, and what a mistake costs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import toy_mazes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vpo_envs import CodeEnv, MazeEnv, RewardBatch, Status
from vpo_envs.core import score_batch
from vpo_envs.text import format_answers

ANSWERS = st.sampled_from(["DOWN", "DOWN DOWN RIGHT", "RIGHT", "RIGHT RIGHT", "UP", "LEFT", "?", "\ud800", ""])
RESPONSES = st.lists(ANSWERS, max_size=3).map(format_answers)


def assert_equal(found: RewardBatch, expected: RewardBatch) -> None:
    assert found.rewards.dtype == expected.rewards.dtype
    assert found.status.dtype == expected.status.dtype
    np.testing.assert_array_equal(found.rewards, expected.rewards)
    np.testing.assert_array_equal(found.status, expected.status)
    assert found.failure == expected.failure


@pytest.fixture(params=[0, 2])
def threads(request: pytest.FixtureRequest) -> int:
    return request.param  # type: ignore[no-any-return]  # of pytest


# --- the same scores ---


@given(st.lists(st.tuples(st.integers(0, 5), RESPONSES), max_size=40))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_threads_change_no_score(threads: int, asked: list[tuple[int, str]]) -> None:
    env = toy_mazes.FaultyMaze(num_answers=2, preset="paper")
    tasks, responses = [env.task(index) for index, _ in asked], [text for _, text in asked]
    assert_equal(score_batch(env, tasks, responses, threads=threads), env.score_batch(tasks, responses))


def test_a_scorer_that_failed_or_timed_out_says_so_through_threads(threads: int) -> None:
    env = toy_mazes.FaultyMaze(num_answers=2, preset="paper")
    batch = score_batch(
        env, [env.task(0)] * 2, [format_answers(["UP", "DOWN"]), format_answers(["LEFT", "?"])], threads=threads
    )
    assert batch.status.tolist() == [[Status.INVALID, Status.OK], [Status.TIMED_OUT, Status.UNPARSABLE]]
    assert batch.failure == "a judge that does not answer"


def test_a_scorer_needs_a_task_for_every_response(threads: int) -> None:
    with pytest.raises(ValueError, match="one task per response, got 0 and 1"):
        score_batch(MazeEnv(preset="paper"), [], [""], threads=threads)


def test_programs_are_scored_the_same_everywhere(threads: int) -> None:
    env = CodeEnv(num_answers=2, difficulty="easy", workers=1, time_limit=1.0)
    task, other = env.task(0), env.task(1)
    responses = [
        format_answers([task.solution, "def f(:"]),
        format_answers(["raise SystemExit(0)", "print(1)"]),
        "<answer_2>nothing",
        format_answers([task.solution, task.solution]),
        format_answers([other.solution]),
    ]
    tasks = [task] * 4 + [other]
    found = score_batch(env, tasks, responses, threads=threads)
    assert_equal(found, env.score_batch(tasks, responses))
    assert found.rewards[0, 0].sum() == len(task.tests)
    assert found.status[3].tolist() == [Status.OK, Status.DUPLICATE]


# --- what goes wrong ---


def test_a_mistake_in_a_scorer_comes_through_a_batch_and_the_next_is_scored(threads: int) -> None:
    env = toy_mazes.BrokenMaze(preset="paper")
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        score_batch(env, [env.task(0)] * 3, ["", "<answer>UP</answer>", ""], threads=threads)
    assert score_batch(env, [env.task(0)], [""], threads=threads).status.tolist() == [[Status.MISSING]]


def test_threads_score_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=60)

    class Meeting(MazeEnv):
        def evaluate(self, task: Any, answer: str) -> Any:
            meeting.wait()
            return super().evaluate(task, answer)

    env = Meeting(preset="paper")
    found = score_batch(env, [env.task(0)] * 3, ["<answer>DOWN</answer>"] * 3, threads=3)
    assert found.status.tolist() == [[Status.OK]] * 3
