"""What a search is for: the best scalar reward, or a set of answers for a weighting that is not known yet.

Either goal values a set of answers by E_w[max w·r], the expected reward of its best answer for a weighting w. The
scalar goal knows w: it is the task's fixed weights. The utility goal takes w uniform on the simplex.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.measures import report_weights
from vpo_agent.measure.metrics import mean_ranked
from vpo_agent.measure.pool import Floats, Pool
from vpo_envs.pareto import set_utility

Goal = Literal["scalar", "utility"]
VALUE_NAMES: dict[Goal, str] = {"scalar": "best scalar reward", "utility": "expected utility"}
"""What the value of a set of answers is called in tables and figures."""


def check_goal(goal: str) -> None:
    """Raise a ValueError if a goal is unknown."""
    if goal not in get_args(Goal):
        raise ValueError(f"unknown goal {goal!r}: choose one of {', '.join(get_args(Goal))}")


def weightings(goal: Goal, fixed_weights: Floats, active: NDArray[np.bool_]) -> Floats:
    """Return the weightings over which a goal values answers, (K, d): the fixed one, or those of every report."""
    return fixed_weights[None] if goal == "scalar" else report_weights(active)


def values_on_the_way(rewards: Floats, weights: Floats) -> Floats:
    """Return the value of the first 1 to B answers with ``rewards`` (B, d) under ``weights`` (K, d), (B,)."""
    return np.asarray(np.maximum.accumulate(rewards @ weights.T, axis=0).mean(axis=1))


def ranked_values(pool: Pool, goal: Goal) -> tuple[Floats, Floats | None]:
    """Return what single answers are worth to a set, and the value of each exact front.

    Returns:
        Values (N, R·m), ascending, whose :func:`~vpo_agent.measure.metrics.best_at_k` is the expected value of any k
        answers to each prompt; and values (N,), ``None`` if no front is known.
    """
    answers = pool.active_rewards().reshape(len(pool.indices), -1, len(pool.objectives))
    weights = [weightings(goal, *pair) for pair in zip(pool.scalar_weights, pool.active, strict=True)]
    ranked = np.stack([mean_ranked(each @ vectors.T) for each, vectors in zip(weights, answers, strict=True)])
    if pool.fronts is None:
        return ranked, None
    return ranked, np.array([set_utility(*pair) for pair in zip(pool.fronts, weights, strict=True)])
