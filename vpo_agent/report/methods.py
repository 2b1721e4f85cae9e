"""A method: one or more runs that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.pareto.pool import Floats
from vpo_agent.pareto.summary import Summary

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """What a figure draws as one curve and a table shows as one column."""

    label: str
    summaries: tuple[Summary, ...]
    """One for each of the S runs."""
    seeds: tuple[int | None, ...] = (None,)
    """Training seed of each run, (S,); ``None`` if unknown."""
    rows: tuple[tuple[Row, ...], ...] = ()
    """Rows of ``metrics.jsonl`` of each run, (S,); empty if there are none."""

    def values(self, name: str) -> Floats:
        """One measure, per seed and prompt, (S, N)."""
        return np.stack([summary.measures[name].values for summary in self.summaries])

    @property
    def ks(self) -> NDArray[np.int_]:
        """Numbers of answers on the curves, (c,)."""
        return self.summaries[0].ks

    @property
    def best(self) -> Floats:
        """best@k, (S, N, c)."""
        return np.stack([summary.best for summary in self.summaries])

    @property
    def passed(self) -> Floats | None:
        """pass@k, (S, N, c)."""
        found = [summary.passed for summary in self.summaries if summary.passed is not None]
        return np.stack(found) if len(found) == len(self.summaries) else None

    @property
    def best_of_sets(self) -> Floats:
        """best@k with rollouts drawn whole, (S, N, s)."""
        return np.stack([summary.best_of_sets for summary in self.summaries])


def units(methods: Sequence[Method], name: str) -> list[str]:
    """Units of a measure, such as ``"rollout of 3 answers"``; methods may differ."""
    return list(dict.fromkeys(one.measures[name].unit for method in methods for one in method.summaries))


def common_names(methods: Sequence[Method]) -> list[str]:
    """The measures that every run of every method has, in the order of tables."""
    first, *others = [summary.measures for method in methods for summary in method.summaries]
    return [name for name in first if all(name in other for other in others)]
