"""best@k, diversity, hypervolume and coverage of the answers to a prompt.

Pure functions over arrays with any leading axes (prompts, seeds, methods). A NaN is an error and never averaged away:
an answer whose scorer failed is invalid and has no score, and only the caller knows whether to drop it.
"""

from __future__ import annotations

from operator import index

import moocore
import numpy as np
from numpy.typing import ArrayLike

from vpo_agent.measure.pool import Floats
from vpo_envs.pareto import best_of_chances, non_dominated

REFERENCE = -0.1
"""The reference point of :func:`hypervolume` in every objective. It lies below the worst reward, so that a vector with
one objective at zero still counts for the others."""
MAX_OBJECTIVES, MAX_POINTS = 6, 12
"""An exact hypervolume is computed within either limit; beyond both it takes too long."""
MOOCORE_OBJECTIVES = 31
"""The most objectives that moocore's hypervolume accepts."""


def best_at_k(scores: ArrayLike, k: int) -> Floats:
    """Return the expected best score of ``k`` answers drawn without replacement from the ``n`` given, exactly.

    With the scores ascending, x_1 ≤ … ≤ x_n, the maximum of a k-subset is x_i in C(i−1, k−1) of the C(n, k) subsets, so
    the expectation is Σ_i x_i · C(i−1, k−1) / C(n, k). On 0/1 scores it is the unbiased pass@k of Chen et al. 2021
    (arXiv 2107.03374, equation 1).

    Scores of shape (..., n) give shape (...).

    Raises:
        ValueError: ``k`` is not in 1..n, or a score is not finite.
    """
    values = _finite("scores", scores, "(..., n)", 1)
    size, drawn = values.shape[-1], index(k)
    if not 1 <= drawn <= size:
        raise ValueError(
            f"best@k needs 1 <= k <= n; got k={drawn} with n={size} scores; sample more answers or lower k"
        )
    return np.asarray(np.sort(values, axis=-1)[..., drawn - 1 :] @ best_of_chances(size, drawn))


def best_at_k_whole(answers: ArrayLike, rollouts: ArrayLike, k: int) -> Floats:
    """Return best@k in whole responses of m answers if m divides ``k``, else with answers drawn singly.

    Args:
        answers: Scores of all answers, (..., R·m).
        rollouts: Best score of each rollout, (..., R).
        k: Number of answers, 1 to R·m.
    """
    m = np.shape(answers)[-1] // np.shape(rollouts)[-1]
    return best_at_k(answers, k) if k % m else best_at_k(rollouts, k // m)


def mean_ranked(scores: ArrayLike) -> Floats:
    """Return the mean over K weightings of the ascending scores of n answers: shape (..., K, n) gives (..., n).

    best@k is linear in the sorted scores, so :func:`best_at_k` of the result is utility@k, for every k from one sort.
    """
    return np.asarray(np.sort(_finite("scores", scores, "(..., K, n)", 2), axis=-1).mean(axis=-2))


def diversity(rewards: ArrayLike) -> Floats:
    """Return the mean L1 distance between the reward vectors of a set, over its n(n−1)/2 pairs.

    The measure of the paper's diversity column (arXiv 2605.22817). Each objective is sorted, which gives all pairs at
    the cost of a sort. Sets of shape (..., n, d) give shape (...).

    Returns:
        From 0 to d for rewards in [0, 1]; 0 for sets of fewer than two.
    """
    vectors = _finite("rewards", rewards, "(..., n, d)", 2)
    size = vectors.shape[-2]
    if size < 2:
        return np.zeros(vectors.shape[:-2])
    ascending = np.sort(vectors, axis=-2)
    # Measured from the lowest, so that equal rewards give exactly zero.
    ascending = ascending - ascending[..., :1, :]
    times_higher_less_lower = 2.0 * np.arange(size) - (size - 1)
    return np.asarray((times_higher_less_lower @ ascending).sum(axis=-1) / (size * (size - 1) / 2))


def hypervolume(points: ArrayLike, *, reference: float = REFERENCE) -> float | None:
    """Return the share of the box from the reference point to all ones that the points dominate.

    The points are rewards in [0, 1], (n, d), n >= 0; the reference point has one value below 1 in every objective.

    Returns:
        A share in [0, 1]. ``None`` where d > 6 and more than 12 distinct points are non-dominated, which would take
        too long, or where d > 31.
    """
    vectors = np.asarray(points, dtype=np.float64)
    kept = vectors[non_dominated(vectors)]
    count, d = kept.shape
    if d > MOOCORE_OBJECTIVES or (d > MAX_OBJECTIVES and count > MAX_POINTS):
        return None
    return float(moocore.hypervolume(kept, ref=np.full(d, reference), maximise=True) / (1 - reference) ** d)


def coverage(front: ArrayLike, reached: ArrayLike, tolerance: float = 1e-6) -> float:
    """Return the share of the front's points that some reached vector attains in every objective, up to ``tolerance``.

    The front has shape (f, d), f >= 1, and the reached vectors have shape (n, d). The share lies in [0, 1].
    """
    vectors = np.asarray(reached, dtype=np.float64)
    return float(np.mean([(vectors >= target - tolerance).all(axis=1).any() for target in np.asarray(front)]))


def _finite(name: str, values: ArrayLike, axes: str, least_axes: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < least_axes:
        raise ValueError(f"{name} must have shape {axes}; got shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name}{list(where)} is {array[where]}; leave invalid answers out before measuring")
    return array
