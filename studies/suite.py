"""What explains the results of ``suite.toml``, after ``vpo study studies/suite.toml``, whose page has every arm.

    python studies/suite.py

Reads the data files in ``studies/results`` and writes ``runs/suite/explained.md``: what the vector and the chain add,
levels of difficulty, users of other preferences, steps, diversity, and what the worth of the vector predicts
(``worths.png``). Intervals are those of ``vpo compare``; those of a ratio are those of the difference, divided by the
mean below it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tables import RESULTS, compared

from vpo_agent.measure.intervals import Band, interval
from vpo_agent.measure.metrics import best_at_k_whole
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.summary import gains_of_fronts
from vpo_agent.pages import figure_style as style
from vpo_agent.pages.figure_style import MARKERS
from vpo_agent.pages.page import Page, Table
from vpo_agent.report.learning_curves import over_steps
from vpo_agent.report.methods import Method
from vpo_agent.report.runs import group, read_runs
from vpo_agent.report.tables import interval as bounds
from vpo_agent.report.tables import number
from vpo_agent.runs.study_file import read_study

FEW, MANY = 3, 30
"""Answers for a user and for a search."""
VPO, NO_VECTOR, BASELINE = "vpo", "vpo-alpha1000", "grpo"
QUESTIONS = (
    ("all of VPO", VPO, BASELINE),
    ("the vector and the chain", VPO, "max_at_k"),
    ("the vector, in a chain", VPO, NO_VECTOR),
    ("the vector, without a chain", "set_rl", "max_at_k"),
    ("the chain", VPO, "set_rl"),
)
"""What is added, by which arm, to which other."""


class TaskArms(NamedTuple):
    """The finished arms of one task of the suite."""

    label: str
    family: str | None
    level: float | None
    arms: Mapping[str, Method]

    def difference(self, arm: str, other: str, k: int) -> tuple[Band, float]:
        """Return utility@k of an arm less that of another, and the mean of the other."""
        ours, theirs = (_utility(self.arms[one], k) for one in (arm, other))
        return self.arms[arm].band(ours, theirs), float(theirs.mean())

    def ratio(self, arm: str, other: str, k: int) -> Band:
        """Return utility@k of an arm over that of another."""
        band, below = self.difference(arm, other, k)
        return Band(*(1 + value / below for value in band))


def read_tasks(file: Path, results: Path) -> list[TaskArms]:
    """Read the data files of a study of several tasks."""
    return [
        TaskArms(
            task.label,
            task.family,
            task.level,
            {one.label: one for one in group(read_runs(files), labels, None, None)},
        )
        for task, files, labels in compared(read_study(file), results)
    ]


def explain(tasks: Sequence[TaskArms], folder: Path) -> Path:
    """Write the page and its figure, and return the page's path."""
    page = Page("What explains the results of the suite")
    for heading, table in (
        ("What the vector and the chain add to utility", questions_table(tasks)),
        (f"Levels of difficulty: {VPO} over {BASELINE}", levels_table(tasks)),
        ("Preferences chosen after training: expected reward of the best answer", preferences_table(tasks)),
        ("Diversity on validation prompts, and the steps to VPO's final utility", training_table(tasks)),
        (f"Worth of the vector, and {VPO} over {NO_VECTOR}", worths_table(tasks)),
    ):
        if table[1]:
            page.heading(heading)
            page.table(*table)
    if (figure := draw_worths(tasks, folder / "worths.png")) is not None:
        page.figure(figure, "What drawn weightings gain over nearly equal ones")
    path = folder / "explained.md"
    path.write_text(page.markdown(), encoding="utf-8")
    return path


def questions_table(tasks: Sequence[TaskArms]) -> Table:
    """Differences of arms, at a few and at many answers."""
    body = []
    for question, arm, other in QUESTIONS:
        for task in _with(tasks, arm, other):
            cells = [cell(task.difference(arm, other, k)[0], signed=True) for k in (FEW, MANY)]
            body.append([question, f"{arm} − {other}", task.label, *cells])
    return ["what adds", "difference", "task", f"utility@{FEW}", f"utility@{MANY}"], body, "lllrr"


