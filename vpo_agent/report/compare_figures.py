"""Figures that set methods against each other: differences, measures with both intervals, learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from vpo_agent.pareto.intervals import Band, difference_over_seeds, over_prompts, over_seeds
from vpo_agent.pareto.pool import Floats
from vpo_agent.report.figure_style import FAINT_INK, INK, PAPER, ROUND_STEPS, dress, legend_above, new_figure, save
from vpo_agent.report.figures import at_ticks, colour, log_axis, marker
from vpo_agent.report.methods import Method
from vpo_agent.report.plots import FEWEST_TO_SMOOTH, series, smoothed

LEARNING = (
    ("Diversity, training prompts", "train", "diversity"),
    ("Diversity, validation prompts", "eval", "diversity"),
    ("Expected utility, validation prompts", "eval", "expected_utility"),
    ("best@1, validation prompts", "eval", "best@1"),
    ("best@10, validation prompts", "eval", "best@10"),
    ("best@30, validation prompts", "eval", "best@30"),
)
"""Title, kind of row, key. The set score is left out: each method has its own, so they do not compare."""


def draw_differences(methods: Sequence[Method], baseline: Method, path: Path) -> Path | None:
    """best@k of every method less that of the baseline, with its interval over prompts and, apart, over seeds.

    ``None`` where there is nothing to compare with.
    """
    others = [(number, method) for number, method in enumerate(methods) if method is not baseline]
    if not others:
        return None
    figure = new_figure(height=4.4, width=11.0)
    legend: dict[str, Artist] = {}
    panels = ("Other prompts, these trained models", "Other training seeds, these prompts")
    left = figure.add_subplot(1, 2, 1)
    right = figure.add_subplot(1, 2, 2, sharey=left)
    for axes, title in zip((left, right), panels, strict=True):
        dress(axes, title)
        legend[f"{baseline.label} (baseline)"] = axes.axhline(0, color=INK, lw=1.3, ls=(0, (5, 3)))
    without = []
    for number, method in others:
        paired = over_prompts((method.best - baseline.best.mean(axis=0)).mean(axis=0))
        seeds = difference_over_seeds(baseline.best.mean(axis=1), method.best.mean(axis=1))
        legend[method.label] = _band_line(left, method, number, paired)
        if seeds is None:
            without.append(method.label)
            right.plot(method.ks, paired.mean, color=colour(number), lw=1.4, ls=":")
        else:
            _band_line(right, method, number, seeds)
    for axes in (left, right):
        log_axis(axes, baseline.ks)
        axes.set_xlabel("k, answers to a prompt", color=FAINT_INK, fontsize=11)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=ROUND_STEPS))
    left.set_ylabel(f"best@k less that of {baseline.label}", color=FAINT_INK, fontsize=11)
    if without:
        legend["dotted: one seed, so no interval"] = Line2D([], [], color=FAINT_INK, lw=1.4, ls=":")
    legend["band: 95 % interval"] = Patch(facecolor=INK, alpha=0.16, lw=0)
    legend_above(figure, legend, columns=5)
    return save(figure, path)


def _band_line(axes: Axes, method: Method, number: int, band: Band) -> Artist:
    axes.fill_between(method.ks, band.low, band.high, color=colour(number), alpha=0.16, lw=0)
    look: dict[str, Any] = {"color": colour(number), "marker": marker(number), "mec": PAPER}
    line = axes.plot(method.ks, band.mean, lw=2, ms=6, mew=0.8, **look)[0]
    line.set_markevery(at_ticks(method.ks))
    return line


def draw_measures(methods: Sequence[Method], names: Sequence[str], path: Path) -> Path:
    """Each measure in a panel of its own, a row for each method: its mean, both intervals, and every seed."""
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(height=rows * (0.95 + 0.3 * len(methods)) + 0.5, width=12.0)
    for place, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, place + 1)
        dress(axes, name)
        for number, method in enumerate(methods):
            values = method.values(name)
            prompts = over_prompts(values.mean(axis=0)[:, None])
            shade = colour(number)
            axes.plot(
                [prompts.low[0], prompts.high[0]], [number] * 2, color=shade, lw=7, alpha=0.35, solid_capstyle="butt"
            )
            seeds = over_seeds(values.mean(axis=1)[:, None])
            if seeds is not None:
                ends = [[prompts.mean[0] - seeds.low[0]], [seeds.high[0] - prompts.mean[0]]]
                axes.errorbar(prompts.mean, [number], xerr=ends, color=shade, lw=1.3, capsize=4, fmt="none")
                axes.plot(
                    values.mean(axis=1), [number + 0.24] * len(values), "o", mfc=PAPER, mec=shade, ms=4.5, ls="none"
                )
            axes.plot(prompts.mean, [number], marker(number), color=shade, ms=6.5, mec=PAPER, mew=0.9)
        axes.set_yticks(range(len(methods)), [method.label for method in methods] if place % columns == 0 else [])
        axes.set_ylim(len(methods) - 0.4, -0.6)
        axes.tick_params(axis="y", labelcolor=INK, length=0)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=ROUND_STEPS))
    legend: dict[str, Artist] = {
        "mean": Line2D([], [], color=FAINT_INK, marker="o", ls="none", ms=6.5),
        "95 % interval over prompts": Line2D([], [], color=FAINT_INK, lw=7, alpha=0.35),
    }
    if any(len(method.summaries) > 1 for method in methods):
        legend["one training seed"] = Line2D([], [], mfc=PAPER, mec=FAINT_INK, marker="o", ls="none", ms=4.5)
        legend["95 % interval over training seeds (Student's t)"] = Line2D(
            [], [], color=FAINT_INK, lw=1.3, marker="|", ms=9
        )
    legend_above(figure, legend, columns=4)
    return save(figure, path)


def draw_learning(methods: Sequence[Method], path: Path) -> Path | None:
    """Learning curves: the mean over seeds, in a band from the lowest to the highest seed; ``None`` without any."""
    panels = []
    for title, kind, key in LEARNING:
        lines = [(number, *_over_steps(method, kind, key)) for number, method in enumerate(methods)]
        found = [(number, steps, values) for number, steps, values in lines if len(steps)]
        if found:
            panels.append((title, kind, found))
    if not panels:
        return None
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(height=2.8 * rows + 0.6, width=12.0)
    legend: dict[str, Artist] = {}
    for place, (title, kind, found) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        dress(axes, title)
        for number, steps, values in found:
            shade = colour(number)
            smooth = kind == "train" and len(steps) >= FEWEST_TO_SMOOTH
            shown = np.stack([smoothed(row) for row in values]) if smooth else values
            if len(shown) > 1:
                axes.fill_between(steps, shown.min(axis=0), shown.max(axis=0), color=shade, alpha=0.18, lw=0)
            line = axes.plot(
                steps, shown.mean(axis=0), color=shade, lw=1.8, marker="" if smooth else marker(number), ms=5, mec=PAPER
            )
            if kind == "eval" or methods[number].label not in legend:
                legend[methods[number].label] = line[0]
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=ROUND_STEPS))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=ROUND_STEPS))
    figure.supxlabel("training step (training curves are smoothed)", color=FAINT_INK, fontsize=11)
    if any(len(values) > 1 for _, _, found in panels for _, _, values in found):
        legend["band: lowest to highest seed"] = Patch(facecolor=INK, alpha=0.18, lw=0)
    legend_above(figure, legend, columns=6)
    return save(figure, path)


def _over_steps(method: Method, kind: str, key: str) -> tuple[Floats, Floats]:
    """Steps that all seeds have, (t,), and the values there, (seeds, t)."""
    lines = [series(rows, kind, key) for rows in method.rows if rows]
    lines = [line for line in lines if len(line[0])]
    if not lines:
        return np.zeros(0), np.zeros((0, 0))
    common = lines[0][0]
    for steps, _ in lines[1:]:
        common = np.intersect1d(common, steps)
    return common, np.stack([values[np.isin(steps, common)] for steps, values in lines])
