"""The runs of a study of several tasks: what each arm reached on each task, seed by seed, and pooled over tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from vpo_agent.measure.intervals import Band, difference_over_seeds, over_seeds
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import Summary
from vpo_agent.report.methods import Method
from vpo_agent.report.runs import Run, group, read_run, read_runs
from vpo_agent.report.tables import interval, number
from vpo_envs.wording import counted

BySeed = Mapping[int, float]
"""A mean over prompts for each training seed."""
T = TypeVar("T")
Kind = Literal["utility", "best"]
CEILINGS: Mapping[Kind, str] = {"utility": "front_utility", "best": "optimum"}


@dataclass(frozen=True)
class TaskRuns:
    """The arms of a study on one task."""

    label: str
    family: str
    """Tasks that are levels of one family count as one where tasks are pooled."""
    level: float | None
    arms: Mapping[str, Method]
    bases: Mapping[str, Method]
    """The model before training, by the number of answers that it writes in a rollout."""

    @property
    def everything(self) -> Mapping[str, Method]:
        """The bases and the arms."""
        return {**self.bases, **self.arms}

    @property
    def pool(self) -> Pool:
        """One of the pools; all are over the same prompts with the same exact fronts."""
        return next(iter(self.arms.values())).summaries[0].pool

    def at_k(self, arm: str, kind: Kind, k: int) -> BySeed:
        """Return utility@k or best@k of an arm or base; empty if there is none, or its pools hold fewer answers."""
        method = self.everything.get(arm)
        if method is None or k > method.summaries[0].k:
            return {}
        return by_seed(method, lambda summary: float(summary.at_k(kind, k).mean()))

    def ceiling(self, kind: Kind) -> BySeed:
        """Return what the exact fronts allow, as if of one seed; empty if they are unknown."""
        value = next(iter(self.arms.values())).summaries[0].ceilings()[CEILINGS[kind]]
        return {} if value is None else {0: value}


def read_task(
    label: str,
    folders: Sequence[Sequence[Path]],
    labels: Sequence[str],
    *,
    family: str | None = None,
    level: float | None = None,
) -> TaskRuns:
    """Read the finished runs of one task.

    Args:
        label: The name of the task.
        folders: For each arm and seed one run's folder, or those of policies that answer together.
        labels: The arm of each.
        family: What the task is a level of; its own label by default.
        level: Its level of difficulty, if it has one.
    """
    # Arms with equal numbers of answers start from the same pool, so one of them is enough.
    before: dict[tuple[str, int | None], Run] = {}
    for members in folders:
        path = members[0] / "pool_before.npz"
        if len(members) == 1 and path.is_file():
            run = read_run(path)
            before.setdefault((f"base, {counted(run.pool.rewards.shape[2], 'answer')} a rollout", run.seed), run)
    bases = sorted(name for name, _ in before)
    runs = [*before.values(), *read_runs(folders)]
    methods = {one.label: one for one in group(runs, [*(name for name, _ in before), *labels], None, None)}
    return TaskRuns(
        label,
        family or label,
        level,
        arms={name: methods[name] for name in dict.fromkeys(labels)},
        bases={name: methods[name] for name in dict.fromkeys(bases)},
    )


def by_seed(method: Method, value: Callable[[Summary], T]) -> dict[int, T]:
    """Return a value of each run, by its training seed."""
    pairs = zip(method.seeds, method.summaries, strict=True)
    return {seed: value(summary) for seed, summary in pairs if seed is not None}


def logarithms(values: BySeed) -> BySeed:
    """Return natural logarithms; empty if a value has none."""
    return {seed: log(value) for seed, value in values.items()} if min(values.values(), default=0) > 0 else {}


def difference(first: BySeed, other: BySeed) -> BySeed:
    """Return the first less the other, for the seeds of both."""
    return {seed: value - other[seed] for seed, value in first.items() if seed in other}


def pooled(tasks: Sequence[TaskRuns], found: Sequence[BySeed]) -> BySeed:
    """Return the mean over families of the means over their tasks of what was found, for the seeds of all tasks."""
    seeds = sorted(set.intersection(*(set(values) for values in found)))
    families = [task.family for task in tasks]
    shares = [1 / families.count(family) / len(set(families)) for family in families]
    return {seed: sum(share * values[seed] for share, values in zip(shares, found, strict=True)) for seed in seeds}


def mean_cell(values: BySeed, *, signed: bool = False) -> str:
    """A mean with its interval over seeds, without one for a single seed; empty if there is no value."""
    if not values:
        return ""
    each = np.array(list(values.values()))
    band = over_seeds(each)
    mean = number(float(each.mean()), signed)
    return mean if band is None else f"{mean} {interval(float(band.low), float(band.high), signed)}"


def ratio(logs: BySeed, baseline: BySeed) -> Band | None:
    """Return the ratio to a baseline from logarithms: geometric means, and Welch's interval over seeds.

    The bounds are NaN for a single seed; ``None`` if there is no value.
    """
    if not logs or not baseline:
        return None
    first, other = (np.array(list(values.values())) for values in (baseline, logs))
    return _exponential(float(other.mean() - first.mean()), difference_over_seeds(first, other))


def factor(logs: BySeed) -> Band | None:
    """Return the geometric mean of factors from their logarithms, with its interval over seeds, as :func:`ratio`."""
    each = np.array(list(logs.values()))
    return _exponential(float(each.mean()), over_seeds(each)) if logs else None


def _exponential(mean: float, band: Band | None) -> Band:
    return Band(exp(mean), *((np.nan, np.nan) if band is None else (exp(float(band.low)), exp(float(band.high)))))


def ratio_cell(band: Band | None) -> str:
    """A ratio with its interval, if it has one; empty if there is none."""
    if band is None:
        return ""
    return f"{band.mean:.2f}" if np.isnan(band.low) else f"{band.mean:.2f} [{band.low:.2f}, {band.high:.2f}]"
