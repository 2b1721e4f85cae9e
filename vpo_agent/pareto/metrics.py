"""What a set of answers is worth: best@k, utility over the simplex, fronts, diversity and bootstrap intervals.

Every function is pure: arrays in, numbers out, the same numbers every time. Reward components are "higher is better".
Shapes are written with the axes of the task contract: ``d`` objectives, ``n`` answers to one prompt, ``m`` answers in
one rollout, ``R`` rollouts, ``K`` weight vectors, ``N`` prompts, and ``...`` for any leading axes (prompts, seeds,
methods).

A NaN is never averaged away. A reward that is not a finite number is a ``ValueError``, because an answer whose scorer
failed is invalid, not worth zero, and only the caller knows whether to drop it.
"""

from __future__ import annotations

from math import factorial
from operator import index
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

MAX_EXACT_OBJECTIVES = 5
"""How many active objectives :func:`exact_expected_utility` takes; beyond, its polytope grows too fast."""

_ELEMENTS_PER_CHUNK = 2**22


class Interval(NamedTuple):
    """A mean and the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


class BestAtKCurve(NamedTuple):
    """best@k at several k, averaged over prompts, with a confidence band. All four arrays have the same length."""

    ks: NDArray[np.int_]
    mean: Floats
    low: Floats
    high: Floats


# ------------------------------------------------------------------------------------------ best@k


def best_at_k(scores: ArrayLike, k: int) -> Floats:
    """The expected best score of ``k`` answers drawn without replacement from the ``n`` at hand, exactly.

    With the scores ascending, x_1 ≤ … ≤ x_n, the maximum of a k-subset is x_i in C(i−1, k−1) of the C(n, k) subsets, so
    the expectation is Σ_i x_i · C(i−1, k−1) / C(n, k). The weights are built from the top, k/n and then ratios below
    one, so no binomial is ever formed and n may be large. On 0/1 scores it is the unbiased pass@k of Chen et al. 2021
    (arXiv 2107.03374, equation 1).

    Args:
        scores: Scalar scores, shape (..., n).
        k: Answers drawn, from 1 to n.

    Returns:
        The expectation for each leading index, shape (...).

    Raises:
        ValueError: If ``k`` is not in 1..n, or a score is not finite.
    """
    values = _finite("scores", scores, "(..., n)", 1)
    size = values.shape[-1]
    drawn = index(k)
    if not 1 <= drawn <= size:
        raise ValueError(
            f"best@k needs 1 <= k <= n; got k={drawn} with n={size} scores; sample more answers or lower k"
        )
    return np.asarray(np.sort(values, axis=-1)[..., drawn - 1 :] @ _weights_of_maximum(size, drawn))


def best_at_k_of_sets(scores: ArrayLike, rollouts: int) -> Floats:
    """The expected best score of ``rollouts`` whole rollouts, each bringing all of its ``m`` answers.

    The answers of one rollout were written knowing each other, so they are not independent draws: :func:`best_at_k`
    over the pooled answers mixes rollouts in a way that no sampling does. Here the unit drawn is the rollout.

    Args:
        scores: Scalar scores, shape (..., R, m).
        rollouts: Rollouts drawn without replacement, from 1 to R; they bring ``rollouts * m`` answers.

    Returns:
        The expectation for each leading index, shape (...).

    Raises:
        ValueError: If ``rollouts`` is not in 1..R, a rollout has no answers, or a score is not finite.
    """
    values = _finite("scores", scores, "(..., R, m)", 2)
    if values.shape[-1] == 0:
        raise ValueError(f"scores of shape {values.shape} have rollouts without answers; give each at least one score")
    drawn, size = index(rollouts), values.shape[-2]
    if not 1 <= drawn <= size:
        raise ValueError(
            f"best@k of sets needs 1 <= rollouts <= R; got rollouts={drawn} with R={size}; sample more or ask for fewer"
        )
    return best_at_k(values.max(axis=-1), drawn)


def pass_at_k(scores: ArrayLike, k: int, threshold: float) -> Floats:
    """The chance that at least one of ``k`` answers drawn without replacement scores ``threshold`` or more.

    Args:
        scores: Scalar scores, shape (..., n).
        k: Answers drawn, from 1 to n.
        threshold: The least score that passes, itself included.

    Returns:
        The probability for each leading index, shape (...), in [0, 1].

    Raises:
        ValueError: If ``k`` is not in 1..n, or a score is not finite.
    """
    return best_at_k(_finite("scores", scores, "(..., n)", 1) >= threshold, k)


def _weights_of_maximum(size: int, drawn: int) -> Floats:
    """C(i−1, k−1) / C(n, k) for i = k..n, shape (n − k + 1,): how often the i-th score is a subset's best."""
    position = np.arange(size - 1, drawn - 1, -1, dtype=np.float64)
    ratios = (position - drawn + 1) / position
    return np.asarray(np.concatenate(([drawn / size], drawn / size * np.cumprod(ratios)))[::-1])


