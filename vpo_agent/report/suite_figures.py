"""Figures of a study of several tasks: diversity through training, and what VPO gains against the vector's worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.patches import Patch

from vpo_agent.report import figure_style as style
from vpo_agent.report.learning_curves import over_steps
from vpo_agent.report.looks import MARKERS, looks
from vpo_agent.report.methods import title
from vpo_agent.report.suite_runs import TaskRuns
from vpo_agent.report.suite_tables import FEW, MANY, NO_VECTOR, VPO, Worth


def draw_diversity(tasks: Sequence[TaskRuns], path: Path) -> Path | None:
    """Draw a panel for each task: means over seeds, in bands from the lowest to the highest; ``None`` without any."""
    labels = list(dict.fromkeys(label for task in tasks for label in task.arms))
    look_of = dict(zip(labels, looks(labels), strict=True))
    lines = {
        task.label: [(label, *over_steps(method, "eval", "diversity")) for label, method in task.arms.items()]
        for task in tasks
    }
    lines = {task: kept for task, found in lines.items() if (kept := [line for line in found if len(line[1])])}
    if not lines:
        return None
    columns = min(3, len(lines))
    rows = -(-len(lines) // columns)
    figure = style.new_figure(height=2.8 * rows + 0.6, width=4.0 * columns)
    legend: dict[str, Artist] = {}
    for place, (task, found) in enumerate(lines.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        style.dress(axes, task)
        for label, steps, values in found:
            look = look_of[label]
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(steps, low, high, color=look.colour, alpha=style.BAND_ALPHA, lw=0)
            sizes: dict[str, Any] = {"mec": style.PAPER, "ms": 5, "lw": 1.8}
            line = axes.plot(steps, values.mean(axis=0), color=look.colour, marker=look.marker, ls=look.line, **sizes)
            legend[label] = line[0]
        style.from_zero(axes)
        axes.xaxis.set_major_locator(style.round_ticks(5, whole=True))
        axes.yaxis.set_major_locator(style.round_ticks(5))
    figure.supxlabel("training step", color=style.FAINT_INK, fontsize=11)
    figure.supylabel("diversity ↑, validation prompts".translate(style.TURNED), color=style.FAINT_INK, fontsize=11)
    legend["band: lowest to highest seed"] = Patch(facecolor=style.INK, alpha=style.BAND_ALPHA, lw=0)
    shared = title([method for task in tasks for method in task.arms.values()])
    return style.save(figure, path, legend, title=", ".join(filter(None, ["Diversity through training", shared])))


def draw_worths(worths: Sequence[Worth], path: Path, about: str = "") -> Path | None:
    """Draw a point for each task whose exact fronts are known, with its interval over seeds; ``None`` without any.

    ``about`` is what all runs share, for the title.
    """
    known = [(one, one.fronts.vector_worth) for one in worths if one.fronts is not None]
    if not known:
        return None
    known.sort(key=lambda pair: pair[1])
    figure = style.new_figure(height=5.0, width=11.0)
    legend: dict[str, Artist] = {}
    ends = [1.0, known[-1][1] * 1.05]
    for panel, k in enumerate((FEW, MANY)):
        axes = figure.add_subplot(1, 2, panel + 1)
        y = f"↑ utility: {VPO} / {NO_VECTOR}" * (not panel)
        style.dress(axes, f"{k} answers, utility@{k}", x="worth of the vector on the exact fronts", y=y)
        for number, (one, worth) in enumerate(known):
            gain = one.gains[panel]
            if gain is None:
                continue
            reach = np.nan_to_num([[gain.mean - gain.low], [gain.high - gain.mean]])
            # Points are tasks, so none has the colour of a method: dark if filled, grey if open.
            shade = style.INK if number % 2 else style.FAINT_INK
            look: dict[str, Any] = {"color": shade, "mfc": shade if number % 2 else style.PAPER}
            drawn = axes.errorbar(worth, gain.mean, yerr=reach, fmt=MARKERS[number % len(MARKERS)], capsize=3, **look)
            drawn[0].set_markersize(8)
            # Names in the legend, in the order of the axis: beside the points they would hide each other.
            legend[f"{one.task} ({worth:.2f})"] = drawn[0]
        legend["gain = worth of the vector"] = axes.plot(ends, ends, color=style.FAINT_INK, lw=1.2, ls=":")[0]
        legend["no gain"] = axes.axhline(1, color=style.INK, lw=1.2, ls=(0, (5, 3)))
        axes.xaxis.set_major_locator(style.round_ticks(6))
        axes.yaxis.set_major_locator(style.round_ticks(6))
    heading = "What drawn weightings gain over nearly equal ones (α = 1000)"
    return style.save(figure, path, legend, title=", ".join(filter(None, [heading, about])))
