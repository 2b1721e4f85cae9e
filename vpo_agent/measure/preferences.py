"""What answers earn under preferences that are chosen after training: from the corners of the simplex to its centre."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from vpo_agent.measure.metrics import best_at_k_whole
from vpo_agent.measure.pool import Floats, Pool
from vpo_envs.pareto import COARSE, spread_weights


class Preferences(NamedTuple):
    """Expected rewards w·r of the best of some answers under a known weighting w, on average over prompts."""

    corner: float
    """One objective alone counts; mean over the objectives."""
    edge: float
    """Two objectives count alike; mean over the pairs. With a single objective it is the corner."""
    centre: float
    """All objectives count alike."""
    worst: float
    """Under the weighting with the lowest expected reward, of those above and about 512 that are spread evenly."""


def answers_under_preferences(pool: Pool, k: int) -> Preferences:
    """Return what the best of k answers earns, in whole rollouts where m divides ``k``; exact over all subsets.

    Objectives that do not count for a prompt leave its weighting; a prompt for which no weight remains is left out.
    """
    _, rollouts, m, d = pool.rewards.shape

    def best(scores: Floats) -> Floats:
        return best_at_k_whole(scores, scores.reshape(-1, rollouts, m).max(axis=2), k)

    return _under_preferences(pool, list(pool.active_rewards().reshape(-1, rollouts * m, d)), best)


def fronts_under_preferences(pool: Pool) -> Preferences | None:
    """Return the most that any answers can earn; ``None`` if the exact fronts are unknown."""
    if pool.fronts is None:
        return None
    return _under_preferences(pool, pool.fronts, lambda scores: scores.max(axis=1))


def _under_preferences(pool: Pool, sets: Sequence[Floats], best: Callable[[Floats], Floats]) -> Preferences:
    """Average over prompts what ``best`` takes from the scores (W, n) of each set (n, d) under all weightings."""
    d = len(pool.objectives)
    corners = np.eye(d)
    edges = [(corners[one] + corners[other]) / 2 for one, other in combinations(range(d), 2)]
    weightings = np.concatenate(
        [corners, np.reshape(edges, (-1, d)), np.full((1, d), 1 / d), spread_weights(d, COARSE)]
    )
    total, prompts = np.zeros(len(weightings)), np.zeros(len(weightings))
    for vectors, active in zip(sets, pool.active, strict=True):
        kept = weightings * active
        counts = kept.any(axis=1)
        weights = kept[counts] / kept[counts].sum(axis=1, keepdims=True)
        total[counts] += best(weights @ vectors.T)
        prompts[counts] += 1
    # An objective that counts for no prompt has no mean.
    means = np.divide(total, prompts, out=np.full_like(total, np.nan), where=prompts > 0)
    edge = means[d : d + len(edges)] if edges else means[:d]
    return Preferences(*map(float, (np.nanmean(means[:d]), np.nanmean(edge), means[d + len(edges)], np.nanmin(means))))
