"""Intervals of many numbers at once: over prompts by a bootstrap, over training seeds by Student's t.

The two answer different questions. An interval over prompts says how a trained model would do on other prompts; one
over seeds says how the method would do if it was trained again. Neither contains the other, so they are shown apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
RESAMPLES = 4000


class Band(NamedTuple):
    """Means and the bounds of their intervals, each shape (c,)."""

    mean: Floats
    low: Floats
    high: Floats


def over_prompts(values: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Band:
    """Means over prompts with percentile bootstrap intervals, the same resampled prompts in every column.

    For a paired difference give the difference per prompt.

    Args:
        values: One row per prompt, shape (N, c), finite.
        confidence: The share of resamples inside each interval, in (0, 1).
        resamples: Bootstrap samples drawn.
        seed: The same seed gives the same intervals.

    Raises:
        ValueError: Another shape, no prompts, or a value that is not finite.
    """
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or len(rows) == 0 or not np.isfinite(rows).all():
        raise ValueError(f"values must be finite, with one row per prompt, shape (N, c); got shape {rows.shape}")
    count = len(rows)
    # How often each prompt is drawn decides the mean of a resample.
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn @ rows / count, [tail, 1 - tail], axis=0)
    return Band(rows.mean(axis=0), low, high)


def over_seeds(values: ArrayLike, *, confidence: float = 0.95) -> Band | None:
    """Means over training seeds with Student's t intervals of S − 1 degrees of freedom.

    With the handful of seeds that a study has, a bootstrap over them would be far too narrow: of three seeds it covers
    the true mean in about three cases of four.

    Args:
        values: One row per seed, each already a mean over the same prompts, shape (S, c).
        confidence: How often the interval covers the mean, where seeds vary normally.

    Returns:
        ``None`` for a single seed, of which no spread is known.

    Raises:
        ValueError: Another shape, or no seeds.
    """
    rows = _seeds(values)
    if len(rows) < 2:
        return None
    error = np.sqrt(rows.var(axis=0, ddof=1) / len(rows))
    half = error * _t_quantile(np.full(rows.shape[1], len(rows) - 1.0), confidence)
    mean = rows.mean(axis=0)
    return Band(mean, mean - half, mean + half)


def difference_over_seeds(baseline: ArrayLike, other: ArrayLike, *, confidence: float = 0.95) -> Band | None:
    """Differences of means between two methods, with Welch's t interval over training seeds.

    Welch's takes the two spreads as they are and does not pair the seeds, which have nothing in common but a number.

    Args:
        baseline: One row per seed, shape (S, c).
        other: One row per seed of the other method, shape (T, c).
        confidence: How often the interval covers the difference, where seeds vary normally.

    Returns:
        Other minus baseline; ``None`` where either has a single seed.

    Raises:
        ValueError: Another shape, or no seeds.
    """
    first, second = _seeds(baseline), _seeds(other)
    if min(len(first), len(second)) < 2:
        return None
    parts = [rows.var(axis=0, ddof=1) / len(rows) for rows in (first, second)]
    total = parts[0] + parts[1]
    shares = parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1)
    # Without any spread the interval is a point, whatever the degrees of freedom.
    freedom = np.divide(total**2, shares, out=np.ones_like(total), where=shares > 0)
    half = np.sqrt(total) * _t_quantile(freedom, confidence)
    mean = second.mean(axis=0) - first.mean(axis=0)
    return Band(mean, mean - half, mean + half)


def _seeds(values: ArrayLike) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or len(rows) == 0:
        raise ValueError(f"values must have one row per seed, shape (S, c); got shape {rows.shape}")
    return rows


def _t_quantile(freedom: Floats, confidence: float) -> Floats:
    # Not scipy.stats, which takes a second to import.
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, (1 + confidence) / 2))
