"""The report on conflicting objectives, against fronts whose shape is known by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from vpo_envs import MazeEnv, ToolsEnv, UnknownFront, objective_conflict
from vpo_envs.core import VectorTextEnv

from test_checker import WordEnv, WordTask  # isort: skip  (a module of these tests)


class Corners(WordEnv):
    """Two points only: one objective each."""

    def reward_vector(self, outcome: str) -> tuple[float, ...]:
        return (1.0, 0.0) if len(outcome) % 2 else (0.0, 1.0)


def test_two_corners_have_a_known_utility() -> None:
    report = objective_conflict(Corners(), 4)
    assert (report.points, report.all_ones, report.exact) == (2.0, 0.0, True)
    # One corner is worth E[w] = 1/2, both E[max(w, 1 − w)] = 3/4.
    assert report.best_single == pytest.approx(0.5, abs=0.01)
    assert report.best_set == report.whole_front == pytest.approx(0.75, abs=0.01)
    assert report.difference == report.best_set - report.best_single
    # Both corners have the scalar reward 1/2, so a scalar keeps them both.
    assert (report.set_gain, report.vector_gain) == pytest.approx((1.5, 1.0), abs=0.01)
    assert report.needs_a_set == 0.0
    np.testing.assert_allclose(report.correlation, [[1, -1], [-1, 1]])


def test_one_answer_for_all_is_no_conflict() -> None:
    report = objective_conflict(ToolsEnv(preset="paper"), 8)
    assert (report.points, report.all_ones, report.difference, report.needs_a_set) == (1.0, 1.0, 0.0, 0.0)
    assert np.isnan(report.correlation).all()


@pytest.mark.parametrize(
    ("env_id", "options", "set_gain", "vector_gain"),
    [
        ("vpo/Maze-v0", {"preset": "paper"}, 1.154, 1.017),
        ("vpo/Maze-v0", {"preset": "conflict"}, 1.147, 1.03),
        ("vpo/Tools-v0", {"preset": "conflict"}, 1.21, 1.134),
        ("vpo/Code-v0", {"preset": "conflict"}, 1.442, 1.0),
    ],
)
def test_the_gains_are_ratios_of_mean_utilities(
    env_id: str, options: dict[str, str], set_gain: float, vector_gain: float
) -> None:
    report = objective_conflict(gym.make(env_id, **options), 16)
    assert (report.set_gain, report.vector_gain) == pytest.approx((set_gain, vector_gain), abs=0.005)
    assert report.set_gain == report.best_set / report.best_single
    assert report.vector_gain == report.best_set / report.best_by_scalar
    assert f"gain from a set {set_gain:.2f}" in str(report)
    assert f"gain from the vector {vector_gain:.2f}" in str(report)


def test_the_correlation_is_that_of_centred_columns() -> None:
    env = ToolsEnv(preset="conflict")
    points = [np.array([point.vector for point in env.front(env.task(i))]) for i in range(6)]
    centred = np.concatenate([front - front.mean(axis=0) for front in points])
    np.testing.assert_allclose(objective_conflict(env, 6).correlation, np.corrcoef(centred.T), atol=1e-9)


def test_inactive_objectives_carry_no_weight() -> None:
    class HalfActive(Corners):
        def active(self, task: WordTask) -> np.ndarray:
            return np.array([True, False])

    report = objective_conflict(HalfActive(), 3)
    assert (report.all_ones, report.best_single) == (1.0, 1.0)
    assert np.isnan(report.correlation[1]).all()


def test_demonstrations_stand_in_for_an_unknown_front() -> None:
    class Humble(WordEnv):
        def outcome_front(self, task: WordTask) -> list[tuple[str, str]]:
            raise UnknownFront("too hard")

    report = objective_conflict(Humble(), 2)
    assert not report.exact
    assert report.points == 8.0
    assert "fronts of demonstrations, since exact ones are unknown" in str(report)

    class Silent(Humble):
        demonstrations = VectorTextEnv.demonstrations  # type: ignore[assignment]  # as if there were none

    with pytest.raises(UnknownFront, match="too hard; and there are no demonstrations"):
        objective_conflict(Silent(), 2)


def test_bad_calls_are_named() -> None:
    with pytest.raises(TypeError, match="got MazeStepsEnv"):
        objective_conflict(gym.make("vpo/MazeSteps-v0"))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        objective_conflict(MazeEnv(), 0)
