"""Weights of the objectives: those given are scaled or refused, those rounded are whole per cent that sum to 100."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vpo_envs import MazeEnv
from vpo_envs.preferences import in_whole_percent, read_weights


@given(arrays(np.float64, st.integers(1, 16), elements=st.floats(0.01, 1)))
def test_rounded_weights_are_whole_per_cents_that_sum_to_one(parts: np.ndarray) -> None:
    rounded = in_whole_percent(parts / parts.sum())
    np.testing.assert_allclose(100 * rounded, np.round(100 * rounded), atol=1e-9)
    assert rounded.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(rounded, parts / parts.sum(), atol=0.01)


def test_given_weights_are_scaled_over_the_active_objectives() -> None:
    active = np.array([False, True, True, False])
    assert read_weights([1, 3, 1, 0], active, MazeEnv().objective_names).tolist() == [0.0, 0.75, 0.25, 0.0]


def test_a_prompt_states_the_weights_of_the_active_objectives() -> None:
    env = gym.make("vpo/Maze-v0").unwrapped
    text = env.condition("Go.", np.array([0.5, 0.25, 0.125, 0.125]), np.array([True, False, False, True]))
    lines = [line.partition(" (")[0] for line in text.splitlines()]
    assert lines[1:] == ["- completion: 50 %", "- avoid_lava: 12.5 %", "", "Go."]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, 3], r"weights need 4 values, one per objective \(completion, gold, diamond, avoid_lava\); got 3"),
        ([[1, 2, 3, 4]], "weights need 4 values"),
        ([1, -1, 1, 1], "not negative"),
        ([1, float("nan"), 1, 1], "finite"),
        ([0, 0, 0, 0], "at least one active objective needs a weight above 0"),
        ("gold", "weights must be numbers, one per objective"),
    ],
)
def test_bad_weights_are_named(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_weights(weights, np.ones(4, dtype=bool), MazeEnv().objective_names)