# ------------------------------------------------------------------------------------------ utility


def set_utility(rewards: ArrayLike, weights: ArrayLike, *, active: ArrayLike | None = None) -> Floats:
    """The mean over the given weights of the best answer under each: ``1/K · Σ_k max_n w_k · r_n``.

    With weights drawn uniformly on the simplex this estimates the expected-utility metric of multi-objective RL
    (Zintgraf et al. 2015); for up to five objectives :func:`exact_expected_utility` gives it without sampling.

    Args:
        rewards: Reward vectors of each set, shape (..., n, d).
        weights: Weight vectors on the simplex, shape (K, d).
        active: Which objectives count, shape (d,) or (..., d); all by default. The others are left out and the weights
            rescaled to sum to one over those that stay, which turns uniform weights into uniform weights.

    Returns:
        The utility of each set, shape (...).

    Raises:
        ValueError: If shapes disagree, a set is empty, a value is not finite, a weight vector is off the simplex, or
            one has no weight on any active objective.
    """
    vectors = _finite("rewards", rewards, "(..., n, d)", 2)
    directions = _simplex_weights(weights, vectors.shape[-1])
    if vectors.shape[-2] == 0:
        raise ValueError(f"rewards of shape {vectors.shape} hold empty sets; the utility of no answer is not defined")
    mask = _active(active, vectors.shape[-1])
    vectors = vectors * mask[..., None, :]
    kept_weight = mask @ directions.T
    if not (kept_weight > 0).all():
        row = int(np.argwhere(kept_weight <= 0)[0, -1])
        raise ValueError(
            f"weights[{row}] = {directions[row]} has no weight on an active objective; leave it out, or draw "
            "weights over the active objectives only"
        )
    chunk = max(1, _ELEMENTS_PER_CHUNK * vectors.shape[-1] // max(1, vectors.size))
    total: Floats = np.zeros(vectors.shape[:-2])
    for start in range(0, len(directions), chunk):
        part = slice(start, start + chunk)
        best = (vectors @ directions[part].T).max(axis=-2)
        total = total + (best / kept_weight[..., part]).sum(axis=-1)
    return np.asarray(total / len(directions))


def regret(front: ArrayLike, reached: ArrayLike, weights: ArrayLike, *, active: ArrayLike | None = None) -> Floats:
    """The utility of the exact front less the utility of what was reached, under the same weights.

    Args:
        front: The exact front of the instance, shape (f, d).
        reached: Reward vectors reached, shape (..., n, d).
        weights: Weight vectors on the simplex, shape (K, d).
        active: Which objectives count, as in :func:`set_utility`.

    Returns:
        The regret of each set, shape (...); zero or more when ``front`` is exact.

    Raises:
        ValueError: As :func:`set_utility`.
    """
    return np.asarray(set_utility(front, weights, active=active) - set_utility(reached, weights, active=active))


def exact_expected_utility(points: ArrayLike, active: ArrayLike | None = None) -> float:
    """``E[max_s w · r_s]`` over weights uniform on the simplex, by integration instead of sampling.

    Over the simplex the best utility is a convex, piecewise linear function of the weights, so for any T above it
    ``E = T − (d−1)! · vol{(w, t): max_s w · r_s ≤ t ≤ T}``, the volume of a polytope with one face for each point that
    is best somewhere. Qhull finds its vertices by half-space intersection and its volume by a convex hull.

    Dominated and repeated points are dropped, and so is every objective in which all that remain agree: it adds its
    constant c/d, and the others, whose weights are uniform on what is left, count for (d−1)/d. Two points
    have a closed form. The result agrees with exact rational arithmetic to about 1e-14 of the range of the values, with
    one exception: crowds of almost equal points, for instance fractions with rounding noise in five objectives, can
    make Qhull give up. It is then asked again with values rounded to 1e-9 of their range, and where even that fails,
    with joggled input, which costs up to a few 1e-6 of the range.

    Args:
        points: Reward vectors of one set, shape (n, d).
        active: Which objectives count, shape (d,); all by default. The weights are then uniform over those.

    Returns:
        The expected utility.

    Raises:
        ValueError: If there are no points, no active objective or more than five, shapes disagree, or a value is not
            finite.
    """
    vectors = _columns("points", points, active)
    objectives: int = vectors.shape[1]
    if len(vectors) == 0:
        raise ValueError("points are empty; the utility of no answer is not defined")
    if objectives > MAX_EXACT_OBJECTIVES:
        raise ValueError(
            f"exact_expected_utility integrates over at most {MAX_EXACT_OBJECTIVES} active objectives; "
            f"got {objectives}; use set_utility with sampled weights"
        )
    lowest = float(vectors.min())
    span = float(vectors.max()) - lowest
    if span == 0.0:
        return lowest
    unit = (vectors - lowest) / span
    unit = unit[_undominated(unit)]
    differs = np.ptp(unit, axis=0) > 0.0
    constants = float(unit[0, ~differs].sum()) / objectives
    share = float(differs.mean())
    return lowest + span * (constants + share * _mean_of_best(unit[:, differs]))


def _mean_of_best(points: Floats) -> float:
    """E[max] for mutually non-dominated points (n, d) in [0, 1]; a single point has no objective left that differs."""
    if len(points) == 1:
        return 0.0
    if len(points) == 2:
        return float(points[1].mean()) + _mean_of_positive_part(points[0] - points[1])
    return _mean_of_best_by_volume(points)


def _mean_of_positive_part(contrast: Floats) -> float:
    """E[max(0, w · c)] over weights uniform on the simplex, for a contrast c (d,).

    By the Hermite–Genocchi formula it is A(c)/d, with A(c) the divided difference of x ↦ max(0, x)^d at the entries of
    c. With a the highest entry and b the lowest, and a > 0 > b, it obeys

        A(c) = (a · A(c without b) − b · A(c without a)) / (a − b),

    a recurrence like de Boor's for B-splines: no term is negative, so nothing cancels and ties do no harm. Once b ≥ 0
    it is Σc, and once a ≤ 0 it is zero.
    """
    ascending = np.sort(contrast)
    size = len(ascending)
    table = np.zeros((size, size))
    for width in range(size):
        for low in range(size - width):
            high = low + width
            a, b = ascending[high], ascending[low]
            if b >= 0:
                table[low, high] = ascending[low : high + 1].sum()
            elif a > 0:
                table[low, high] = (a * table[low + 1, high] - b * table[low, high - 1]) / (a - b)
    return float(table[0, -1]) / size


def _mean_of_best_by_volume(points: Floats) -> float:
    """E[max] for points (n, d) in [0, 1], as exactly as Qhull manages."""
    # Not at the top: most users of this module never integrate, and importing scipy.spatial is slow.
    from scipy.spatial import QhullError

    try:
        return _mean_under_lid(points)
    except QhullError:
        # Rounding noise splits a corner that many faces share into a crowd of near ones: rounding joins it again.
        rounded = np.round(points, 9)
        rounded = rounded[_undominated(rounded)]
    try:
        return _mean_under_lid(rounded)
    except QhullError:
        return _mean_under_lid(rounded, qhull_options="QJ")


def _mean_under_lid(points: Floats, qhull_options: str | None = None) -> float:
    """E[max] for points (n, d) in [0, 1] from the volume between their upper envelope and the lid t = 2."""
    from scipy.spatial import ConvexHull, HalfspaceIntersection

    lid = 2.0
    count, d = points.shape
    # Rows (normal, offset) mean normal · (w_1 … w_{d−1}, t) + offset ≤ 0, with w_d = 1 − Σ w_i put in.
    under_envelope = np.column_stack((points[:, :-1] - points[:, -1:], np.full(count, -1.0), points[:, -1]))
    weight_not_negative = np.column_stack((-np.eye(d - 1), np.zeros((d - 1, 2))))
    last_weight_not_negative = np.r_[np.ones(d - 1), 0.0, -1.0]
    below_lid = np.r_[np.zeros(d - 1), 1.0, -lid]
    faces = np.vstack((under_envelope, weight_not_negative, last_weight_not_negative, below_lid))
    inside = np.r_[np.full(d - 1, 1.0 / d), 1.5]
    corners = HalfspaceIntersection(faces, inside, qhull_options=qhull_options).intersections
    volume = float(ConvexHull(corners, qhull_options=qhull_options).volume)
    return lid - factorial(d - 1) * volume


# ------------------------------------------------------------------------------------------ fronts, diversity


def non_dominated(points: ArrayLike) -> NDArray[np.bool_]:
    """Which points no other point beats: none is at least as high everywhere and higher somewhere.

    Args:
        points: Reward vectors, shape (n, d); n may be 0.

    Returns:
        Mask of shape (n,). Of equal points only the first is kept.

    Raises:
        ValueError: If ``points`` is not two-dimensional, has no columns, or holds a value that is not finite.
    """
    return _undominated(_columns("points", points, None))


def coverage(
    front: ArrayLike, reached: ArrayLike, tolerance: float = 1e-6, *, active: ArrayLike | None = None
) -> float:
    """The share of the front's vectors that are attained: some reached vector is as high in every objective.

    Args:
        front: Vectors of the exact front, shape (f, d).
        reached: Reward vectors reached, shape (n, d); n may be 0.
        tolerance: How far below the front's value still counts as attained.
        active: Which objectives count, shape (d,); all by default.

    Returns:
        A share in [0, 1].

    Raises:
        ValueError: If the front is empty, shapes disagree, or a value is not finite.
    """
    targets, vectors = _columns("front", front, active), _columns("reached", reached, active)
    if len(targets) == 0:
        raise ValueError("front is empty; its coverage is not defined")
    if targets.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"front has {targets.shape[1]} objectives and reached {vectors.shape[1]}; they must be the same"
        )
    return float(np.mean([bool((vectors >= target - tolerance).all(axis=1).any()) for target in targets]))


