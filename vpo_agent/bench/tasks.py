"""The tasks of ``bench-v2``. Whatever changes a prompt, a reward or a number here needs a new version."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.pool import Floats
from vpo_envs.core import AnyEnv
from vpo_envs.pareto import COARSE, best_set, spread_weights
from vpo_envs.registration import make_text_env

VERSION = "bench-v2"
ANSWERS = 3
"""Answers in a response."""
RESPONSES = 10
"""Responses to a prompt."""
TEMPERATURE = 1.0


class BenchTask(NamedTuple):
    """One task of a track."""

    name: str
    env: str
    env_kwargs: Mapping[str, Any]
    size: int
    max_new_tokens: int
    blind: float
    """Utility of three answers that ignore the lines they should rest on, as a share of the utility of the best three
    of the exact front. docs/blind.md describes these answers, and a test measures the share on the public prompts."""
    best: float
    """Utility of the best three answers of the exact front, on average over the public prompts."""
    model: str | None = None
    """The bundled model that answers by default."""

    def environment(self, seed: int) -> AnyEnv:
        """Return the environment; another seed has other prompts."""
        return make_text_env(self.env, **self.env_kwargs, data_seed=seed, split="test", num_answers=ANSWERS)

    def prompts(self, seed: int) -> list[str]:
        """Return the prompts."""
        env = self.environment(seed)
        return [env.prompt(env.task(index), ANSWERS) for index in range(self.size)]


def _compact(
    name: str, env: str, max_new_tokens: int, blind: float, best: float, model: str, **env_kwargs: Any
) -> BenchTask:
    return BenchTask(
        name=name,
        env=f"vpo/{env}-v0",
        env_kwargs={"preset": "compact", **env_kwargs},
        size=100,
        max_new_tokens=max_new_tokens,
        blind=blind,
        best=best,
        model=f"tiny-{model}",
    )


def _natural(name: str, env: str, preset: str, blind: float, best: float, **env_kwargs: Any) -> BenchTask:
    return BenchTask(
        name=name,
        env=f"vpo/{env}-v0",
        env_kwargs={"preset": preset, **env_kwargs},
        size=50,
        max_new_tokens=2048,
        blind=blind,
        best=best,
    )


PARTS = {"parts": True, "steps": [3, 4], "decisive": False}
TRACKS: dict[str, tuple[BenchTask, ...]] = {
    "compact": (
        _compact("maze", "Maze", 192, 0.4649, 0.6669, "maze"),
        _compact("maze-exit", "Maze", 208, 0.2975, 0.8556, "maze", reward_shape="exit"),
        _compact("countdown", "Countdown", 96, 0.4596, 0.5209, "countdown"),
        _compact("musique", "MuSiQue", 80, 0.4778, 0.6111, "musique"),
        _compact("tools", "Tools", 128, 0.5454, 0.6111, "tools"),
        _compact("code", "Code", 80, 0.1866, 0.6141, "code"),
        _compact("programs", "Programs", 80, 0.1102, 1.0000, "programs", difficulty={"decisive": False}),
        _compact("parts", "Programs", 64, 0.3547, 1.0000, "programs", difficulty=PARTS),
    ),
    # The longest prompts first, so that a model whose context is too short for them fails at once.
    "natural": (
        _natural("musique", "MuSiQue", "conflict", 0.5209, 0.9333),
        _natural("eureqa", "EUREQA", "conflict", 0.2686, 0.7358, difficulty={"decoys": 8}),
        _natural("maze", "Maze", "conflict", 0.1292, 0.8173),
        _natural("countdown", "Countdown", "paper", 0.1449, 0.5107),
        _natural("gsm8k", "GSM8K", "paper", 0.2263, 0.8996),
        _natural("personas", "Personas", "paper", 0.3409, 1.0000),
    ),
}
"""Tiny models answer the compact track, whose prompts are a few words; pretrained models answer the natural one."""


def digest(prompts: Mapping[str, list[str]]) -> str:
    """Return a hash of the prompts of each task."""
    hashed = blake2b(digest_size=16)
    for name, texts in prompts.items():
        for text in (name, *texts):
            hashed.update(f"{len(text)}:{text}".encode())
    return hashed.hexdigest()


def best_three(front: Floats, active: NDArray[np.bool_]) -> list[int]:
    """Return which points of an exact front (f, d) have the highest utility together."""
    points = front[:, active]
    return best_set(points, ANSWERS, spread_weights(points.shape[1], COARSE))
