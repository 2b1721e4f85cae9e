"""How near a set of reward vectors comes to the exact Pareto front: hypervolume, IGD+ and the additive epsilon.

Pure functions of one prompt's vectors; rewards are "higher is better".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vpo_agent.pareto.metrics import non_dominated

Floats = NDArray[np.float64]

REFERENCE = -0.1
"""The reference point of :func:`hypervolume` in every objective. It lies below the worst reward, so that a vector with
one objective at zero still counts for the others."""
MAX_OBJECTIVES, MAX_POINTS = 6, 12
"""Beyond both of them the exact hypervolume takes too long."""


def hypervolume(points: ArrayLike, *, reference: float = REFERENCE) -> float | None:
    """The share of the box from the reference point to all ones that the points dominate.

    The exclusive volumes of the points are added up, each found by the recursion of While et al. 2012 (WFG).

    Args:
        points: Reward vectors in [0, 1], shape (n, d); n may be 0.
        reference: The reference point's value in every objective, below 1.

    Returns:
        A share in [0, 1]; ``None`` where d > 6 and more than 12 distinct points are non-dominated, which would take too
        long.

    Raises:
        ValueError: The shape is not (n, d), a value is not finite, or the reference is not below 1.
    """
    if not reference < 1:
        raise ValueError(f"the reference point of a hypervolume lies below the best reward, 1; got {reference}")
    kept = _front_of(points)
    if kept.shape[1] > MAX_OBJECTIVES and len(kept) > MAX_POINTS:
        return None
    sides = np.clip((kept - reference) / (1 - reference), 0, None)
    return _volume(sides)


def igd_plus(front: ArrayLike, reached: ArrayLike) -> float:
    """Mean over the front of the Euclidean distance that the nearest reached vector still falls short by.

    IGD+ of Ishibuchi et al. 2015: what a vector has in excess in one objective does not count as distance.

    Args:
        front: Vectors of the exact front, shape (f, d), f >= 1.
        reached: Reward vectors reached, shape (n, d), n >= 1.

    Returns:
        The distance, 0 where the whole front is attained.

    Raises:
        ValueError: One of them is empty, or shapes disagree.
    """
    short = np.clip(_shortfall(front, reached), 0, None)
    return float(np.sqrt((short**2).sum(axis=2)).min(axis=1).mean())


def additive_epsilon(front: ArrayLike, reached: ArrayLike) -> float:
    """The least amount that, added to every reached reward, would attain the whole front.

    The additive epsilon indicator of Zitzler et al. 2003.

    Args:
        front: Vectors of the exact front, shape (f, d), f >= 1.
        reached: Reward vectors reached, shape (n, d), n >= 1.

    Returns:
        The amount, 0 where the whole front is attained.

    Raises:
        ValueError: One of them is empty, or shapes disagree.
    """
    return float(max(0.0, _shortfall(front, reached).max(axis=2).min(axis=1).max()))


def _shortfall(front: ArrayLike, reached: ArrayLike) -> Floats:
    """Front less reached, shape (f, n, d)."""
    targets, vectors = np.asarray(front, dtype=np.float64), np.asarray(reached, dtype=np.float64)
    for name, array in (("front", targets), ("reached", vectors)):
        if array.ndim != 2 or len(array) == 0:
            raise ValueError(f"{name} must have shape (n, d) with n >= 1; got {array.shape}")
    if targets.shape[1] != vectors.shape[1]:
        raise ValueError(f"front has {targets.shape[1]} objectives and reached {vectors.shape[1]}; give the same")
    # Of hundreds of answers only a handful are distinct and non-dominated, and only those can be nearest.
    return np.asarray(targets[:, None, :] - _front_of(vectors)[None, :, :])


def _front_of(points: ArrayLike) -> Floats:
    vectors = np.asarray(points, dtype=np.float64)
    return np.asarray(vectors[non_dominated(vectors)])


def _volume(sides: Floats) -> float:
    """The volume of the union of the boxes from the origin to each of the non-dominated ``sides`` (n, d)."""
    if len(sides) == 0:
        return 0.0
    if len(sides) == 1:
        return float(np.prod(sides[0]))
    if sides.shape[1] == 1:
        return float(sides.max())
    if sides.shape[1] == 2:
        across = sides[np.argsort(-sides[:, 0])]
        return float(np.sum(across[:, 0] * np.diff(across[:, 1], prepend=0.0)))
    total = 0.0
    for place, box in enumerate(sides):
        later = np.minimum(sides[place + 1 :], box)
        total += float(np.prod(box)) - _volume(later[non_dominated(later)])
    return total
