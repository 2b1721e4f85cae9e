"""How near a set of reward vectors comes to the exact Pareto front.

Functions of one prompt's vectors, which are "higher is better". The exact algorithms are those of moocore.
"""

from __future__ import annotations

import moocore
import numpy as np
from numpy.typing import ArrayLike

from vpo_agent.measure.pool import Floats
from vpo_envs.pareto import non_dominated

REFERENCE = -0.1
"""The reference point of :func:`hypervolume` in every objective. It lies below the worst reward, so that a vector with
one objective at zero still counts for the others."""
MAX_OBJECTIVES, MAX_POINTS = 6, 12
"""An exact hypervolume is computed within either limit; beyond both it takes too long."""
MOOCORE_OBJECTIVES = 31
"""The most objectives that moocore's hypervolume accepts."""


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


def igd_plus(front: ArrayLike, reached: ArrayLike) -> float:
    """Return the mean over the front of the distance by which the nearest reached vector falls short.

    IGD+ of Ishibuchi et al. 2015: an excess in one objective does not count as distance. The front has shape (f, d),
    f >= 1, the reached vectors (n, d), n >= 1.

    Raises:
        ValueError: One of them is empty, or shapes disagree.
    """
    targets, vectors = _checked(front, reached)
    return float(moocore.igd_plus(vectors, ref=targets, maximise=True))


def additive_epsilon(front: ArrayLike, reached: ArrayLike) -> float:
    """Return the least amount that, added to every reached reward, would attain the whole front.

    The additive epsilon indicator of Zitzler et al. 2003; arguments and errors as for :func:`igd_plus`.
    """
    targets, vectors = _checked(front, reached)
    return max(0.0, float(moocore.epsilon_additive(vectors, ref=targets, maximise=True)))


def coverage(front: ArrayLike, reached: ArrayLike, tolerance: float = 1e-6) -> float:
    """Return the share of the front's points that some reached vector attains in every objective, up to ``tolerance``.

    Arguments and errors as for :func:`igd_plus`.
    """
    targets, vectors = _checked(front, reached)
    return float(np.mean([(vectors >= target - tolerance).all(axis=1).any() for target in targets]))


def _checked(front: ArrayLike, reached: ArrayLike) -> tuple[Floats, Floats]:
    """Both as arrays of equally many columns; moocore crashes on an empty one."""
    targets, vectors = np.asarray(front, dtype=np.float64), np.asarray(reached, dtype=np.float64)
    for name, array in (("front", targets), ("reached", vectors)):
        if array.ndim != 2 or len(array) == 0:
            raise ValueError(f"{name} must have shape (n, d) with n >= 1; got {array.shape}")
    if targets.shape[1] != vectors.shape[1]:
        raise ValueError(f"front has {targets.shape[1]} objectives and reached {vectors.shape[1]}; they must be equal")
    return targets, vectors
