"""The figures of the studies, drawn from the data files of their runs without torch or matplotlib.

Each figure shows for each task what k answers score after each method (utility@k), or the share of tasks that one of k
answers solves (pass@k), beside the better base and the exact front. The card is opaque and light, so that it can be
read on a dark page as well. `python studies/pages.py --write` writes the files, and without --write it compares them
with the data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tables import BASE, CURVE, EXACT_FRONT, KS, Measure, StudyScores, TaskScores

from vpo_agent.measure.intervals import Band, interval
from vpo_agent.measure.pool import Floats

IMAGES = Path("docs/images")


class Figure(NamedTuple):
    """What the figure of a study shows."""

    measure: Measure
    ks: tuple[int, ...]
    """Numbers of answers at which the measure is known."""
    marked: tuple[int, ...]
    """Those that have a dot, which the tables state."""
    methods: tuple[str, ...]


FIGURES: Mapping[str, Figure] = {
    "conflict+conflict_again": Figure("utility", CURVE, (1, 3, 30), (BASE, "grpo", "vpo")),
    "rare_specialists+rare_specialists_again": Figure("utility", CURVE, (1, 3, 30), (BASE, "grpo", "max_at_k", "vpo")),
    "edge+edge_again": Figure("pass", KS, KS, (BASE, "grpo", "vpo", "max_at_k")),
    "edge_long": Figure("pass", KS, KS, (BASE, "grpo", "vpo", "max_at_k", "vpo_pool")),
}
"""Each figure, by its study and the repetitions with other seeds, as in a mark. The first name is that of its file."""
LINES = {
    BASE: ("base", "#57606a"),
    "grpo": ("GRPO", "#b34700"),
    "max_at_k": ("max_at_k", "#1a7f37"),
    "vpo": ("VPO", "#0067a3"),
    "vpo_pool": ("vpo_pool", "#8250df"),
}
"""By method, its name in the legend and its colour, which has a contrast of 4.5 with white."""
INK, FAINT_INK, RULE, PAPER = "#1f2328", "#57606a", "#d0d7de", "#ffffff"

COLUMNS, PANEL, HEIGHT = 2, 240, 220
"""Panels in a row, and the width and height of one, of which the margins are a part."""
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 30, 34
MOST_LINES = 6
"""Most lines behind the curves at a distance of 0.1; more are drawn at a distance of 0.2."""


class Curve(NamedTuple):
    """What one method scores on one task, at each number of answers of the figure."""

    method: str
    band: Band
    """Means and 95 % intervals, each (K,)."""


def curves(task: TaskScores, figure: Figure) -> list[Curve]:
    """Return the curves of the better base at each k, and of the methods that the task has data files of."""
    drawn = []
    for method in figure.methods:
        bands = []
        for k in figure.ks:
            name = task.better_base(figure.measure, k) if method == BASE else method
            values = task.values(name or "", figure.measure, k)
            if values:
                # Measures lie from 0 to 1, and an interval over few seeds may not.
                bands.append(Band(*np.clip(interval(np.stack([*values.values()]), task.tasks), 0, 1)))
        if len(bands) == len(figure.ks):
            drawn.append(Curve(method, Band(*(np.array(values) for values in zip(*bands, strict=True)))))
    return drawn


def drawing(scores: StudyScores, figure: Figure) -> str:
    """Return the figure of a study as SVG: one panel for each task, then the legend."""
    panels = {label: (curves(task, figure), front_of(task, figure)) for label, task in scores.tasks.items()}
    bands = [curve.band for of_task, _ in panels.values() for curve in of_task]
    known = [value for band in bands for value in (*band.mean, *band.low, *band.high)]
    known += [front for _, front in panels.values() if front is not None]
    step = 0.1 if max(known) - min(known) < 0.1 * MOST_LINES else 0.2
    ticks = np.arange(np.floor(min(known) / step), np.ceil(max(known) / step) + 1) * step
    rows = -(-(len(panels) + 1) // COLUMNS)
    width, height = COLUMNS * PANEL + 16, rows * HEIGHT + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" font-family="system-ui, sans-serif" font-size="14">',
        f"<title>{figure.measure}@k on the tasks of the study {escape(scores.study.name)}</title>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10" fill="{PAPER}" stroke="{RULE}"/>',
    ]
    for number, (label, (of_task, front)) in enumerate(panels.items()):
        lines += [_group(number), *_panel(label, of_task, front, figure, ticks), "</g>"]
    lines += [_group(len(panels)), *_legend(panels.values(), figure), "</g>", "</svg>"]
    return "\n".join(lines) + "\n"


def front_of(task: TaskScores, figure: Figure) -> float | None:
    """Return what the exact fronts of a task reach, if they are known."""
    return next(iter(next(iter(task.methods.values())).values())).front.get(figure.measure)


def _group(number: int) -> str:
    row, column = divmod(number, COLUMNS)
    return f'<g transform="translate({8 + column * PANEL} {6 + row * HEIGHT})">'


def _panel(label: str, of_task: Sequence[Curve], front: float | None, figure: Figure, ticks: Floats) -> Iterator[str]:
    """Yield the lines of one task's panel, whose axis upwards has these ticks."""
    left, right, top, bottom = LEFT, PANEL - RIGHT, TOP, HEIGHT - BOTTOM
    (fewest, *_, most), (low, *_, high) = figure.ks, ticks

    def x(k: float) -> float:
        return left + 8 + (right - left - 14) * float(np.log(k / fewest) / np.log(most / fewest))

    def y(value: float) -> float:
        return bottom - (bottom - top) * float((value - low) / (high - low))

    def points(values: Sequence[float]) -> list[str]:
        return [f"{x(k):.1f} {y(value):.1f}" for k, value in zip(figure.ks, values, strict=True)]

    yield _text(left, 18, label, bold=True)
    for value in ticks:
        yield f'<path d="M{left} {y(value):.1f}H{right}" stroke="{RULE}"/>'
        yield _text(left - 6, y(value) + 5, f"{value:.1f}".removeprefix("0"), anchor="end", faint=True)
    for k in (k for k in KS if k <= most):
        yield _text(x(k), bottom + 18, str(k), anchor="middle", faint=True)
    if front is not None:
        yield f'<path d="M{left} {y(front):.1f}H{right}" stroke="{INK}" stroke-width="1.5" stroke-dasharray="5 4"/>'
    for method, band in of_task:
        _, colour = LINES[method]
        outline = "L".join([*points(band.high), *reversed(points(band.low))])
        yield f'<path d="M{outline}Z" fill="{colour}" fill-opacity=".18"/>'
        yield f'<path d="M{"L".join(points(band.mean))}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        for k, value in zip(figure.ks, band.mean, strict=True):
            if k in figure.marked:
                yield f'<circle cx="{x(k):.1f}" cy="{y(value):.1f}" r="4" fill="{colour}"/>'


def _legend(panels: Collection[tuple[list[Curve], float | None]], figure: Figure) -> Iterator[str]:
    """Yield the legend, and what the axes show."""
    y = 26
    if any(front is not None for _, front in panels):
        yield f'<path d="M{LEFT} {y - 5}h34" stroke="{INK}" stroke-width="1.5" stroke-dasharray="5 4"/>'
        yield _text(LEFT + 44, y, EXACT_FRONT)
        y += 26
    present = {curve.method for of_task, _ in panels for curve in of_task}
    # From the top of a panel to its bottom.
    for method in reversed(LINES):
        if method in present:
            name, colour = LINES[method]
            yield f'<path d="M{LEFT} {y - 5}h34" stroke="{colour}" stroke-width="2.5"/>'
            yield f'<circle cx="{LEFT + 17}" cy="{y - 5}" r="4" fill="{colour}"/>'
            yield _text(LEFT + 44, y, name)
            y += 26
    for line in (f"upwards: {figure.measure}@k", "to the right: k answers", "shaded: 95 % interval"):
        yield _text(LEFT, y + 6, line, faint=True)
        y += 20


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, faint: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    fill = FAINT_INK if faint else INK
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{weight}>{escape(text)}</text>'
