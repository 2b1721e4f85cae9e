"""Weightings of the objectives: drawn, read, rounded, and written into a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from vpo_envs.core import Objective


def condition_prompt(
    prompt: str, weights: NDArray[np.floating], objectives: Sequence[Objective], active: NDArray[np.bool_] | None = None
) -> str:
    """The prompt with a weighting of the objectives written before it.

    Args:
        prompt: The prompt.
        weights: Weights, shape (d,), summing to 1.
        objectives: The d objectives.
        active: Which of them count, shape (d,); all where ``None``. The others are not spoken of.
    """
    lines = [
        f"- {objective.name}: {100 * weight:.4g} % ({objective.description})"
        for i, (objective, weight) in enumerate(zip(objectives, weights, strict=True))
        if active is None or active[i]
    ]
    return "\n".join(["What you write is judged by these goals, with these weights:", *lines, "", prompt])


def draw_weights(rng: np.random.Generator, active: NDArray[np.bool_], alpha: float = 1.0) -> NDArray[np.float64]:
    """A draw from a symmetric Dirichlet distribution over the active objectives, in whole per cent, shape (d,)."""
    weights = np.zeros(len(active))
    weights[active] = rng.dirichlet(np.full(int(active.sum()), alpha))
    return in_whole_percent(weights)


def in_whole_percent(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Weights that sum to 1, shape (d,), rounded to whole per cent that still do."""
    exact = 100 * weights.astype(np.float64)
    percent = np.floor(exact)
    # What rounding down has lost goes to those that lost most.
    lost = np.argsort(percent - exact, kind="stable")[: round(100 - percent.sum())]
    percent[lost] += 1
    return np.asarray(percent / 100)


def read_weights(
    weights: Sequence[float] | NDArray[np.floating], active: NDArray[np.bool_], names: Sequence[str]
) -> NDArray[np.float64]:
    """Given weights as a point of the simplex over the active objectives, shape (d,).

    Raises:
        ValueError: A wrong number of values, one that is below 0 or no number, or nothing above 0 that is active.
    """
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"weights are numbers, one per objective ({', '.join(names)}); got {weights!r}") from None
    if values.shape != (len(names),):
        raise ValueError(f"weights need {len(names)} values, one per objective ({', '.join(names)}); got {values.size}")
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"weights must be finite and not below 0, got {values.tolist()}")
    values = values * active
    if values.sum() <= 0:
        raise ValueError("at least one active objective needs a weight above 0: all are 0")
    return np.asarray(values / values.sum())