def diversity(rewards: ArrayLike, *, active: ArrayLike | None = None) -> Floats:
    """The mean L1 distance between the reward vectors of a set, over its n(n−1)/2 pairs.

    The measure of the paper's diversity column (arXiv 2605.22817). Each objective is sorted, which gives all pairs at
    the cost of a sort.

    Args:
        rewards: Reward vectors of each set, shape (..., n, d).
        active: Which objectives count, shape (d,) or (..., d); all by default.

    Returns:
        The diversity of each set, shape (...), from 0 to the number of active objectives when rewards are in [0, 1]; 0
        for sets of fewer than two.

    Raises:
        ValueError: If shapes disagree or a value is not finite.
    """
    vectors = _finite("rewards", rewards, "(..., n, d)", 2)
    mask = _active(active, vectors.shape[-1])
    size = vectors.shape[-2]
    if size < 2:
        return np.zeros(np.broadcast_shapes(vectors.shape[:-2], mask.shape[:-1]))
    ascending = np.sort(vectors, axis=-2)
    # Measured from the lowest, so that equal rewards give exactly zero.
    ascending = ascending - ascending[..., :1, :]
    times_higher_less_lower = 2.0 * np.arange(size) - (size - 1)
    gaps = times_higher_less_lower @ ascending
    return np.asarray((gaps * mask).sum(axis=-1) / (size * (size - 1) / 2))


