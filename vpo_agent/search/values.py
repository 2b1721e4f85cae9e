"""The exact best that an unfinished answer can still become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vpo_envs import Task, VectorTextEnv
from vpo_envs.pareto import non_dominated
from vpo_envs.text import answer_tags

Env = VectorTextEnv[Any, Any, Any]
Floats = NDArray[np.floating]

ROUNDING = 1e-5
"""A reward may be this much above the values before it without counting as higher."""


def check_values(env: Env, task: Task) -> None:
    """Raise a ValueError if an environment cannot value unfinished answers to ``task``."""
    if not isinstance(env, ValuesUnfinished):
        raise ValueError(
            f"method 'beam' needs the values of unfinished answers: {name_of(env)} has no "
            f"completion_outcomes; choose best-of-n or evolve"
        )
    completion_front(env, task, "")


@runtime_checkable
class ValuesUnfinished(Protocol):
    """What an environment implements so that its unfinished answers can be valued."""

    def completion_outcomes(self, task: Any, partial: str) -> Sequence[Any]:
        """Return the outcomes of completions of an unfinished answer that no other completion beats in every fact.

        At least one outcome; where no completion earns anything, any that the environment finds not feasible.

        Args:
            task: The instance.
            partial: The text of an answer so far, without its tag, cut at any character. A completion is any text that
                begins with it.
        """


def completion_front(env: Any, task: Task, partial: str) -> NDArray[np.float64]:
    """Return the exact reward vectors (n, d) of the best completions of an unfinished answer.

    Raises:
        UnknownFront: A subclass of the environment changes what its ``completion_outcomes`` relies on.
    """
    env.check_solver(task, "completion_outcomes")
    vectors = np.array([env.reward_vector(outcome) for outcome in env.completion_outcomes(task, partial)], np.float64)
    return vectors[non_dominated(vectors)]


def name_of(env: Env) -> str:
    """Return the name of an environment, as messages call it."""
    return env.spec.id if env.spec else type(env).__name__


class Verifier:
    """Values the answers to one task, finished or not, under weightings (K, d), exactly.

    A value is E_w max(best w·r of the answers before, best w·r of the completions).
    """

    def __init__(self, env: Env, task: Task, weights: Floats) -> None:
        self._weights = weights
        self._env = env
        self._task = task
        self._fronts: dict[str, Floats] = {}

    def unfinished(self, text: str, reached: Floats) -> float:
        """Value an answer of which ``text`` is written; the answers before reach (K,).

        Raises:
            ValueError: An outcome earns something else than a vector of rewards.
        """
        return self._value(self._front(text), reached)

    def finished(self, text: str, reward: NDArray[np.float32], reached: Floats) -> float:
        """Value an answer with a reward vector (d,); the other arguments are as for an unfinished one.

        Raises:
            ValueError: The answer earns what its own text could not become, according to its value.
        """
        if not (self._front(text) >= reward - ROUNDING).all(axis=1).any():
            raise ValueError(
                f"completion_outcomes of {name_of(self._env)} disagrees with the scores: the answer {text!r:.80} earns "
                f"{np.round(reward, 4).tolist()}, which no outcome for its own text matches"
            )
        return self._value(reward[None], reached)

    def _front(self, text: str) -> Floats:
        """Return the vectors of the best completions of a text, (n, d), after checking them."""
        # The scores read what follows the last opening tag.
        text = text.rpartition(answer_tags(1)[0][0])[2]
        if text not in self._fronts:
            vectors = completion_front(self._env, self._task, text)
            if not ((vectors >= -ROUNDING) & (vectors <= 1 + ROUNDING)).all():
                raise ValueError(
                    f"completion_outcomes of {name_of(self._env)} must earn rewards in [0, 1]; for the beginning "
                    f"{text!r:.80} they earn {vectors.min():.4g} to {vectors.max():.4g}"
                )
            self._fronts[text] = vectors
        return self._fronts[text]

    def _value(self, vectors: NDArray[np.floating], reached: Floats) -> float:
        return float(np.maximum(reached, (self._weights @ vectors.T).max(axis=1)).mean())
