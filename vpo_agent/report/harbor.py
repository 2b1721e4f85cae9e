"""Harbor's job folders: trials with named rewards, measured task by task as sets of answers.

A trial is a folder with a ``result.json`` that names its task and agent. Its rewards are the flat map of
``verifier/reward.json``, or the one number of ``reward.txt``. A trial that has no reward, or lacks one that another
trial of its task has, is counted and left out: nothing stands for a reward that was not given.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envs_data.parsing import read_object
from vpo_agent.measure.intervals import over_prompts
from vpo_agent.measure.measures import SHOWN_K, report_weights
from vpo_agent.measure.metrics import best_at_k, coverage, mean_ranked
from vpo_agent.measure.pool import Floats
from vpo_agent.pages.page import inert, markdown_table
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
    read = [_trial(path) for path in sorted(folder.rglob("result.json"))]
    trials = [trial for trial in read if trial is not None]
    if not trials:
        raise ValueError(f"{str(folder)!r} holds no trials of Harbor: give a folder of jobs, such as jobs/")
    return trials


def _trial(path: Path) -> Trial | None:
    """Return the trial of a result file; ``None`` for a result of something else, such as a whole job."""
    result = _json_object(path)
    if not isinstance(result.get("task_name"), str) or "trial_name" not in result:
        return None
    agent = _part(result, "agent_info")
    model = _part(agent, "model_info").get("name")
    numbers = {
        _name(name): float(value) for name, value in _rewards(path, result).items() if isinstance(value, int | float)
    }
    return Trial(
        task=result["task_name"],
        agent=_name(" ".join(str(name) for name in (agent.get("name"), model) if name)) or "unknown agent",
        rewards={name: value for name, value in numbers.items() if math.isfinite(value)},
        failure=_name(str(_part(result, "exception_info").get("exception_type", ""))),
    )


def _name(text: str) -> str:
    """Return a name from a file for one line of Markdown."""
    return " ".join(inert(text).split())


def _rewards(path: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rewards of a trial, from the first of three places that has any."""
    verifier = path.parent / "verifier"
    rewards = _json_object(verifier / "reward.json") or _part(_part(result, "verifier_result"), "rewards")
    if not rewards:
        with suppress(OSError, ValueError):
            rewards = {"reward": float((verifier / "reward.txt").read_text(encoding="utf-8"))}
    return rewards


def _json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if there is none."""
    with suppress(ValueError):
        return read_object(path)
    return {}


def _part(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = parent.get(name)
    return part if isinstance(part, dict) else {}


def harbor_report(trials: Sequence[Trial]) -> str:
    """Return measures of the trials of each agent as sets of answers, in Markdown."""
    names: dict[str, set[str]] = defaultdict(set)
    for trial in trials:
        names[trial.task] |= trial.rewards.keys()
    trials_of_agent: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        trials_of_agent[trial.agent].append(trial)
    vectors = {agent: _vectors(members, names) for agent, members in trials_of_agent.items()}
    fronts = {
        task: _front([by_task[task] for _, by_task in sorted(vectors.items()) if task in by_task]) for task in names
    }
    parts = [*_warning(trials, names), f"{counted(len(trials), 'trial')} of {counted(len(names), 'task')}."]
    for agent, members in sorted(trials_of_agent.items()):
        parts += [
            f"## {agent}",
            " ".join(_left_out(members, names)) or "Every trial has every reward of its task.",
        ]
        if vectors[agent]:
            parts.append(_table(vectors[agent], fronts))
    values = np.concatenate([front.ravel() for front in fronts.values()] or [np.zeros(0)])
    if len(values) and (values.min() < 0 or values.max() > 1):
        low, high = values.min(), values.max()
        parts.append(f"Rewards range from {low:g} to {high:g}: utilities weigh them as they are, without scaling.")
    return "\n\n".join(parts)


def _vectors(trials: Sequence[Trial], names: Mapping[str, Set[str]]) -> dict[str, Floats]:
    """Return the reward vectors of an agent's trials by task, (n, d); without tasks that have no complete trial."""
    vectors = {}
    for task, keys in names.items():
        complete = [trial for trial in trials if trial.task == task and not trial.lacks(keys)]
        if complete:
            vectors[task] = np.array([[trial.rewards[key] for key in sorted(keys)] for trial in complete])
    return vectors


