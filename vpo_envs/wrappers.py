"""Wrappers for text environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vpo_envs.core import VectorTextEnv
from vpo_envs.preferences import draw_weights, read_weights
from vpo_envs.spaces import TextSpace

MAX_PREFERENCE_CHARS = 100_000
"""Room in the observation space for the sentence about the weights."""
STREAM = 0x77
"""Keeps the stream of weights apart from that of instances, which starts from the same seed."""


class PreferenceConditioned(gym.Wrapper[str, str, str, str], gym.utils.RecordConstructorArgs):
    """Write a weighting of the objectives into the prompt, so that one policy can serve any preference.

    Each episode has weights w on the simplex: those of ``reset(options={"weights": …})``, or a draw from a symmetric
    Dirichlet distribution over the active objectives, in whole per cent, so that what the prompt says is exact. The
    reward stays a vector. ``info["weights"]`` holds w, shape (d,), and after a step ``info["utility"]`` the weighted
    sum w·r of each answer, shape (answers,). Which instances are drawn does not change.

    Args:
        env: A text environment, or wrappers around one.
        alpha: Concentration of the Dirichlet distribution; 1 is uniform on the simplex, less favours extremes.
    """

    def __init__(self, env: gym.Env[str, str], alpha: float = 1.0) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, alpha=alpha)
        super().__init__(env)
        if not isinstance(env.unwrapped, VectorTextEnv):
            raise TypeError(f"PreferenceConditioned wraps text environments, got {type(env.unwrapped).__name__}")
        if not alpha > 0:
            raise ValueError(f"alpha must be above 0, got {alpha}")
        assert isinstance(env.observation_space, TextSpace)  # as every VectorTextEnv has
        self.alpha = alpha
        self.text_env: VectorTextEnv[Any, Any, Any] = env.unwrapped
        self.observation_space = TextSpace(env.observation_space.max_length + MAX_PREFERENCE_CHARS)
        self._weights_rng = np.random.default_rng()
        self._weights: NDArray[np.float64] | None = None

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights of this episode, shape (d,)."""
        if self._weights is None:
            raise gym.error.ResetNeeded("call reset() first: there are no weights yet")
        return self._weights.copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the draws of instances and of weights.
            options: Those of the environment, and ``"weights"``: d numbers from 0 on, which are scaled to sum to 1
                over the active objectives.

        Raises:
            ValueError: Weights of a wrong number, below 0, or all 0.
        """
        options = dict(options or {})
        given = options.pop("weights", None)
        if seed is not None:
            self._weights_rng = np.random.default_rng(np.random.SeedSequence([STREAM, seed]))
        observation, info = self.env.reset(seed=seed, options=options)
        active = self.text_env.active(self.text_env.current_task)
        if given is None:
            self._weights = draw_weights(self._weights_rng, active, self.alpha)
        else:
            self._weights = read_weights(given, active, self.text_env.objective_names)
        return self._observation(observation), {**info, "weights": self.weights}

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Score a response; the reward is the vector that the environment gives."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        weights = self.weights
        info = {**info, "weights": weights, "utility": info["reward_matrix"] @ weights}
        return self._observation(observation), reward, terminated, truncated, info

    def _observation(self, prompt: str) -> str:
        active = self.text_env.active(self.text_env.current_task)
        return self.text_env.condition(prompt, self.weights, active)
