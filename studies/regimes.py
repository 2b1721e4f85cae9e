"""Where training helps a search, and which budget to train for, over the tasks of several studies.

    vpo study studies/suite.toml && vpo study studies/edge.toml
    python studies/regimes.py
    vpo study studies/budgets.toml
    python studies/regimes.py studies/budgets.toml

Prints utility@k of every base and arm of a budget, or pass@k where one answer is best for everybody, and who leads at
thirty answers beside the worth of the vector and the headroom of the base, which ``regimes.png`` shows;
``budgets.png`` shows the tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from suite import RESULTS, compared

from vpo_agent.measure.measures import passes, rank
from vpo_agent.measure.metrics import best_at_k_whole
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.summary import gains_of_fronts
from vpo_agent.pages import figure_style as style

KS = (1, 3, 10, 30, 128)
MANY = 30
BUDGETS = {
    "grpo": "1",
    "grpo-24": "1",
    "vpo": "3",
    "rejection": "3",
    "max_at_k": "4",
    "set_rl": "4",
    "vpo-pool4": "12",
    "vpo-pool10": "30",
    "mixed": "1 and 3",
}
"""Arms, and the numbers of answers that each is trained for."""
SINGLES = "max_at_k or set_rl"
NAMES = {"grpo": "GRPO", "max_at_k": SINGLES, "set_rl": SINGLES, "rejection": "fine-tuning on the best"}
LEVEL = 0.005
"""Utilities that differ by no more than this are level."""
BASE, LEVEL_WITH_BASE = "base", "the base, or level with it"
LONGEST_BASE = "base, 3 answers"


class Scores(NamedTuple):
    """What counts of a pool, of N prompts, A answers and R responses to each."""

    measure: str
    answers: Floats
    """(N, A)"""
    rollouts: Floats
    """(N, R)"""
    most: float
    """What the exact front reaches."""


class Regime(NamedTuple):
    """A task: what its base leaves to gain, and what the policies of each budget are worth."""

    label: str
    measure: str
    """``"pass"`` where one answer is best under all weightings, else ``"utility"``."""
    worth: float
    """Worth of the vector on the exact fronts."""
    headroom: float
    """Share of what the front reaches that thirty answers of the base miss."""
    rows: dict[str, list[float]]
    """Pass or utility at each of :data:`KS`, for the base with 1 and 3 answers and for each arm."""

    def leader(self) -> str:
        """Return who is best at thirty answers: the base unless an arm is above both bases by more than ``LEVEL``."""
        at = {name: row[KS.index(MANY)] for name, row in self.rows.items()}
        base = max(value for name, value in at.items() if name.startswith(BASE))
        arm = max((name for name in at if not name.startswith(BASE)), key=at.__getitem__)
        return LEVEL_WITH_BASE if at[arm] <= base + LEVEL else NAMES.get(arm, "VPO or its pools")


def read_regimes(studies: Sequence[Path], results: Path) -> Iterator[Regime]:
    """Measure every task of the studies that has runs of at least two budgets, but for longer training of another."""
    for study in studies:
        for task, files, labels in compared(study, results, BUDGETS):
            if "steps" in task.settings:
                continue
            scores: dict[str, list[Scores]] = {}
            for (file, *_), label in zip(files, labels, strict=True):
                pool = Pool.load(file)
                scores.setdefault(label, []).append(_scores(pool))
                if (singles := file.with_name(f"{file.stem}-of-1.npz")).is_file():
                    scores.setdefault(f"{label}, asked for one", []).append(_scores(Pool.load(singles)))
            if len(scores) > 3:
                yield _measure(task.label, pool, scores)


def _scores(pool: Pool) -> Scores:
    """Return whether answers pass, if one answer is best under all weightings, else their utilities."""
    assert pool.fronts is not None, "the tasks of these studies have exact fronts"
    if max(map(len, pool.fronts)) > 1:
        ranked = rank(pool)
        assert ranked.fronts is not None
        return Scores("utility", ranked.answers, ranked.rollouts, float(ranked.fronts.mean()))
    passed = passes(pool, None)
    assert passed is not None
    return Scores("pass", passed, passed.reshape(*pool.rewards.shape[:3]).max(axis=2), 1.0)


def _measure(label: str, pool: Pool, scores: dict[str, list[Scores]]) -> Regime:
    rows = {
        name: [
            float(np.mean([best_at_k_whole(one.answers, one.rollouts, k) for one in of_arm]))
            for k in KS
            if k <= scores[name][0].answers.shape[1]
        ]
        for name, of_arm in scores.items()
    }
    base = max(row[KS.index(MANY)] for name, row in rows.items() if name.startswith(BASE))
    first, worth = next(iter(scores.values()))[0], gains_of_fronts(pool)
    assert worth is not None
    return Regime(label, first.measure, worth.vector_gain, 1 - base / first.most, rows)


def draw(regimes: Sequence[Regime], path: Path) -> Path:
    """Draw a point a task, by headroom and worth, with a colour for who leads at thirty answers."""
    figure = style.new_figure(height=4.6, width=9.0)
    axes = figure.add_subplot()
    style.dress(
        axes,
        "",
        x="headroom: share of what the front reaches that 30 answers of the base miss",
        y="worth of the vector",
    )
    looks = {
        LEVEL_WITH_BASE: (style.GREY, "X"),
        "VPO or its pools": (style.PALETTE[0], "o"),
        SINGLES: (style.PALETTE[3], "D"),
        NAMES["rejection"]: (style.PALETTE[2], "^"),
        "GRPO": (style.PALETTE[1], "s"),
    }
    legend, labels = {}, dict[tuple[float, float], str]()
    for one in regimes:
        colour, marker = looks[one.leader()]
        legend[one.leader()] = axes.plot(one.headroom, one.worth, marker, color=colour, ms=9)[0]
        place = round(20 * one.headroom) / 20, round(one.worth, 2)  # Labels of near points would overlap.
        labels[place] = f"{labels[place]}, {one.label}" if place in labels else one.label
    for place, label in labels.items():
        axes.annotate(label, place, (6, 6), textcoords="offset points", rotation=40)
    axes.margins(0.15)
    return style.save(figure, path, legend, title="Highest mean with thirty answers")


def draw_budgets(regimes: Sequence[Regime], path: Path) -> Path:
    """Draw what the policies of at least five arms reach at k answers, a panel a task."""
    names = [LONGEST_BASE, *BUDGETS]
    drawn = [one for one in regimes if len(BUDGETS.keys() & one.rows) > 4]
    lines = -(-len(drawn) // 3)
    figure = style.new_figure(height=0.8 + 2.8 * lines, width=12.0)
    legend = {}
    for number, one in enumerate(drawn, start=1):
        axes = figure.add_subplot(lines, 3, number)
        style.dress(axes, one.label, x="answers k", y=f"{one.measure}@k")
        for name, look in zip(names, style.looks(names), strict=True):
            if row := one.rows.get(name):
                style.log_axis(axes, np.array(KS[: len(row)]))
                line = axes.plot(KS[: len(row)], row, look.line, color=look.colour, marker=look.marker, alpha=0.8)
                legend[f"{BUDGETS[name]}: {name}" if name in BUDGETS else name] = line[0]
    return style.save(figure, path, legend, title="Trained for")


def main() -> None:
    """Print the tables and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = Path(__file__).parent
    parser.add_argument("files", type=Path, nargs="*", default=[studies / "suite.toml", studies / "edge.toml"])
    parser.add_argument("--from", dest="results", type=Path, default=RESULTS, help="folder of data files")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the figures")
    options = parser.parse_args()
    regimes = list(read_regimes(options.files, options.results))
    if not regimes:
        parser.error(f"no data files of a base and two arms of a budget on one task in {str(options.results)!r}")
    for one in regimes:
        print(f"\n## {one.label}, {one.measure}@k\n\n| trained for | {' | '.join(f'k = {k}' for k in KS)} |")
        print(f"|---|{'---|' * len(KS)}")
        for name, row in one.rows.items():
            print(f"| {BUDGETS.get(name, '')} `{name}` | {' | '.join(f'{value:.3f}' for value in row)} |")
    print("\n| task | worth of the vector | headroom | best at 30 |\n|---|---|---|---|")
    for one in regimes:
        print(f"| {one.label} | {one.worth:.2f} | {one.headroom:.3f} | {one.leader()} |")
    options.out.mkdir(parents=True, exist_ok=True)
    print(draw(regimes, options.out / "regimes.png"))
    print(draw_budgets(regimes, options.out / "budgets.png"))


if __name__ == "__main__":
    main()