def levels_table(tasks: Sequence[TaskArms]) -> Table:
    """The ratio to the baseline by level of difficulty."""
    leveled = [task for task in _with(tasks, VPO, BASELINE) if task.level is not None]
    leveled.sort(key=lambda task: (task.family or task.label, task.level or 0))
    body = []
    for task in leveled:
        cells = [cell(task.ratio(VPO, BASELINE, k)) for k in (FEW, MANY)]
        body.append([task.family or task.label, f"{task.level:g}", task.label, *cells])
    return ["family", "level", "task", f"utility@{FEW}", f"utility@{MANY}"], body, "lrlrr"


def training_table(tasks: Sequence[TaskArms]) -> Table:
    """Share of the diversity that is left, and of VPO's steps after which an arm reaches VPO's utility of a rollout."""
    body = []
    for task in tasks:
        for label, method in task.arms.items():
            diversity = over_steps(method, "eval", "diversity")[1]
            if diversity.size:
                first, last = diversity[:, 0].mean(), diversity[:, -1].mean()
                body.append([task.label, label, number(last), f"{last / first:.2f}", steps_to_vpo(task, label)])
    return ["task", "method", "diversity at the end", "over the start", "share of VPO's steps"], body, "llrrr"


def steps_to_vpo(task: TaskArms, arm: str) -> str:
    """Return when an arm's mean curve reaches VPO's final utility; empty if its rollouts hold fewer answers."""
    both = [task.arms.get(one) for one in (arm, VPO)]
    if None in both or len({one.summaries[0].pool.rewards.shape[2] for one in both}) > 1:
        return ""
    (steps, values), (last, of_vpo) = (over_steps(one, "eval", "expected_utility") for one in both)
    if not len(steps) or not len(last):
        return ""
    curve, target = values.mean(axis=0), of_vpo[:, -1].mean()
    reached = np.flatnonzero(curve >= target)
    if not len(reached):
        return "not reached"
    after = reached[0]
    # Linear between the evaluations before and after.
    at = steps[0] if after == 0 else np.interp(target, curve[after - 1 : after + 1], steps[after - 1 : after + 1])
    return f"{at / last[-1]:.2f}"


def worths_table(tasks: Sequence[TaskArms]) -> Table:
    """The worth of a set and of the vector on the exact fronts, beside what VPO gains over itself without a vector."""
    body = []
    for task, worth, gains in _worths(tasks):
        body.append([task.label, f"{worth.set_gain:.2f}", f"{worth.vector_gain:.2f}", *map(cell, gains)])
    return ["task", "worth of a set", "of the vector", f"utility@{FEW}", f"utility@{MANY}"], body, "lrrrr"


def draw_worths(tasks: Sequence[TaskArms], path: Path) -> Path | None:
    """Draw a point for each task whose exact fronts are known; ``None`` without any."""
    known = sorted(_worths(tasks), key=lambda one: one[1].vector_gain)
    if not known:
        return None
    figure = style.new_figure(height=5.0, width=11.0)
    legend: dict[str, Any] = {}
    ends = [1.0, known[-1][1].vector_gain * 1.05]
    for panel, k in enumerate((FEW, MANY)):
        axes = figure.add_subplot(1, 2, panel + 1)
        y = f"↑ utility: {VPO} / {NO_VECTOR}" * (not panel)
        style.dress(axes, f"{k} answers, utility@{k}", x="worth of the vector on the exact fronts", y=y)
        for place, (task, worth, gains) in enumerate(known):
            gain, shade = gains[panel], style.INK if place % 2 else style.FAINT_INK
            look = {"color": shade, "mfc": shade if place % 2 else style.PAPER, "ms": 8, "capsize": 3}
            reach = [[gain.mean - gain.low], [gain.high - gain.mean]]
            drawn = axes.errorbar(worth.vector_gain, gain.mean, yerr=reach, fmt=MARKERS[place % len(MARKERS)], **look)
            legend[f"{task.label} ({worth.vector_gain:.2f})"] = drawn[0]
        legend["gain = worth of the vector"] = axes.plot(ends, ends, color=style.FAINT_INK, lw=1.2, ls=":")[0]
        legend["no gain"] = axes.axhline(1, color=style.INK, lw=1.2, ls=(0, (5, 3)))
    return style.save(figure, path, legend, title="What drawn weightings gain over nearly equal ones (α = 1000)")


# --- preferences


class Preferences(NamedTuple):
    """Expected rewards w·r of the best of some answers under a known weighting w, on average over prompts."""

    corner: float
    """One objective alone counts; mean over the objectives."""
    edge: float
    """Two objectives count alike; mean over the pairs. With a single objective it is the corner."""
    centre: float
    """All objectives count alike."""


