"""The one confidence interval of every output: paired over prompts, with training seeds as the second level.

*Prompts.* A bootstrap resamples tasks, each with its values under both methods; prompts of equal tasks go together.
*Seeds.* Where a method was trained with several seeds, the spread of their means adds to the interval, by Student's t,
and by Welch's for a difference, since runs of two methods share no more than their tasks. The distances from the mean
to the bounds of both levels add in squares (MOVER, Zou and Donner 2008). A method with one seed has no second level:
its interval says nothing of other training runs.
*Many intervals.* Where there is no difference, one interval of twenty excludes zero all the same. :func:`p_value` is
the level at which an interval touches zero, and :func:`adjusted` corrects the levels of a whole table (Benjamini and
Hochberg 1995).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vpo_agent.measure.pool import Floats

CONFIDENCE = 0.95
"""Confidence of every interval: how often it covers the true mean."""
LEVEL = 0.05
"""A difference is significant if its adjusted p-value is below this."""
RESAMPLES = 4000
SAID = "95 % interval over prompts and training seeds"
"""What outputs call the interval where a method has several seeds."""


class Band(NamedTuple):
    """Means and the bounds of their intervals, each a number or shape (c,)."""

    mean: Any
    low: Any
    high: Any

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers or lists by name."""
        return {name: np.asarray(value).tolist() for name, value in self._asdict().items()}


def over_prompts(values: ArrayLike, tasks: Sequence[Hashable] | None = None) -> Band:
    """Return means over prompts, (N,) or (N, c), with percentile bootstrap intervals (Efron 1979).

    Every column is resampled with the same tasks. For a paired difference between two methods, pass the difference per
    prompt: how hard a prompt is cancels out.

    Args:
        values: One row per prompt.
        tasks: What the task of each prompt is, (N,); equal ones are resampled together. All differ by default.
    """
    rows = _rows(values, "prompt")
    return band_of(rows.mean(axis=0), resampled_means(rows, tasks))


def resampled_means(rows: Floats, tasks: Sequence[Hashable] | None = None, seed: int = 0) -> Floats:
    """Return the means over prompts of resamples of tasks, (RESAMPLES,) or (RESAMPLES, c), from (N,) or (N, c)."""
    sums, sizes = rows, np.ones(len(rows), dtype=np.int64)
    if tasks is not None:
        numbers: dict[Hashable, int] = {}
        number_of_row = [numbers.setdefault(task, len(numbers)) for task in tasks]
        sums, sizes = np.zeros((len(numbers), *rows.shape[1:])), np.bincount(number_of_row)
        np.add.at(sums, number_of_row, rows)
    count = len(sums)
    drawn = _draws(count, seed)
    means: Floats = ((drawn @ sums).T / (drawn @ sizes)).T
    return means


@lru_cache(maxsize=8)
def _draws(count: int, seed: int) -> Floats:
    """Return how often each task is drawn, which decides the mean of a resample, (RESAMPLES, count)."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    return drawn.astype(np.float64)  # in which NumPy multiplies matrices quickly


def band_of(mean: Any, resamples: Floats) -> Band:
    """Return a mean with the percentiles of its resamples."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resamples, [tail, 1 - tail], axis=0)
    # Sums of equal values, in another order, may round to the other side of their mean.
    return Band(mean, np.minimum(low, mean), np.maximum(high, mean))


def interval(values: ArrayLike, tasks: Sequence[Hashable] | None = None, *, baseline: ArrayLike | None = None) -> Band:
    """Return means over the S training seeds of a method and N prompts, with intervals of both levels.

    Args:
        values: Shape (S, N) or (S, N, c).
        tasks: What the task of each prompt is, as for :func:`over_prompts`.
        baseline: Values of another method on the same prompts, (T, N) or (T, N, c): the result is the difference.
    """
    by_prompt, runs = _levels(values, baseline)
    band = over_prompts(by_prompt, tasks)
    if not runs:
        return band
    error, freedom = _error_of_seeds(runs)
    half = error * _students_quantile(freedom, (1 - CONFIDENCE) / 2)
    low = band.mean - np.hypot(band.mean - band.low, half)
    high = band.mean + np.hypot(band.high - band.mean, half)
    return Band(band.mean, low, high)


