"""A method: one or more runs that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.pareto.pool import Floats
from vpo_agent.pareto.summary import Summary

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """What is drawn as one curve and stands in one column."""

    label: str
    summaries: tuple[Summary, ...]
    """One for each of the S runs."""
    seeds: tuple[int | None, ...]
    """Training seed of each run, (S,); ``None`` where it is not known."""
    rows: tuple[tuple[Row, ...], ...] = field(default=())
    """Rows of ``metrics.jsonl`` of each run, (S,); empty where there are none."""

    def values(self, name: str) -> Floats:
        """One measure, per seed and prompt, (S, N)."""
        return np.stack([summary.values[name] for summary in self.summaries])

    @property
    def names(self) -> list[str]:
        """The measures that every run has."""
        first, *others = self.summaries
        return [name for name in first.values if all(name in other.values for other in others)]

    @property
    def ks(self) -> NDArray[np.int_]:
        """Numbers of answers of the curves, (c,)."""
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
        """best@k with whole rollouts as the unit drawn, (S, N, s)."""
        return np.stack([summary.best_of_sets for summary in self.summaries])
