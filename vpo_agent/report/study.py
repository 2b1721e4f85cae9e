"""A study of several tasks on one page: tasks × methods, from the comparison of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.lines import Line2D

from vpo_agent.measure.intervals import LEVEL, adjusted
from vpo_agent.measure.measures import name_at
from vpo_agent.pages import figure_style as style
from vpo_agent.pages.figure_style import looks
from vpo_agent.pages.page import Page, Table, markdown_table
from vpo_agent.report.tables import interval, number
from vpo_agent.report.verdict import FEW
from vpo_agent.runs.whole_files import write_text_atomically

BOLD = (
    "Bold: a difference from the baseline that is significant after adjustment over all differences of its table "
    f"(Benjamini and Hochberg, {LEVEL:.0%}). Intervals are not adjusted."
)


def write_study(tasks: Mapping[str, Mapping[str, Any]], folder: Path) -> str:
    """Write ``study.md`` and ``study.png`` into the folder of a study, and return its verdicts and first table.

    ``tasks`` are the results of :func:`vpo_agent.report.compare_runs` by the task's name. A method without runs on a
    task, and a task whose pools hold fewer answers, leave their cells empty.
    """
    many = min(tables["k"] for tables in tasks.values())
    few = min(FEW, many)
    names = list(dict.fromkeys(name_at(kind, k) for kind in ("utility", "best") for k in (few, many)))
    page = Page("The methods on every task")
    verdicts = [[f"{task}: {headline}" for headline in tables["verdict"]] for task, tables in tasks.items()]
    if any(verdicts):
        page.listing([headline for headlines in verdicts for headline in headlines])
    page.figure(draw_study(tasks, names[0], folder / "study.png"), f"{names[0]} on every task")
    first = ""
    for name in names:
        page.heading(f"{name} ↑")
        table = study_table(tasks, name)
        page.table(*table)
        first = first or f"{name} ↑\n\n{markdown_table(*table)}"
    page.heading("What was compared")
    page.paragraph(BOLD)
    page.listing([f"{task}: {_about(tables)}" for task, tables in tasks.items()])
    write_text_atomically(folder / "study.md", page.markdown())
    return "\n\n".join([*("\n".join(headlines) for headlines in verdicts if headlines), first, BOLD])


def study_table(tasks: Mapping[str, Mapping[str, Any]], name: str) -> Table:
    """Return a table with a row for each method and a column for each task.

    Its cells are means with intervals; below them are the differences from the baseline, in bold where they are
    significant after adjustment over the table (Benjamini and Hochberg).
    """
    methods = _methods(tasks)
    body = []
    for method in methods:
        body.append([method, *(_cell(tables["measures"], name, method) for tables in tasks.values())])
    found = {
        (task, method): row
        for task, tables in tasks.items()
        for method in methods
        if (row := _find(tables["differences"], name, method)) is not None
    }
    levels = dict(zip(found, adjusted([row["p"] for row in found.values()]), strict=True))
    for method in methods:
        cells = []
        for task, tables in tasks.items():
            cell = _cell(tables["differences"], name, method, signed=True)
            cells.append(f"**{cell}**" if levels.get((task, method), 1) < LEVEL else cell)
        if any(cells):
            body.append([f"{method} − baseline", *cells])
    return ["method", *tasks], body, "l" + "r" * len(tasks)


def draw_study(tasks: Mapping[str, Mapping[str, Any]], name: str, path: Path) -> Path:
    """Draw a panel for each task with a row for each method: the mean of a measure, its interval, and every seed."""
    methods = _methods(tasks)
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = style.new_figure(height=rows * (0.9 + 0.3 * len(methods)) + 0.4, width=4.0 * columns + 1)
    for panel, (task, tables) in enumerate(tasks.items()):
        axes = figure.add_subplot(rows, columns, panel + 1)
        style.dress(axes, task, x=f"{name} →")
        for height, (method, look) in enumerate(zip(methods, looks(methods), strict=True)):
            row = _find(tables["measures"], name, method)
            if row is not None:
                axes.plot([row["low"], row["high"]], [height] * 2, color=look.colour, lw=7, alpha=0.35)
                axes.plot(row["each_seed"], [height] * len(row["each_seed"]), "|", color=look.colour, ms=9)
                axes.plot(row["mean"], height, look.marker, color=look.colour, ms=6.5, mec=style.PAPER)
        axes.set_yticks(range(len(methods)), methods if panel % columns == 0 else [""] * len(methods))
        axes.set_ylim(len(methods) - 0.4, -0.6)  # from the top
        axes.tick_params(axis="y", labelcolor=style.INK, length=0)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(style.round_ticks(5))
    legend: dict[str, Artist] = {
        "mean": Line2D([], [], color=style.FAINT_INK, marker="o", ls="none"),
        "bar: 95 % interval": Line2D([], [], color=style.FAINT_INK, lw=7, alpha=0.35),
        "one training seed": Line2D([], [], color=style.FAINT_INK, marker="|", ms=9, ls="none"),
    }
    return style.save(figure, path, legend)


def _methods(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for tables in tasks.values() for row in tables["methods"]))


def _about(tables: Mapping[str, Any]) -> str:
    seeds = sorted({row["runs"] for row in tables["methods"]})
    parts = [tables["prompts"], f"seeds {' or '.join(map(str, seeds))}", f"baseline {tables['baseline']}"]
    sentence = ", ".join([*parts, tables["interval"]])
    if tables["front_utility"] is not None:
        sentence += f"; utility of the exact fronts {number(tables['front_utility'])}"
    return f"{sentence}."


def _find(rows: Sequence[Mapping[str, Any]], name: str, method: str) -> Mapping[str, Any] | None:
    return next((row for row in rows if row["measure"] == name and row["method"] == method), None)


def _cell(rows: Sequence[Mapping[str, Any]], name: str, method: str, signed: bool = False) -> str:
    row = _find(rows, name, method)
    return "" if row is None else f"{number(row['mean'], signed)} {interval(row['low'], row['high'], signed)}"
