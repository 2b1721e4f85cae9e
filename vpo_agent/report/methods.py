"""A method: one or more runs that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vpo_agent.measure.intervals import Band, interval, p_value
from vpo_agent.measure.pool import Floats
from vpo_agent.measure.summary import Curve, Summary
from vpo_agent.pages.figure_style import Look, looks
from vpo_envs.common.wording import counted

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """What a figure draws as one curve and a table shows as one column."""

    label: str
    summaries: tuple[Summary, ...]
    """Summaries of the S runs."""
    seeds: tuple[int | None, ...] = (None,)
    """Training seed of each run, (S,); ``None`` if unknown."""
    rows: tuple[tuple[Row, ...], ...] = ()
    """Rows of ``metrics.jsonl`` of each run, (S,); empty if there are none."""

    def values(self, name: str) -> Floats:
        """Return one measure, per seed and prompt, (S, N)."""
        return np.stack([summary.measures[name].values for summary in self.summaries])

    def band(self, values: Floats, baseline: Floats | None = None) -> Band:
        """Return the mean and interval of values (S, N) or (S, N, c), minus another method's values if it is given."""
        return interval(values, self.summaries[0].pool.tasks, baseline=baseline)

    def p_value(self, name: str, other: Method) -> float:
        """Return the level at which the interval of the difference to another method in a measure touches zero."""
        return p_value(self.values(name), self.summaries[0].pool.tasks, baseline=other.values(name))

    def curve(self, name: str) -> Curve:
        """Return a curve with the values of every seed, (S, N, c).

        Its ks are the mean over runs, which differ in the tokens of a rollout but not in the numbers of answers.
        """
        curves = [summary.curves[name] for summary in self.summaries]
        return Curve(np.mean([curve.ks for curve in curves], axis=0), np.stack([curve.values for curve in curves]))


def title(methods: Sequence[Method]) -> str:
    """Return environment and preset, model, method and steps, each if it is known and the same for all runs."""
    sources = [summary.pool.source for method in methods for summary in method.summaries]

    def shared(name: str) -> str | None:
        values = {None if source.get(name) is None else str(source[name]) for source in sources}
        return values.pop() if len(values) == 1 else None

    env, model, steps = shared("env"), shared("model"), shared("step")
    presets = {(source.get("env_kwargs") or {}).get("preset") for source in sources}
    preset = presets.pop() if len(presets) == 1 else None
    parts = [
        f"{env} ({preset})" if env and preset else env,
        Path(model).name if model and Path(model).is_absolute() else model,
        shared("method"),
        counted(int(steps), "step") if steps else None,
    ]
    return ", ".join(part for part in parts if part)


def common_names(methods: Sequence[Method], of: Literal["measures", "curves"] = "measures") -> list[str]:
    """Return the names of the measures, in the order of tables, or of the curves that every run of all methods has."""
    runs = [getattr(summary, of) for method in methods for summary in method.summaries]
    return [name for name in runs[0] if all(name in run for run in runs)]


def looks_of(methods: Sequence[Method]) -> list[Look]:
    """Return the looks of methods that are drawn together."""
    sources = [method.summaries[0].pool.source.get("method") for method in methods]
    names = [None if source is None else str(source) for source in sources]
    return looks([method.label for method in methods], names)