def p_value(values: ArrayLike, tasks: Sequence[Hashable] | None = None, *, baseline: ArrayLike | None = None) -> float:
    """Return the level at which :func:`interval` of the same arguments touches zero, two-sided, in (0, 1].

    An interval with a confidence of 95 % excludes zero just if this is below .05. It is at least 1 / ``RESAMPLES``,
    below which the bootstrap does not tell levels apart.

    Args:
        values: Shape (S, N).
        tasks: As for :func:`interval`.
        baseline: As for :func:`interval`, (T, N).
    """
    by_prompt, runs = _levels(values, baseline)
    mean = abs(float(by_prompt.mean()))
    sign = 1.0 if by_prompt.mean() > 0 else -1.0
    resamples = np.sort(sign * resampled_means(_rows(by_prompt, "prompt"), tasks))
    error, freedom = _error_of_seeds(runs) if runs else (0.0, 1.0)
    places = np.linspace(0, 1, len(resamples))

    def excludes_zero(tail: float) -> bool:
        below = max(0.0, mean - float(np.interp(tail, places, resamples)))
        spread = float(error * _students_quantile(freedom, tail)) if runs else 0.0
        return bool(np.hypot(below, spread) < mean)

    # The tail that an interval leaves on the side of zero; it is wider the smaller the tail.
    excluding, touching = 0.5, 0.0
    if not excludes_zero(excluding):
        return 1.0
    for _ in range(40):
        tail = (excluding + touching) / 2
        excluding, touching = (tail, touching) if excludes_zero(tail) else (excluding, tail)
    return max(2 * excluding, 1 / RESAMPLES)


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of a table, adjusted by Benjamini and Hochberg (1995), in the same order.

    Of the differences whose adjusted p-value is below q, at most the share q is expected to be false.
    """
    count = len(p_values)
    result = [1.0] * count
    least = 1.0
    for rank, place in sorted(enumerate(sorted(range(count), key=p_values.__getitem__), start=1), reverse=True):
        least = min(least, p_values[place] * count / rank)
        result[place] = least
    return result


def _levels(values: ArrayLike, baseline: ArrayLike | None) -> tuple[Floats, list[Floats]]:
    """Return the values of each prompt, (N,) or (N, c), and the means of each run of the methods with several."""
    methods = [np.asarray(values, dtype=np.float64)]
    by_prompt = methods[0].mean(axis=0)
    if baseline is not None:
        methods.append(np.asarray(baseline, dtype=np.float64))
        by_prompt = by_prompt - methods[1].mean(axis=0)
    # The spread of a method with a single seed is unknown.
    return by_prompt, [_rows(seeds.mean(axis=1), "seed") for seeds in methods if len(seeds) > 1]


def _error_of_seeds(runs: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the standard error of the mean of one method's runs (S, c), or of a difference, and Welch's freedom."""
    parts = [rows.var(axis=0, ddof=1) / len(rows) for rows in runs]
    total = np.sum(parts, axis=0)
    shares = np.sum([part**2 / (len(rows) - 1) for part, rows in zip(parts, runs, strict=True)], axis=0)
    # Without any spread the interval is a point, whatever the degrees of freedom.
    freedom = np.divide(total**2, shares, out=np.ones_like(total), where=shares > 0)
    return np.sqrt(total), freedom


def _students_quantile(freedom: Floats | float, tail: float) -> Floats:
    """Return the quantile of Student's distribution above which ``tail`` lies."""
    # Not scipy.stats, which takes a second to import.
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, 1 - tail))


def _rows(values: ArrayLike, unit: str) -> Floats:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim not in (1, 2) or len(rows) == 0 or not np.isfinite(rows).all():
        raise ValueError(f"values must be finite, with one row per {unit}, shape (n,) or (n, c); got {rows.shape}")
    return rows