def preferences_table(tasks: Sequence[TaskArms]) -> Table:
    """What the exact front, and a few and many answers of every arm, earn from the corners to the centre."""
    body = []
    for task in tasks:
        pool = next(iter(task.arms.values())).summaries[0].pool
        if (front := fronts_under_preferences(pool)) is not None:
            body.append([task.label, "exact front", "", *map(number, front)])
        for label, method in task.arms.items():
            for k in (FEW, MANY):
                each = np.array([answers_under_preferences(one.pool, k) for one in method.summaries if k <= one.k])
                if len(each):
                    # Each value is a mean over prompts, so the interval is that of the seeds.
                    body.append([task.label, label, str(k), *(cell(interval(column[:, None])) for column in each.T)])
    return ["task", "method", "answers", *Preferences._fields], body, "llrrrr"


def answers_under_preferences(pool: Pool, k: int) -> Preferences:
    """Return what the best of k answers earns, in whole rollouts where m divides ``k``; exact over all subsets.

    Objectives that do not count for a prompt leave its weighting; a prompt for which no weight remains is left out.
    """
    _, rollouts, m, d = pool.rewards.shape

    def best(scores: Floats) -> Floats:
        return best_at_k_whole(scores, scores.reshape(-1, rollouts, m).max(axis=2), k)

    return _under_preferences(pool, list(pool.active_rewards().reshape(-1, rollouts * m, d)), best)


def fronts_under_preferences(pool: Pool) -> Preferences | None:
    """Return the most that any answers can earn; ``None`` if the exact fronts are unknown."""
    if pool.fronts is None:
        return None
    return _under_preferences(pool, pool.fronts, lambda scores: scores.max(axis=1))


def _under_preferences(pool: Pool, sets: Sequence[Floats], best: Callable[[Floats], Floats]) -> Preferences:
    """Average over prompts what ``best`` takes from the scores (W, n) of each set (n, d) under all weightings."""
    d = len(pool.objectives)
    corners = np.eye(d)
    edges = [(corners[one] + corners[other]) / 2 for one, other in combinations(range(d), 2)]
    weightings = np.concatenate([corners, np.reshape(edges, (-1, d)), np.full((1, d), 1 / d)])
    total, prompts = np.zeros(len(weightings)), np.zeros(len(weightings))
    for vectors, active in zip(sets, pool.active, strict=True):
        kept = weightings * active
        counts = kept.any(axis=1)
        weights = kept[counts] / kept[counts].sum(axis=1, keepdims=True)
        total[counts] += best(weights @ vectors.T)
        prompts[counts] += 1
    # An objective that counts for no prompt has no mean.
    means = np.divide(total, prompts, out=np.full_like(total, np.nan), where=prompts > 0)
    edge = means[d:-1] if edges else means[:d]
    return Preferences(float(np.nanmean(means[:d])), float(np.nanmean(edge)), float(means[-1]))


# --- cells


def cell(band: Band, signed: bool = False) -> str:
    """A mean with its interval."""
    return f"{number(float(band.mean), signed)} {bounds(float(band.low), float(band.high), signed)}"


def _utility(method: Method, k: int) -> NDArray[np.float64]:
    return np.stack([summary.at_k("utility", k) for summary in method.summaries])


def _with(tasks: Sequence[TaskArms], *arms: str) -> Iterator[TaskArms]:
    """The tasks that have all these arms, with as many answers as a search takes."""
    for task in tasks:
        if all(arm in task.arms and task.arms[arm].summaries[0].k >= MANY for arm in arms):
            yield task


def _worths(tasks: Sequence[TaskArms]) -> Iterator[tuple[TaskArms, Any, list[Band]]]:
    for task in _with(tasks, VPO, NO_VECTOR):
        worth = gains_of_fronts(task.arms[VPO].summaries[0].pool)
        if worth is not None:
            yield task, worth, [task.ratio(VPO, NO_VECTOR, k) for k in (FEW, MANY)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Explain the results of the suite.")
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).with_name("suite.toml"))
    parser.add_argument("--from", dest="results", type=Path, default=RESULTS, help="folder of data files")
    parser.add_argument("--out", type=Path, default=Path("runs/suite"), help="folder of the page and its figure")
    chosen = parser.parse_args()
    read = read_tasks(chosen.file, chosen.results)
    if not read:
        parser.error(f"there are no data files of {read_study(chosen.file).name} in {str(chosen.results)!r}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    print(explain(read, chosen.out))
