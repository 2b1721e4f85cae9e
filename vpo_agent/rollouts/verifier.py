"""The exact best that an unfinished answer can still become, and noise in place of a learned verifier's errors.

Tree search and process credit both go by it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_envs import Task, VectorTextEnv

Env = VectorTextEnv[Any, Any, Any]
Floats = NDArray[np.floating]

STREAM = 0x7E
"""Separates the noise from other random streams."""


def check_values(env: Env, task: Task, method: str, others: str) -> None:
    """Raise a ValueError if an environment cannot value unfinished answers to ``task``, with ``others`` to choose."""
    try:
        env.prefix_front(task, "")
    except NotImplementedError as error:
        raise ValueError(
            f"method {method!r} needs the values of unfinished answers: {error}; choose {others}"
        ) from None


class Verifier:
    """Values the answers to one task, finished or not, under given weightings.

    A value is E_w max(best w·r of the answers before, best w·r of the completions), plus Gaussian noise of standard
    deviation ``noise`` that stands for the error of a learned verifier. The noise belongs to the content of the answer:
    it is the same whenever, and under whatever weightings, the same text is valued. ``key`` and ``seed`` tell tasks and
    runs apart.
    """

    def __init__(self, env: Env, task: Task, key: int, noise: float, seed: int) -> None:
        self._env = env
        self._task = task
        self._key = (seed, key, STREAM)
        self._noise = noise
        self._fronts: dict[str, Floats] = {}

    def unfinished(self, text: str, weights: Floats, reached: Floats) -> float:
        """Value an answer of which ``text`` is written, under ``weights`` (K, d); the answers before reach (K,)."""
        if text not in self._fronts:
            self._fronts[text] = self._env.prefix_front(self._task, text)
        return self._value(self._fronts[text], weights, reached, text)

    def finished(self, text: str, reward: NDArray[np.float32], weights: Floats, reached: Floats) -> float:
        """Value an answer with a reward vector (d,); the other arguments are as for an unfinished one."""
        return self._value(reward[None], weights, reached, f"{text}</answer>")

    def _value(self, vectors: NDArray[np.floating], weights: Floats, reached: Floats, content: str) -> float:
        value = float(np.maximum(reached, (weights @ vectors.T).max(axis=1)).mean())
        if not self._noise:
            return value
        digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        rng = np.random.default_rng([*self._key, int.from_bytes(digest)])
        return value + self._noise * float(rng.standard_normal())
