"""Confidence intervals: over prompts by a bootstrap, over training seeds by Student's t.

An interval over prompts says how a trained model would do on other prompts; one over seeds says how the method would
do if it were trained again. Neither contains the other. In a table with c columns each column is treated alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vpo_agent.measure.pool import Floats


class Band(NamedTuple):
    """Means and the bounds of their intervals, each a number or shape (c,)."""

    mean: Any
    low: Any
    high: Any

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers or lists by name."""
        return {name: np.asarray(value).tolist() for name, value in self._asdict().items()}


def over_prompts(values: ArrayLike, *, confidence: float = 0.95, resamples: int = 4000, seed: int = 0) -> Band:
    """Return means over prompts, (N,) or (N, c), with percentile bootstrap intervals (Efron 1979).

    Every column is resampled with the same prompts. For a paired difference between two methods, pass the difference
    per prompt: a prompt is then resampled with both its values, and how hard it is cancels out.

    Raises:
        ValueError: Another shape, no prompts, or a value that is not finite.
    """
    rows = _rows(values, "prompt")
    count = len(rows)
    # How often each prompt is drawn decides the mean of a resample.
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    tail = (1 - confidence) / 2
    mean = rows.mean(axis=0)
    low, high = np.quantile(drawn @ rows / count, [tail, 1 - tail], axis=0)
    # Sums of equal values, in another order, may round to the other side of their mean.
    return Band(mean, np.minimum(low, mean), np.maximum(high, mean))


def over_seeds(values: ArrayLike, *, confidence: float = 0.95) -> Band | None:
    """Return means over training seeds, (S,) or (S, c), with Student's t intervals of S − 1 degrees of freedom.

    A row is already a mean over prompts. A bootstrap over the handful of seeds that a study has would be far too
    narrow: over three seeds it covers the true mean in about three cases of four.

    Returns:
        ``None`` for a single seed, whose spread is unknown.

    Raises:
        ValueError: Another shape, no seeds, or a value that is not finite.
    """
    rows = _rows(values, "seed")
    if len(rows) < 2:
        return None
    return _t_band(rows.mean(axis=0), rows.var(axis=0, ddof=1) / len(rows), len(rows) - 1.0, confidence)


def difference_over_seeds(baseline: ArrayLike, other: ArrayLike, *, confidence: float = 0.95) -> Band | None:
    """Return differences of means between two methods, with Welch's t interval over training seeds.

    Welch's t allows the two methods different spreads and does not pair seeds, which share nothing but a number.
    Methods have a row per seed, (S,) or (S, c) and (T,) or (T, c).

    Returns:
        Other minus baseline; ``None`` if either has a single seed.

    Raises:
        ValueError: Another shape, no seeds, or a value that is not finite.
    """
    first, second = _rows(baseline, "seed"), _rows(other, "seed")
    if min(len(first), len(second)) < 2:
        return None
    parts = [rows.var(axis=0, ddof=1) / len(rows) for rows in (first, second)]
    total = parts[0] + parts[1]
    shares = parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1)
    # Without any spread the interval is a point, whatever the degrees of freedom.
    freedom = np.divide(total**2, shares, out=np.ones_like(total), where=shares > 0)
    return _t_band(second.mean(axis=0) - first.mean(axis=0), total, freedom, confidence)


def _rows(values: ArrayLike, unit: str) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim not in (1, 2) or len(rows) == 0 or not np.isfinite(rows).all():
        raise ValueError(f"values must be finite, with one row per {unit}, shape (n,) or (n, c); got {rows.shape}")
    return rows


def _t_band(mean: Floats, variance: Floats, freedom: Floats | float, confidence: float) -> Band:
    # Not scipy.stats, which takes a second to import.
    from scipy.special import stdtrit

    half = np.sqrt(variance) * stdtrit(freedom, (1 + confidence) / 2)
    return Band(mean, mean - half, mean + half)
