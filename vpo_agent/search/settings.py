"""What to search for and how, the same for every policy.

Either measure scores a set of answers by E_w[max w·r], the expected reward of its best answer for a weighting w. For
the scalar reward w is known: the fixed weights of the task. For the utility w is uniform on the simplex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.measures import report_weights
from vpo_agent.measure.metrics import mean_ranked
from vpo_agent.measure.pool import Floats, Pool
from vpo_envs.pareto import set_utility

SearchMeasure = Literal["scalar", "utility"]
MEASURE_NAMES: dict[SearchMeasure, str] = {"scalar": "best scalar reward", "utility": "utility"}
"""What the score of a set of answers is called in tables and figures."""
Method = Literal["best-of-n", "evolve"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a search; a ValueError names a number that is out of range, or an unknown choice.

    The budget counts answers, or tokens, so it is equal for policies that write one answer per response and for
    policies that write sets.
    """

    method: Method = "evolve"
    measure: SearchMeasure = "scalar"
    """What a set of answers is scored by: the best scalar reward, or the utility of all answers together."""
    iterations: int = 200
    """Answers sampled for each task."""
    tokens: int | None = None
    """Tokens sampled for each task: a budget in place of :attr:`iterations`."""
    seed: int = 0
    temperature: float = 1.0
    max_new_tokens: int = 1024
    """Longest response, in tokens."""
    start: int = 30
    """``evolve``: answers sampled first, as best-of-n does."""
    offspring: int = 5
    """``evolve``: children of a task per call of the policy, all from the same archive."""
    feedback: bool = False
    """``evolve``: the model reads the parent and its results on the examples of the prompt; the child keeps no
    tokens."""

    def __post_init__(self) -> None:
        check_choice("method", self.method, Method)
        check_choice("measure", self.measure, SearchMeasure)
        for name in ("iterations", "tokens", "start", "offspring", "max_new_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.feedback and self.method != "evolve":
            raise ValueError(f"feedback is about a parent, which {self.method} does not have: choose method evolve")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


def check_choice(name: str, value: str, kind: Any) -> None:
    """Raise a ValueError if a measure or method is unknown."""
    if value not in get_args(kind):
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(get_args(kind))}")


def weightings(measure: SearchMeasure, fixed_weights: Floats, active: NDArray[np.bool_]) -> Floats:
    """Return the weightings under which a measure scores answers, (K, d): the fixed weighting, or the weightings of
    every report."""
    return fixed_weights[None] if measure == "scalar" else report_weights(active)


def scores_on_the_way(rewards: Floats, weights: Floats) -> Floats:
    """Return the score of the first 1 to B answers with ``rewards`` (B, d) under ``weights`` (K, d), (B,)."""
    return np.asarray(np.maximum.accumulate(rewards @ weights.T, axis=0).mean(axis=1))


def ranked_scores(pool: Pool, measure: SearchMeasure) -> tuple[Floats, Floats | None]:
    """Return scores of single answers, from which scores of sets follow, and the score of each exact front.

    Returns:
        Scores (N, R·m), ascending, whose :func:`~vpo_agent.measure.metrics.best_at_k` is the expected score of any k
        answers to each prompt; and scores (N,), ``None`` if no front is known.
    """
    weights = [
        weightings(measure, fixed, active) for fixed, active in zip(pool.scalar_weights, pool.active, strict=True)
    ]
    pairs = zip(weights, pool.answers(), strict=True)
    ranked = np.stack([mean_ranked(directions @ vectors.T) for directions, vectors in pairs])
    if pool.fronts is None:
        return ranked, None
    pairs = zip(pool.fronts, weights, strict=True)
    return ranked, np.array([set_utility(front, directions) for front, directions in pairs])