def _undominated(points: Floats) -> NDArray[np.bool_]:
    """Mask (n,) of the points that no point kept reaches in every objective.

    In descending lexicographic order nothing is beaten by what follows it, and the sort is stable, so one pass is
    enough and the first of equal points stays.
    """
    kept = np.zeros(len(points), dtype=np.bool_)
    front = np.empty_like(points)
    size = 0
    for position in np.lexsort(-points.T[::-1]):
        if not (front[:size] >= points[position]).all(axis=1).any():
            kept[position] = True
            front[size] = points[position]
            size += 1
    return kept


# ------------------------------------------------------------------------------------------ intervals


def bootstrap_mean(values: ArrayLike, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The mean of one value per prompt with its percentile bootstrap interval (Efron 1979), prompts being resampled.

    The interval speaks of other prompts for the same trained model; it says nothing of other training seeds.

    Args:
        values: One number per prompt, shape (N,).
        resamples: Bootstrap samples drawn.
        confidence: The share of them that lies inside the interval, in (0, 1).
        seed: Seed of the resampling; the same seed gives the same interval.

    Returns:
        The mean of ``values`` and the bounds of the interval.

    Raises:
        ValueError: If ``values`` is empty, not one-dimensional or not finite, or a setting is out of range.
    """
    sample = _per_prompt("values", values)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1; got {resamples}; 10000 gives stable 95 % bounds")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie strictly between 0 and 1; got {confidence}; use 0.95 for 95 %")
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    chunk = max(1, _ELEMENTS_PER_CHUNK // 4 // len(sample))
    for start in range(0, resamples, chunk):
        part = means[start : start + chunk]
        part[:] = sample[rng.integers(0, len(sample), (len(part), len(sample)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(sample.mean()), float(low), float(high))


def paired_bootstrap(
    before: ArrayLike, after: ArrayLike, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """The mean of ``after − before`` over prompts with its percentile bootstrap interval.

    Both methods are measured on the same prompts, and a prompt is resampled with both its values, so that how hard a
    prompt is cancels. A difference is credible when zero lies outside the interval.

    Args:
        before: One number per prompt, shape (N,).
        after: The same prompts in the same order, shape (N,).
        resamples: Bootstrap samples drawn.
        confidence: The share of them that lies inside the interval, in (0, 1).
        seed: Seed of the resampling; the same seed gives the same interval.

    Returns:
        The mean difference and the bounds of the interval.

    Raises:
        ValueError: If the lengths differ, and as :func:`bootstrap_mean`.
    """
    first, second = _per_prompt("before", before), _per_prompt("after", after)
    if len(first) != len(second):
        raise ValueError(
            f"before has {len(first)} prompts and after {len(second)}; pair the same prompts in the same order"
        )
    return bootstrap_mean(second - first, resamples=resamples, confidence=confidence, seed=seed)


# ------------------------------------------------------------------------------------------ checks


def _finite(name: str, values: ArrayLike, axes: str, least_axes: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < least_axes:
        raise ValueError(f"{name} must have shape {axes}; got shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name}{list(where)} is {array[where]}; leave invalid answers out before measuring")
    return array


def _per_prompt(name: str, values: ArrayLike) -> Floats:
    array = _finite(name, values, "(N,)", 1)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} must hold one number per prompt, shape (N,) with N >= 1; got shape {array.shape}")
    return array


def _active(active: ArrayLike | None, objectives: int) -> NDArray[np.bool_]:
    """The mask (..., d) of objectives that count, with at least one in each row."""
    if active is None:
        return np.ones(objectives, dtype=np.bool_)
    mask = np.asarray(active)
    if mask.dtype != np.bool_:
        raise ValueError(f"active must be booleans, one per objective; got dtype {mask.dtype}")
    if mask.ndim == 0 or mask.shape[-1] != objectives:
        raise ValueError(f"active needs {objectives} values, one per objective; got shape {mask.shape}")
    if not mask.any(axis=-1).all():
        raise ValueError("active leaves no objective; mark at least one as active")
    return mask


def _columns(name: str, points: ArrayLike, active: ArrayLike | None) -> Floats:
    """The active columns of one list of reward vectors, shape (n, active d)."""
    vectors = _finite(name, points, "(n, d)", 2)
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise ValueError(f"{name} must have shape (n, d) with d >= 1; got shape {vectors.shape}")
    mask = _active(active, vectors.shape[1])
    if mask.ndim != 1:
        raise ValueError(f"active must have shape (d,) here; got shape {mask.shape}; call once per prompt")
    return vectors[:, mask]


def _simplex_weights(weights: ArrayLike, objectives: int) -> Floats:
    directions = _finite("weights", weights, "(K, d)", 2)
    if directions.ndim != 2 or directions.shape[1] != objectives or len(directions) == 0:
        raise ValueError(
            f"weights must have shape (K, {objectives}), one column per objective and K >= 1; got {directions.shape}"
        )
    off = (directions < 0).any(axis=1) | (np.abs(directions.sum(axis=1) - 1.0) > 1e-5)
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"weights[{row}] = {directions[row]} is not on the simplex; give weights of 0 or more that sum to 1"
        )
    return directions
