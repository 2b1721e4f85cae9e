"""The exact front: maximal sets of checks that do not contradict each other, each with a text that passes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.personas.checks import Check, exclude

Chosen = frozenset[int]
"""A set of checks, by their positions."""


def contradictions(checks: Sequence[Check]) -> list[Chosen]:
    """Return for each check the others that contradict it."""
    return [frozenset(j for j, other in enumerate(checks) if exclude(check, other)) for check in checks]


def maximal_sets(barred: Sequence[Chosen]) -> Iterator[Chosen]:
    """Yield every set of checks without a contradiction to which no other can be added (Bron and Kerbosch, 1973).

    Args:
        barred: For each check the others that contradict it.
    """
    everything = frozenset(range(len(barred)))
    beside = [everything - others - {i} for i, others in enumerate(barred)]

    def grow(chosen: Chosen, open_: Chosen, closed: Chosen) -> Iterator[Chosen]:
        if not open_ and not closed:
            yield chosen
            return
        pivot = max(open_ | closed, key=lambda i: len(open_ & beside[i]))
        for i in sorted(open_ - beside[pivot]):
            yield from grow(chosen | {i}, open_ & beside[i], closed & beside[i])
            open_, closed = open_ - {i}, closed | {i}

    yield from grow(frozenset(), everything, frozenset())


def shares(personas: Sequence[Sequence[Check]], sets: Sequence[Chosen]) -> NDArray[np.float64]:
    """Return the share of each persona's checks that each set holds, shape (n, K)."""
    sizes = [len(checks) for checks in personas]
    ends = np.cumsum(sizes)
    owned = [range(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True)]
    return np.array([[len(chosen.intersection(own)) / len(own) for own in owned] for chosen in sets])


def best_sets_of_checks(personas: Sequence[Sequence[Check]]) -> list[Chosen]:
    """Return maximal sets of checks without contradictions, one for each point of the front of the shares."""
    sets = list(maximal_sets(contradictions([check for checks in personas for check in checks])))
    return [chosen for chosen, kept in zip(sets, non_dominated(shares(personas, sets)), strict=True) if kept]
