"""Environments inside other evaluators: `vpo_envs.adapters.inspect` and `vpo_envs.adapters.verifiers`.

`vpo_envs.adapters.mo_gymnasium` mends a wrapper. No adapter is imported here, because each needs the package of its
evaluator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vpo_envs.common.wording import counted


def read_weights(
    weights: Sequence[float] | NDArray[np.floating], active: NDArray[np.bool_], names: Sequence[str]
) -> NDArray[np.float64]:
    """Scale given weights to sum to 1 over the active objectives, shape (d,).

    Raises:
        ValueError: There are too few or too many values, one is negative or not finite, or no active one is above 0.
    """
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"weights must be numbers, one per objective ({', '.join(names)}); got {weights!r}") from None
    if values.shape != (len(names),):
        raise ValueError(
            f"weights need {counted(len(names), 'value')}, one per objective ({', '.join(names)}); got {values.size}"
        )
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"weights must be finite and not negative, got {values.tolist()}")
    values = values * active
    if values.sum() <= 0:
        raise ValueError("at least one active objective needs a weight above 0: all are 0")
    return np.asarray(values / values.sum())