def _front(sets: Sequence[Floats]) -> Floats:
    points = np.concatenate(sets) if sets else np.zeros((0, 0))
    return points[non_dominated(points)] if len(points) else points


def _warning(trials: Sequence[Trial], names: Mapping[str, set[str]]) -> Iterator[str]:
    """Warn if more than half of the trials are not measured."""
    lacking = [trial.lacks(names[trial.task]) for trial in trials]
    left = sum(map(bool, lacking))
    if 2 * left > len(trials):
        causes = Counter(name for names_of_trial in lacking for name in names_of_trial).most_common()
        why = ", ".join(f"{count} without {name}" for name, count in causes)
        shares = f"{left} of {counted(len(trials), 'trial')}"
        yield f"Warning: {shares} are left out ({why}): the measures describe the other trials."


def _left_out(trials: Sequence[Trial], names: Mapping[str, set[str]]) -> Iterator[str]:
    """Say which trials are not measured."""
    without = Counter(trial.failure or "no exception" for trial in trials if not trial.rewards)
    if without:
        why = ", ".join(f"{kind} {count}" for kind, count in without.most_common())
        yield f"Left out: {counted(without.total(), 'trial')} without a reward ({why})."
    missing = [trial.lacks(names[trial.task]) for trial in trials if trial.rewards]
    counts = Counter(name for names_of_trial in missing for name in names_of_trial)
    if counts:
        which = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        incomplete = counted(sum(map(bool, missing)), "trial")
        yield f"Left out because a reward of their task is missing: {incomplete} ({which})."
    cut = sum(bool(trial.failure and trial.rewards) for trial in trials)
    if cut:
        yield f"Measured although they ended with an exception: {counted(cut, 'trial')}."


def _table(vectors: Mapping[str, Floats], fronts: Mapping[str, Floats]) -> str:
    """Return the measures of an agent over its tasks."""
    rows = []
    ranked = {task: _ranked(points) for task, points in vectors.items()}
    for k in SHOWN_K:
        utilities = [float(best_at_k(utility, k)) for utility in ranked.values() if len(utility) >= k]
        if utilities:
            meaning = f"best of {counted(k, 'trial')} under an unknown weighting of the rewards"
            rows.append(_row(f"utility@{k}", utilities, meaning))
    counts = [len(points) for points in vectors.values()]
    rows.append(_row("trials", counts, "trials of a task that have all of its rewards"))
    sizes = [int(non_dominated(points).sum()) for points in vectors.values()]
    rows.append(_row("front", sizes, "reward vectors among these trials that no other beats"))
    attained = [coverage(fronts[task], points) for task, points in vectors.items()]
    rows.append(_row("coverage", attained, "share of the front of all agents' trials that these attain"))
    best = BestSets(*np.mean([best_sets(points) for points in vectors.values()], axis=0).tolist())
    gains = (
        f"Gain from a set (best three trials / best trial): {best.set_gain:.2f}; from the vector (best three trials / "
        f"best three by the mean reward): {best.vector_gain:.2f}."
    )
    return markdown_table(["measure", "tasks", "mean", "95 % interval", "meaning"], rows, "lrrrl") + f"\n\n{gains}"


def _ranked(points: Floats) -> Floats:
    """Return the expected utility of each trial of a task, ascending, (n,), from reward vectors (n, d)."""
    return mean_ranked(report_weights(np.ones(points.shape[1], dtype=bool)) @ points.T)


def _row(name: str, values: Sequence[float], meaning: str) -> list[str]:
    """Return the cells of a measure with one value per task."""
    band = over_prompts(values)
    shown = interval(band.low, band.high) if len(values) > 1 else ""
    return [name, str(len(values)), number(band.mean), shown, meaning]
