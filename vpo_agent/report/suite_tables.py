"""The tables of a study of several tasks, one function each, as head, body and alignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from vpo_agent.measure.intervals import Band
from vpo_agent.measure.measures import at_tokens
from vpo_agent.measure.pool import Floats
from vpo_agent.measure.preferences import Preferences, answers_under_preferences, fronts_under_preferences
from vpo_agent.measure.worth import worth_of_answers, worth_of_fronts
from vpo_agent.report.learning_curves import over_steps
from vpo_agent.report.suite_runs import (
    BySeed,
    Kind,
    TaskRuns,
    by_seed,
    difference,
    factor,
    logarithms,
    mean_cell,
    pooled,
    ratio,
    ratio_cell,
)
from vpo_envs.pareto import BestSets

Table = tuple[list[str], list[list[str]], str]

KS = (1, 3, 6, 15, 30)
FEW, MANY = 3, 30
"""Answers for a user and for a search: the numbers at which arms are compared."""
VPO, NO_VECTOR = "vpo", "vpo-alpha1000"
QUESTIONS = (
    ("all of VPO", VPO, "grpo"),
    ("the vector and the chain", VPO, "max_at_k"),
    ("the vector, in a chain", VPO, NO_VECTOR),
    ("the vector, without a chain", "set_rl", "max_at_k"),
    ("the chain", VPO, "set_rl"),
    ("credit, prefix", "vpo-credit", VPO),
    ("credit, marginal", "vpo-marginal", VPO),
)
"""What is added, by which arm, to which other; arms by their labels in studies/suite.toml."""


def search_table(tasks: Sequence[TaskRuns], kind: Kind, baseline: str) -> Table:
    """utility@k or best@k of the exact front, the base and every arm, and ratios to the baseline."""
    body = []
    for name, members, arms in _rows(tasks, [[], *([arm] for arm in _labels(tasks, bases=True))]):
        if not arms:
            if top := pooled(members, [task.ceiling(kind) for task in members]):
                body.append([name, "exact front", "", *[""] * (len(KS) - 1), mean_cell(top), "", ""])
            continue
        (arm,) = arms
        found = [pooled(members, [task.at_k(arm, kind, k) for task in members]) for k in KS]
        ratios = [ratio_cell(_over(members, arm, baseline, kind, k)) if arm != baseline else "" for k in (FEW, MANY)]
        body.append([name, arm, str(len(found[0])), *map(mean_cell, found), *ratios])
    head = ["task", "method", "seeds", *(f"{kind}@{k}" for k in KS)]
    return [*head, *(f"{kind}@{k} over {baseline}" for k in (FEW, MANY))], body, "llr" + "r" * (len(KS) + 2)


def diversity_table(tasks: Sequence[TaskRuns]) -> Table:
    """Diversity on validation prompts at the start, in the middle and at the end of training."""
    body = []
    for name, members, (arm,) in _rows(tasks, [[arm] for arm in _labels(tasks)]):
        columns = zip(*(_diversities(task, arm) for task in members), strict=True)
        start, middle, end = (pooled(members, column) for column in columns)
        if end:
            kept = factor(difference(logarithms(end), logarithms(start)))
            if min(end.values()) == 0 < min(start.values()):
                kept = Band(0.0, np.nan, np.nan)
            body.append([name, arm, *map(mean_cell, (start, middle, end)), ratio_cell(kept)])
    return ["task", "method", "start", "middle", "end", "end over start"], body, "llrrrr"


def questions_table(tasks: Sequence[TaskRuns]) -> Table:
    """What the vector, the chain and credit add to utility, at equal answers and at equal tokens, paired by seed."""
    body = []
    for question, first, other in QUESTIONS:
        for name, members, _ in _rows(tasks, [[first, other]]):
            columns = [
                [difference(task.at_k(first, "utility", k), task.at_k(other, "utility", k)) for task in members]
                for k in (FEW, MANY)
            ]
            tokens = [_at_equal_tokens(task, first, other) for task in members]
            columns += [[both[place] for both in tokens] for place in range(2)]
            found = [pooled(members, column) for column in columns]
            cells = [mean_cell(values, signed=True) for values in found]
            body.append([question, f"{first} − {other}", name, str(len(found[0])), *cells])
    head = ["what adds", "difference", "task", "seeds", f"utility@{FEW}", f"utility@{MANY}"]
    return [*head, "tokens of a rollout", "tokens of a pool"], body, "lllrrrrr"


def levels_table(tasks: Sequence[TaskRuns], baseline: str) -> Table:
    """The ratio of VPO to the baseline by level of difficulty, and the factor by which it changes with the level."""
    body = []
    families = dict.fromkeys(task.family for task in tasks if task.level is not None)
    for family in families:
        levels = [task for task in tasks if task.family == family and task.level is not None]
        levels = [one for one in levels if {VPO, baseline} <= one.arms.keys()]
        levels.sort(key=lambda task: task.level or 0.0)
        for task in levels:
            cells = [ratio_cell(_over([task], VPO, baseline, "utility", k)) for k in (FEW, MANY)]
            top = mean_cell(task.ceiling("utility"))
            body.append([family, f"{task.level:g}", task.label, top, *cells])
        if len(levels) > 1:
            cells = [ratio_cell(factor(_slope(levels, baseline, k))) for k in (FEW, MANY)]
            body.append([family, "factor per level", "", "", *cells])
    over = [f"utility@{k}, {VPO} over {baseline}" for k in (FEW, MANY)]
    return ["family", "level", "task", "exact front", *over], body, "lllrrr"


def preferences_table(tasks: Sequence[TaskRuns]) -> Table:
    """The expected reward of the best of a few and of many answers when the weighting is known, and the worst case."""
    body = []
    wanted: list[list[str]] = [[], *([arm] for arm in _labels(tasks, bases=True))]
    found = {
        (task.label, *arms, k): _preferences(task, arms, k)
        for _, (task,), arms in _rows(tasks, wanted, together=False)
        for k in (FEW, MANY)
    }
    for name, members, arms in _rows(tasks, wanted):
        for k in (FEW, MANY) if arms else (MANY,):
            columns = zip(*(found[task.label, *arms, k] for task in members), strict=True)
            cells = [mean_cell(pooled(members, column)) for column in columns]
            if any(cells):
                body.append([name, *(arms or ["exact front"]), str(k) if arms else "", *cells])
    return ["task", "method", "answers", *Preferences._fields], body, "llrrrrr"


def steps_table(tasks: Sequence[TaskRuns]) -> Table:
    """The share of VPO's steps after which each variant reaches VPO's final utility of a rollout, on validation."""
    body = []
    for name, (task,), (arm, _) in _rows(tasks, [[arm, VPO] for arm in _labels(tasks)], together=False):
        if shares := _shares(task, arm):
            mean, *runs = shares
            reached = [share for share in runs if np.isfinite(share)]
            cell = f"{mean:.2f}" if np.isfinite(mean) else "not reached"
            body.append([name, arm, cell, ", ".join(f"{share:.2f}" for share in reached) or "none"])
    return ["task", "method", "share of VPO's steps, mean curve", "each run that reaches it"], body, "llrr"


class Worth(NamedTuple):
    """What a set and the vector are worth on a task, and what VPO gains over itself at a large alpha."""

    task: str
    fronts: BestSets | None
    """On the exact fronts, if they are known."""
    answers: BestSets | None
    """Among the answers of the model before training, if a run holds them."""
    gains: tuple[Band | None, Band | None]
    """Ratios of utility at :data:`FEW` and at :data:`MANY` answers."""


def worth_of_tasks(tasks: Sequence[TaskRuns]) -> list[Worth]:
    """Return a point for each task that has both arms."""
    found = []
    for task in tasks:
        if {VPO, NO_VECTOR} <= task.arms.keys():
            few, many = (_over([task], VPO, NO_VECTOR, "utility", k) for k in (FEW, MANY))
            base = next(iter(task.bases.values()), None)
            answers = worth_of_answers(base.summaries[0].pool) if base else None
            found.append(Worth(task.label, worth_of_fronts(task.pool), answers, (few, many)))
    return found


def worth_table(worths: Sequence[Worth]) -> Table:
    """The worths of each task beside what VPO gains over itself at a large alpha."""
    body = []
    for one in worths:
        sets = [
            [f"{best.set_worth:.2f}", f"{best.vector_worth:.2f}"] if best else [""] * 2
            for best in (one.fronts, one.answers)
        ]
        body.append([one.task, *sets[0], *sets[1], *map(ratio_cell, one.gains)])
    head = ["task", "set, exact fronts", "vector, exact fronts", "set, base's answers", "vector, base's answers"]
    return [*head, *(f"utility@{k}, {VPO} over {NO_VECTOR}" for k in (FEW, MANY))], body, "l" + "r" * 6


def _labels(tasks: Sequence[TaskRuns], *, bases: bool = False) -> list[str]:
    """All arms, in the order of the study, after the bases if they are asked for."""
    first = [label for task in tasks for label in task.bases] if bases else []
    return list(dict.fromkeys([*sorted(first), *(label for task in tasks for label in task.arms)]))


def _rows(
    tasks: Sequence[TaskRuns], wanted: Sequence[Sequence[str]], *, together: bool = True
) -> Iterator[tuple[str, list[TaskRuns], Sequence[str]]]:
    """Yield each task, then all tasks together, with each group of arms; only tasks that have the whole group count."""
    scopes = [[task] for task in tasks]
    for scope in [*scopes, list(tasks)] if together and len(tasks) > 1 else scopes:
        for arms in wanted:
            members = [task for task in scope if all(arm in task.everything for arm in arms)]
            if len(scope) == 1 == len(members):
                yield members[0].label, members, arms
            elif len(members) > 1:
                yield f"{len(members)} of {len(scope)} tasks", members, arms


def _over(members: Sequence[TaskRuns], arm: str, baseline: str, kind: Kind, k: int) -> Band | None:
    """The ratio of an arm to the baseline, each pooled over the same tasks."""
    logs = [pooled(members, [logarithms(task.at_k(one, kind, k)) for task in members]) for one in (arm, baseline)]
    return ratio(*logs)


def _diversities(task: TaskRuns, arm: str) -> list[BySeed]:
    """Diversity at the first step evaluated, at the one nearest the middle, and at the last."""
    steps, values = over_steps(task.arms[arm], "eval", "diversity")
    if not len(steps):
        return [{}, {}, {}]
    middle = int(np.abs(steps - steps[-1] / 2).argmin())
    return [_with_seeds(task, arm, values[:, place]) for place in (0, middle, -1)]


def _with_seeds(task: TaskRuns, arm: str, values: Floats) -> BySeed:
    pairs = zip(task.arms[arm].seeds, values.tolist(), strict=True)
    return {seed: value for seed, value in pairs if seed is not None}


def _at_equal_tokens(task: TaskRuns, first: str, other: str) -> list[BySeed]:
    """The first's utility less the other's at the tokens of the longer's rollout, and at those of the smaller pool."""
    found: list[dict[int, float]] = [{}, {}]
    arms = [by_seed(task.arms[one], lambda summary: summary) for one in (first, other)]
    for seed, mine in arms[0].items():
        theirs = arms[1].get(seed)
        if theirs is None or mine.pool.tokens is None or theirs.pool.tokens is None:
            continue
        tokens = (mine.pool.tokens, theirs.pool.tokens)
        least = max(float(one.mean()) for one in tokens)
        most = min(float(one.mean()) * one.shape[1] for one in tokens)
        if least <= most:
            for place, budget in enumerate((least, most)):
                values = [float(at_tokens(one.pool, one.ranked, budget).mean()) for one in (mine, theirs)]
                found[place][seed] = values[0] - values[1]
    return list(found)


