"""Weights of the objectives: drawn, read, rounded, and stated in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vpo_envs.core import VectorTextEnv
from vpo_envs.episodes import TextSpace
from vpo_envs.wording import counted


def draw_weights(rng: np.random.Generator, active: NDArray[np.bool_], alpha: float = 1.0) -> NDArray[np.float64]:
    """Draw weights in whole per cent from a symmetric Dirichlet distribution over the active objectives, shape (d,)."""
    weights = np.zeros(len(active))
    weights[active] = rng.dirichlet(np.full(int(active.sum()), alpha))
    return in_whole_percent(weights)


def in_whole_percent(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Round weights that sum to 1, shape (d,), to whole per cent that still do."""
    exact = 100 * weights.astype(np.float64)
    percent = np.floor(exact)
    # The per cent lost by rounding down go to the weights that lost most.
    lost = np.argsort(percent - exact, kind="stable")[: round(100 - percent.sum())]
    percent[lost] += 1
    return np.asarray(percent / 100)


def read_weights(
    weights: Sequence[float] | NDArray[np.floating], active: NDArray[np.bool_], names: Sequence[str]
) -> NDArray[np.float64]:
    """Scale given weights to sum to 1 over the active objectives, shape (d,).

    Raises:
        ValueError: There are too few or too many values, one is negative or not finite, or no active one is above 0.
    """
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"weights must be numbers, one per objective ({', '.join(names)}); got {weights!r}") from None
    if values.shape != (len(names),):
        raise ValueError(
            f"weights need {counted(len(names), 'value')}, one per objective ({', '.join(names)}); got {values.size}"
        )
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"weights must be finite and not negative, got {values.tolist()}")
    values = values * active
    if values.sum() <= 0:
        raise ValueError("at least one active objective needs a weight above 0: all are 0")
    return np.asarray(values / values.sum())


MAX_PREFERENCE_CHARS = 100_000
"""Room in the observation space for the sentence about the weights."""
STREAM = 0x77
"""Separates the random stream of weights from that of instances, which has the same seed."""


class PreferenceConditioned(gym.Wrapper[str, str, str, str], gym.utils.RecordConstructorArgs):
    """States weights of the objectives in the prompt, so that one policy can serve any preference.

    Each episode has weights w on the simplex, given by ``reset(options={"weights": …})`` or drawn from a symmetric
    Dirichlet distribution over the active objectives. They are whole per cent, so the prompt states them exactly. The
    reward is still a vector. ``info["weights"]`` holds w, shape (d,), and after a step ``info["utility"]`` the weighted
    sum w·r of each answer, shape (answers,). The instances drawn are those of the bare environment.

    Args:
        env: A text environment, wrapped or not.
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
            options: Options of the environment, and ``"weights"``: d numbers, none negative, which are scaled to sum
                to 1 over the active objectives.

        Raises:
            ValueError: Bad weights; see :func:`read_weights`.
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
        """Score a response; the reward is the environment's vector."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        weights = self.weights
        info = {**info, "weights": weights, "utility": info["reward_matrix"] @ weights}
        return self._observation(observation), reward, terminated, truncated, info

    def _observation(self, prompt: str) -> str:
        active = self.text_env.active(self.text_env.current_task)
        return self.text_env.condition(prompt, self.weights, active)
