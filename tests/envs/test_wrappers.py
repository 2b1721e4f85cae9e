"""PreferenceConditioned: weights in the prompt, drawn or given, and a reward that stays a vector."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st

from vpo_envs import MazeEnv, PreferenceConditioned
from vpo_envs.preferences import draw_weights, read_weights
from vpo_envs.text import format_answers


def maze(**kwargs: Any) -> PreferenceConditioned:
    return PreferenceConditioned(gym.make("vpo/Maze-v0", preset="paper", **kwargs))


class HalfMaze(MazeEnv):
    """A maze in which only gold and diamonds count."""

    def active(self, task: Any) -> Any:
        return np.array([False, True, True, False])


def test_the_prompt_says_the_weights_exactly() -> None:
    env = maze()
    for seed in range(20):
        prompt, info = env.reset(seed=seed)
        said = [float(text) for text in re.findall(r": ([\d.]+) %", prompt)]
        np.testing.assert_allclose(np.array(said) / 100, info["weights"])
        assert info["weights"].sum() == pytest.approx(1.0)
        assert prompt.endswith(gym.make("vpo/Maze-v0", preset="paper").reset(seed=seed)[0])
        assert prompt in env.observation_space


def test_given_weights_are_scaled_and_written() -> None:
    env = maze()
    prompt, info = env.reset(options={"weights": [0, 3, 1, 0], "index": 4})
    assert info["weights"].tolist() == [0.0, 0.75, 0.25, 0.0]
    assert info["index"] == 4
    assert "- gold: 75 % (" in prompt
    assert "- completion: 0 % (" in prompt


def test_a_step_gives_the_vector_and_the_utility_of_each_answer() -> None:
    env = maze(num_answers=2)
    env.reset(seed=1, options={"weights": [1, 1, 1, 1]})
    text_env = env.text_env
    answers = [point.answer for point in text_env.front(text_env.current_task)][:2]
    observation, reward, terminated, _, info = env.step(format_answers(answers))
    matrix = info["reward_matrix"]
    assert terminated
    assert observation.startswith("Your response is judged")
    np.testing.assert_array_equal(reward, matrix.sum(axis=0))
    np.testing.assert_allclose(info["utility"], matrix.mean(axis=1))


def test_seeds_give_the_same_weights_and_the_instances_of_the_bare_environment() -> None:
    first, second, bare = maze(), maze(), gym.make("vpo/Maze-v0", preset="paper")
    assert data_equivalence(first.reset(seed=3), second.reset(seed=3), exact=True)
    assert bare.reset(seed=3)[1]["index"] == first.reset(seed=3)[1]["index"]
    second.reset(seed=3)
    episodes = [(first.reset()[1], second.reset()[1], bare.reset()[1]["index"]) for _ in range(5)]
    assert all(a["index"] == b["index"] == index for a, b, index in episodes)
    assert all((a["weights"] == b["weights"]).all() for a, b, _ in episodes)
    assert len({tuple(a["weights"]) for a, _, _ in episodes}) > 1


def test_inactive_objectives_are_neither_weighed_nor_named() -> None:
    env = PreferenceConditioned(HalfMaze(preset="paper"))
    for options in ({}, {"weights": [1, 1, 1, 1]}):
        prompt, info = env.reset(seed=0, options=options)
        assert info["weights"][[0, 3]].tolist() == [0.0, 0.0]
        assert info["weights"].sum() == pytest.approx(1.0)
        assert "- gold:" in prompt
        assert "- completion:" not in prompt
    assert info["weights"].tolist() == [0.0, 0.5, 0.5, 0.0]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 16), st.floats(0.05, 20))
def test_drawn_weights_are_whole_per_cents_on_the_simplex(seed: int, d: int, alpha: float) -> None:
    active = np.arange(16) < d
    weights = draw_weights(np.random.default_rng(seed), active, alpha)
    percent = 100 * weights
    np.testing.assert_allclose(percent, np.round(percent), atol=1e-9)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0).all()
    assert not weights[~active].any()


def test_draws_follow_the_dirichlet_distribution() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([draw_weights(rng, np.ones(4, dtype=bool), 2.0) for _ in range(4000)])
    # Mean 1/d and variance (1/d)(1 − 1/d)/(dα + 1).
    np.testing.assert_allclose(draws.mean(axis=0), 0.25, atol=0.01)
    np.testing.assert_allclose(draws.var(axis=0), 0.25 * 0.75 / 9, rtol=0.1)


def test_the_wrapper_survives_in_the_spec() -> None:
    env = PreferenceConditioned(gym.make("vpo/Maze-v0", preset="paper"), alpha=0.5)
    assert env.spec is not None
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(again.reset(seed=2), env.reset(seed=2), exact=True)


def test_returned_weights_can_be_written_to() -> None:
    env = maze()
    _, info = env.reset(seed=0)
    kept = info["weights"].copy()
    info["weights"][:] = 0
    np.testing.assert_array_equal(env.weights, kept)


def test_a_prompt_can_be_conditioned_without_an_episode() -> None:
    text = gym.make("vpo/Maze-v0").unwrapped.condition("Go.", np.array([0.5, 0.25, 0.125, 0.125]))
    assert text.splitlines()[1].startswith("- completion: 50 % (")
    assert text.splitlines()[3].startswith("- diamond: 12.5 % (")
    assert text.endswith("\n\nGo.")


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
        maze().reset(options={"weights": weights})
    with pytest.raises(ValueError, match=message):
        read_weights(weights, np.ones(4, dtype=bool), MazeEnv().objective_names)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="wraps text environments, got MazeStepsEnv"):
        PreferenceConditioned(gym.make("vpo/MazeSteps-v0"))
    with pytest.raises(ValueError, match="alpha must be above 0, got 0"):
        PreferenceConditioned(MazeEnv(), alpha=0)
    with pytest.raises(gym.error.ResetNeeded, match="no weights yet"):
        _ = PreferenceConditioned(MazeEnv()).weights
