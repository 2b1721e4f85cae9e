"""Harbor's job folders: trials with named rewards, measured task by task as sets of answers.

A trial is a folder with a ``result.json`` that names its task and agent. Its rewards are the flat map of
``verifier/reward.json``, or the one number of ``reward.txt``. A trial that has no reward, or lacks one that another
trial of its task has, is counted and left out: nothing stands for a reward that was not given.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vpo_agent.measure.intervals import over_prompts
from vpo_agent.measure.measures import SHOWN_K, report_weights
from vpo_agent.measure.metrics import best_at_k, coverage, mean_ranked
from vpo_agent.measure.pool import Floats
from vpo_agent.pages.page import markdown_table
from vpo_agent.report.tables import interval, number
from vpo_envs.common.wording import counted
from vpo_envs.pareto import BestSets, best_sets, non_dominated


class Trial(NamedTuple):
    """One attempt of an agent at a task."""

    task: str
    agent: str
    rewards: Mapping[str, float]
    """Finite numbers by name; empty if the trial has none."""
    failure: str
    """The type of its exception, empty without one."""

    def lacks(self, names: Set[str]) -> Set[str]:
        """Return which of its task's rewards are missing; it is measured if none is."""
        return names - self.rewards.keys() if self.rewards else {"any reward"}


def read_trials(folder: Path) -> list[Trial]:
    """Return the trials in a folder of jobs, at any depth.

    Raises:
        ValueError: There are none.
    """
    found = [trial for path in sorted(folder.rglob("result.json")) if (trial := _trial(path)) is not None]
    if not found:
        raise ValueError(f"{str(folder)!r} holds no trials of Harbor: give a folder of jobs, such as jobs/")
    return found


def _trial(path: Path) -> Trial | None:
    """Return the trial of a result file; ``None`` for one that is not of a trial, such as that of a whole job."""
    said = _object(path)
    if not isinstance(said.get("task_name"), str) or "trial_name" not in said:
        return None
    agent = _part(said, "agent_info")
    model = _part(agent, "model_info").get("name")
    rewards = _object(path.parent / "verifier" / "reward.json") or _part(_part(said, "verifier_result"), "rewards")
    if not rewards:
        with suppress(OSError, ValueError):
            rewards = {"reward": float((path.parent / "verifier" / "reward.txt").read_text(encoding="utf-8"))}
    known = {name: float(value) for name, value in rewards.items() if isinstance(value, int | float)}
    return Trial(
        said["task_name"],
        " ".join(str(one) for one in (agent.get("name"), model) if one) or "unknown agent",
        {name: value for name, value in known.items() if math.isfinite(value)},
        str(_part(said, "exception_info").get("exception_type", "")),
    )


