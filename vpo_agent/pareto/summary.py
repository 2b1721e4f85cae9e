"""A pool measured: its list of measures, and the curves of best@k and pass@k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpo_agent.pareto.measures import SOLVED_WITHIN, Measure, check_k, measures, passes
from vpo_agent.pareto.metrics import best_at_k, best_at_k_of_sets
from vpo_agent.pareto.pool import Floats, Pool

CURVE_POINTS = 24


@dataclass(frozen=True)
class Summary:
    """The measures and curves of one pool."""

    pool: Pool
    k: int
    """Largest k shown."""
    measures: dict[str, Measure]
    """By name, in the order of tables."""
    ks: NDArray[np.int_]
    """Numbers of answers on the curves, (c,)."""
    best: Floats
    """best@k over answers, (N, c)."""
    passed: Floats | None
    """pass@k over answers, (N, c); ``None`` without a threshold."""
    set_ks: NDArray[np.int_]
    """Numbers of answers in whole rollouts, multiples of m, (s,)."""
    best_of_sets: Floats
    """best@k with rollouts drawn whole, (N, s)."""
    optimum: Floats | None
    """The best scalar reward on the exact front, (N,)."""
    threshold: str
    """In words, what passes; empty if nothing is asked."""


def summarise(pool: Pool, k: int | None = None, threshold: float | None = None) -> Summary:
    """Measure a pool; arguments and errors as for :func:`vpo_agent.pareto.measures.measures`."""
    k = check_k(pool, k)
    scalar = pool.scalar()
    n, _, m = scalar.shape
    flat, passed, optimum = scalar.reshape(n, -1), passes(pool, threshold), pool.optimum()
    ks, set_counts = (
        np.unique(np.geomspace(1, most, CURVE_POINTS).round().astype(int)) for most in (k, max(1, k // m))
    )
    words = ""
    if threshold is not None:
        words = f"a scalar reward of {threshold:g} or more"
    elif optimum is not None:
        words = f"a scalar reward within {SOLVED_WITHIN} of the prompt's optimum"
    return Summary(
        pool=pool,
        k=k,
        measures={one.name: one for one in measures(pool, k, threshold)},
        ks=ks,
        best=np.stack([best_at_k(flat, one) for one in ks], axis=1),
        passed=None if passed is None else np.stack([best_at_k(passed, one) for one in ks], axis=1),
        set_ks=set_counts * m,
        best_of_sets=np.stack([best_at_k_of_sets(scalar, count) for count in set_counts], axis=1),
        optimum=optimum,
        threshold=words,
    )