def _slope(levels: Sequence[TaskRuns], baseline: str, k: int) -> BySeed:
    """The slope of the logarithm of VPO's ratio to the baseline over the levels, by least squares for each seed."""
    logs = [difference(*(logarithms(task.at_k(arm, "utility", k)) for arm in (VPO, baseline))) for task in levels]
    places = [task.level or 0.0 for task in levels]
    seeds = sorted(set.intersection(*(set(one) for one in logs)))
    return {seed: float(np.polyfit(places, [one[seed] for one in logs], 1)[0]) for seed in seeds}


def _preferences(task: TaskRuns, arms: Sequence[str], k: int) -> list[BySeed]:
    """The values of each kind of preference, of an arm or, without one, of the exact front."""
    if not arms:
        front = fronts_under_preferences(task.pool)
        return [{0: value} for value in front] if front else [{} for _ in Preferences._fields]
    method = task.everything[arms[0]]
    found = (
        by_seed(method, lambda summary: answers_under_preferences(summary.pool, k))
        if k <= method.summaries[0].k
        else {}
    )
    return [{seed: one[field] for seed, one in found.items()} for field in range(len(Preferences._fields))]


def _shares(task: TaskRuns, arm: str) -> list[float]:
    """After which share of VPO's steps the mean over an arm's runs, then each run, reaches VPO's mean final utility.

    Infinite where it never does. Empty without evaluations, or if the arm writes another number of answers in a
    rollout, whose utility means something else.
    """
    both = [task.arms[one] for one in (arm, VPO)]
    if len({one.summaries[0].pool.rewards.shape[2] for one in both}) > 1:
        return []
    (steps, values), (all_steps, of_vpo) = (over_steps(one, "eval", "expected_utility") for one in both)
    if not len(steps) or not len(all_steps):
        return []
    target = float(of_vpo[:, -1].mean())
    return [_first_at(steps, row, target) / float(all_steps[-1]) for row in (values.mean(axis=0), *values)]


def _first_at(steps: Floats, values: Floats, target: float) -> float:
    """The first step at which a line through the values reaches the target; infinite if it never does."""
    above = values >= target
    if not above.any():
        return np.inf
    after = int(above.argmax())
    if after == 0:
        return float(steps[0])
    before = after - 1
    share = (target - values[before]) / (values[after] - values[before])
    return float(steps[before] + share * (steps[after] - steps[before]))
