"""Learning curves: of one run, and of several methods side by side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from matplotlib.artist import Artist
from matplotlib.patches import Patch

from vpo_agent.pareto.pool import Floats
from vpo_agent.report.figure_style import (
    BAND_ALPHA,
    FAINT_INK,
    INK,
    PAPER,
    colour,
    dress,
    legend_above,
    marker,
    new_figure,
    round_ticks,
    save,
)
from vpo_agent.report.methods import Method

FEWEST_TO_SMOOTH = 8
PANELS_OF_A_RUN = {
    "set_score": "Set score",
    "completion": "Completion",
    "diversity": "Diversity (mean L1 distance)",
    "expected_utility": "Expected utility of a rollout",
}
"""Titles by key, in the rows of training and of evaluation alike."""
PANELS_OF_METHODS = (
    ("Diversity, training prompts", "train", "diversity"),
    ("Diversity, validation prompts", "eval", "diversity"),
    ("Expected utility per rollout, validation", "eval", "expected_utility"),
    ("Expected utility of the pool, validation", "eval", "pool_utility"),
    ("best@1, validation prompts", "eval", "best@1"),
    ("best@10, validation prompts", "eval", "best@10"),
    ("best@30, validation prompts", "eval", "best@30"),
)
"""Title, kind of row, key. The set score is left out: each method has its own, so they do not compare."""


def plot_learning_curves(metrics: Sequence[Mapping[str, object]], path: str | os.PathLike[str]) -> Path:
    """Draw set score, completion, diversity and expected utility over the steps of a run.

    Training values are drawn faint, with a smoothed line on top; evaluations on held-out prompts are drawn as markers.
    A panel without values is left out. If a step occurs twice, as after a resume, the later row counts.

    Args:
        metrics: Rows of the run's ``metrics.jsonl``: ``kind`` ("train" or "eval"), ``step`` and any of the panels'
            values. A missing, null or non-finite value is a gap; other keys and kinds are ignored.
        path: Where the PNG goes; missing folders are created.

    Returns:
        The path written.

    Raises:
        ValueError: No row has anything to draw, or ``path`` does not end in ``.png``.
    """
    if not metrics:
        raise ValueError("no metrics to plot: the list is empty; pass the rows of a run's metrics.jsonl")
    found = {key: (series(metrics, "train", key), series(metrics, "eval", key)) for key in PANELS_OF_A_RUN}
    found = {key: both for key, both in found.items() if len(both[0][0]) or len(both[1][0])}
    if not found:
        raise ValueError(
            f"none of the {len(metrics)} metrics rows has a step and one of {', '.join(PANELS_OF_A_RUN)}; pass train "
            "or eval rows"
        )
    columns = min(2, len(found))
    rows = -(-len(found) // columns)
    figure = new_figure(height=2.75 * rows + 0.35)
    legend: dict[str, Artist] = {}
    all_steps = np.concatenate([steps for both in found.values() for steps, _ in both])
    margin = 0.03 * float(np.ptp(all_steps)) or 1.0
    points: dict[str, Any] = {"lw": 1.4, "ms": 6, "mec": PAPER, "mew": 1.0}
    train, held_out = colour(0), colour(1)
    for position, (key, ((steps, values), evaluations)) in enumerate(found.items()):
        axes = figure.add_subplot(rows, columns, position + 1)
        dress(axes, PANELS_OF_A_RUN[key])
        if len(steps) >= FEWEST_TO_SMOOTH:
            legend["training, each step"] = axes.plot(steps, values, color=train, alpha=0.3, lw=0.9)[0]
            (smooth,) = axes.plot(steps, smoothed(values), color=train, lw=2.2, solid_capstyle="round")
            legend["training, smoothed"] = smooth
        elif len(steps):
            legend["training"] = axes.plot(steps, values, color=train, marker="s", **points)[0]
        if len(evaluations[0]):
            (line,) = axes.plot(*evaluations, color=held_out, marker="o", zorder=4, **points)
            legend["held-out prompts"] = line
        axes.set_xlim(all_steps.min() - margin, all_steps.max() + margin)
        axes.xaxis.set_major_locator(round_ticks(6, whole=True))
        axes.yaxis.set_major_locator(round_ticks(5))
    figure.supxlabel("training step", color=FAINT_INK, fontsize=11)
    legend_above(figure, legend)
    return save(figure, path)


def draw_learning(methods: Sequence[Method], path: Path) -> Path | None:
    """Draw means over seeds, in bands from the lowest to the highest seed; return ``None`` without any rows."""
    panels = []
    for title, kind, key in PANELS_OF_METHODS:
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
            smooth = kind == "train" and len(steps) >= FEWEST_TO_SMOOTH
            shown = np.stack([smoothed(row) for row in values]) if smooth else values
            if len(shown) > 1:
                low, high = shown.min(axis=0), shown.max(axis=0)
                axes.fill_between(steps, low, high, color=colour(number), alpha=BAND_ALPHA, lw=0)
            look = "" if smooth else marker(number)
            line = axes.plot(steps, shown.mean(axis=0), color=colour(number), lw=1.8, marker=look, ms=5, mec=PAPER)
            if kind == "eval" or methods[number].label not in legend:
                legend[methods[number].label] = line[0]
        axes.xaxis.set_major_locator(round_ticks(5, whole=True))
        axes.yaxis.set_major_locator(round_ticks(5))
    figure.supxlabel("training step (training curves are smoothed)", color=FAINT_INK, fontsize=11)
    if any(len(method.rows) > 1 for method in methods):
        legend["band: lowest to highest seed"] = Patch(facecolor=INK, alpha=BAND_ALPHA, lw=0)
    legend_above(figure, legend, columns=6)
    return save(figure, path)


def _over_steps(method: Method, kind: str, key: str) -> tuple[Floats, Floats]:
    """Return the steps that all seeds have, (t,), and the values there, (seeds, t)."""
    lines = [line for line in (series(rows, kind, key) for rows in method.rows) if len(line[0])]
    if not lines:
        return np.zeros(0), np.zeros((0, 0))
    common = lines[0][0]
    for steps, _ in lines[1:]:
        common = np.intersect1d(common, steps)
    return common, np.stack([values[np.isin(steps, common)] for steps, values in lines])


def series(metrics: Sequence[Mapping[str, object]], kind: str, key: str) -> tuple[Floats, Floats]:
    """Return the steps, ascending, and the values of one key in the rows of one kind."""
    found: dict[float, float] = {}
    for row in metrics:
        step, value = row.get("step"), row.get(key)
        if row.get("kind") == kind and _is_number(step) and _is_number(value):
            found[float(step)] = float(value)
    steps = sorted(found)
    return np.array(steps, dtype=np.float64), np.array([found[step] for step in steps], dtype=np.float64)


def smoothed(values: Floats) -> Floats:
    """Smooth by a Gaussian a fortieth of the run wide: centred, so that it never lags, and renormalised at the ends."""
    width = max(1.0, len(values) / 40)
    reach = min(int(np.ceil(3 * width)), len(values) - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    inside = slice(reach, reach + len(values))
    total = np.convolve(values, kernel)[inside]
    return np.asarray(total / np.convolve(np.ones(len(values)), kernel)[inside])


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and isfinite(value)