def _object(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        said = json.loads(path.read_text(encoding="utf-8"))
        return said if isinstance(said, dict) else {}
    return {}


def _part(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = said.get(name)
    return part if isinstance(part, dict) else {}


def harbor_report(trials: Sequence[Trial]) -> str:
    """Return what the trials of each agent are worth as sets, in Markdown."""
    names: dict[str, set[str]] = defaultdict(set)
    for trial in trials:
        names[trial.task] |= trial.rewards.keys()
    vectors: dict[str, dict[str, Floats]] = defaultdict(dict)
    for agent in sorted({trial.agent for trial in trials}):
        for task, keys in names.items():
            rows = [
                [trial.rewards[key] for key in sorted(keys)]
                for trial in trials
                if (trial.task, trial.agent) == (task, agent) and not trial.lacks(keys)
            ]
            if rows:
                vectors[agent][task] = np.array(rows)
    fronts = {task: _front([of[task] for of in vectors.values() if task in of]) for task in names}
    parts = [*_warning(trials, names), f"{counted(len(trials), 'trial')} of {counted(len(names), 'task')}."]
    for agent in sorted({trial.agent for trial in trials}):
        mine = [trial for trial in trials if trial.agent == agent]
        parts += [f"## {agent}", " ".join(_left_out(mine, names)) or "Every trial has every reward of its task."]
        if agent in vectors:
            parts.append(_table(vectors[agent], fronts))
    values = np.concatenate([front.ravel() for front in fronts.values()] or [np.zeros(0)])
    if len(values) and (values.min() < 0 or values.max() > 1):
        low, high = values.min(), values.max()
        parts.append(f"Rewards reach from {low:g} to {high:g}: utilities weigh them as they are, without scaling.")
    return "\n\n".join(parts)


def _front(sets: Sequence[Floats]) -> Floats:
    points = np.concatenate(sets) if sets else np.zeros((0, 0))
    return points[non_dominated(points)] if len(points) else points


def _warning(trials: Sequence[Trial], names: Mapping[str, set[str]]) -> Iterator[str]:
    """Warn if more than half of the trials are not measured."""
    lacking = [trial.lacks(names[trial.task]) for trial in trials]
    left = sum(map(bool, lacking))
    if 2 * left > len(trials):
        causes = Counter(name for one in lacking for name in one).most_common()
        why = ", ".join(f"{count} without {name}" for name, count in causes)
        shares = f"{left} of {counted(len(trials), 'trial')}"
        yield f"Warning: {shares} are left out ({why}): the numbers speak of the others."


def _left_out(trials: Sequence[Trial], names: Mapping[str, set[str]]) -> Iterator[str]:
    """Say which trials are not measured."""
    without = Counter(trial.failure or "no exception" for trial in trials if not trial.rewards)
    if without:
        why = ", ".join(f"{kind} {count}" for kind, count in without.most_common())
        yield f"Left out: {counted(without.total(), 'trial')} without a reward ({why})."
    missing = [trial.lacks(names[trial.task]) for trial in trials if trial.rewards]
    lacking = Counter(name for one in missing for name in one)
    if lacking:
        which = ", ".join(f"{name} {count}" for name, count in lacking.most_common())
        incomplete = counted(sum(map(bool, missing)), "trial")
        yield f"Left out because a reward of their task is missing: {incomplete} ({which})."
    cut = sum(bool(trial.failure and trial.rewards) for trial in trials)
    if cut:
        yield f"Measured although they ended with an exception: {counted(cut, 'trial')}."


def _table(vectors: Mapping[str, Floats], fronts: Mapping[str, Floats]) -> str:
    """The measures of an agent over its tasks."""
    tasks = list(vectors)
    ranked = {
        task: mean_ranked(report_weights(np.ones(rows.shape[1], dtype=bool)) @ rows.T) for task, rows in vectors.items()
    }
    rows: list[list[str]] = []

    def add(name: str, values: Sequence[float], meaning: str) -> None:
        band = over_prompts(values)
        shown = interval(band.low, band.high) if len(values) > 1 else ""
        rows.append([name, str(len(values)), number(band.mean), shown, meaning])

    for k in SHOWN_K:
        if enough := [float(best_at_k(ranked[task], k)) for task in tasks if len(vectors[task]) >= k]:
            add(f"utility@{k}", enough, f"best of {counted(k, 'trial')} under an unknown weighting of the rewards")
    add("trials", [len(vectors[task]) for task in tasks], "trials of a task that have all of its rewards")
    sizes = [int(non_dominated(vectors[task]).sum()) for task in tasks]
    add("front", sizes, "reward vectors among these trials that no other beats")
    covered = [coverage(fronts[task], vectors[task]) for task in tasks]
    add("coverage", covered, "share of the front of all agents' trials that these attain")
    best = BestSets(*np.mean([best_sets(vectors[task]) for task in tasks], axis=0).tolist())
    worth = (
        f"Worth of a set (best three trials / best one): {best.set_worth:.2f}; of the vector (best three / best three "
        f"by the mean reward): {best.vector_worth:.2f}."
    )
    return markdown_table(["measure", "tasks", "mean", "95 % interval", "meaning"], rows, "lrrrl") + f"\n\n{worth}"
