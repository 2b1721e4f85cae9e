"""Pictures of a run: learning curves, and best@k before and after training.

Files are written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import TypeGuard

import numpy as np
from matplotlib.artist import Artist
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from vpo_agent.report.figure_style import (
    FAINT_INK,
    PAPER,
    ROUND_STEPS,
    dress,
    legend_above,
    new_figure,
    save,
)

Floats = NDArray[np.float64]

_TRAIN, _EVAL = "#0072b2", "#d55e00"

FEWEST_TO_SMOOTH = 8

_PANELS = (
    ("Set score", "set_score", "set_score"),
    ("Completion", "completion", "completion"),
    ("Diversity (mean L1 distance)", "diversity", "diversity"),
    ("Expected utility", "expected_utility", "expected_utility"),
)
"""Title, key in training rows, key in evaluation rows."""

# ------------------------------------------------------------------------------------------ the pictures


def plot_learning_curves(metrics: Sequence[Mapping[str, object]], path: str | os.PathLike[str]) -> Path:
    """Draw set score, completion, diversity and expected utility over the steps of a run.

    Training values are drawn faint as they are and smoothed on top; evaluations, on held-out prompts, as markers. A
    panel without values is left out. Where a step occurs twice, as after a resume, the later row counts.

    Args:
        metrics: Rows of the run's ``metrics.jsonl``: ``kind`` ("train" or "eval"), ``step`` and any of the panels'
            values. A missing, null or non-finite value is a gap; other keys and kinds are ignored.
        path: Where the PNG goes; missing folders are made.

    Returns:
        The path written.

    Raises:
        ValueError: If no row has anything to draw, or ``path`` does not end in ``.png``.
    """
    if not metrics:
        raise ValueError("no metrics to plot: the list is empty; pass the rows of a run's metrics.jsonl")
    panels = [
        (title, series(metrics, "train", train_key), series(metrics, "eval", eval_key))
        for title, train_key, eval_key in _PANELS
    ]
    panels = [(title, train, held_out) for title, train, held_out in panels if len(train[0]) or len(held_out[0])]
    if not panels:
        keys = ", ".join(dict.fromkeys(key for _, *names in _PANELS for key in names))
        raise ValueError(
            f"none of the {len(metrics)} metrics rows has a step and one of {keys}; pass train or eval rows"
        )

    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(height=2.75 * rows + 0.35)
    legend: dict[str, Artist] = {}
    all_steps = np.concatenate([steps for _, *both in panels for steps, _ in both])
    margin = 0.03 * float(np.ptp(all_steps)) or 1.0
    for position, (title, (steps, values), (eval_steps, eval_values)) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, position + 1)
        dress(axes, title)
        if len(steps) >= FEWEST_TO_SMOOTH:
            raw = axes.plot(steps, values, color=_TRAIN, alpha=0.3, lw=0.9)
            smooth = axes.plot(steps, smoothed(values), color=_TRAIN, lw=2.2, solid_capstyle="round")
            legend.setdefault("training, each step", raw[0])
            legend.setdefault("training, smoothed", smooth[0])
        elif len(steps):
            short = axes.plot(steps, values, color=_TRAIN, lw=1.4, marker="s", ms=6, mec=PAPER, mew=1.0)
            legend.setdefault("training", short[0])
        if len(eval_steps):
            held_out = axes.plot(
                eval_steps, eval_values, color=_EVAL, lw=1.4, marker="o", ms=6, mec=PAPER, mew=1.0, zorder=4
            )
            legend.setdefault("held-out prompts", held_out[0])
        axes.set_xlim(all_steps.min() - margin, all_steps.max() + margin)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=ROUND_STEPS))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=ROUND_STEPS))
    figure.supxlabel("training step", color=FAINT_INK, fontsize=11)
    legend_above(figure, legend)
    return save(figure, path)


# ------------------------------------------------------------------------------------------ their data


def series(metrics: Sequence[Mapping[str, object]], kind: str, key: str) -> tuple[Floats, Floats]:
    """Steps, ascending, and values of one key in the rows of one kind."""
    found: dict[float, float] = {}
    for row in metrics:
        step, value = row.get("step"), row.get(key)
        if row.get("kind") == kind and _is_number(step) and _is_number(value):
            found[float(step)] = float(value)
    steps = sorted(found)
    return np.array(steps, dtype=np.float64), np.array([found[step] for step in steps], dtype=np.float64)


def smoothed(values: Floats) -> Floats:
    """A Gaussian average, a fortieth of the run wide: centred, so that it never lags, and renormalised at the ends."""
    width = max(1.0, len(values) / 40)
    reach = min(int(np.ceil(3 * width)), len(values) - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    inside = slice(reach, reach + len(values))
    total = np.convolve(values, kernel)[inside]
    return np.asarray(total / np.convolve(np.ones(len(values)), kernel)[inside])


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and isfinite(value)
