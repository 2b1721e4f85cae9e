"""Learning curves: of one run, and of several methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import ceil, isfinite
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.patches import Patch
from scipy.ndimage import gaussian_filter1d

from vpo_agent.measure.measures import name_at
from vpo_agent.measure.pool import Floats
from vpo_agent.pages import figure_style as style
from vpo_agent.report.methods import Method, looks_of
from vpo_agent.report.methods import title as method_title

FEWEST_TO_SMOOTH = 8
SHOWN_AT = (("utility", 1), ("utility", 3), ("utility", 30), ("best", 1), ("best", 10), ("best", 30))
PANELS = (
    ("Set score ↑, training prompts", "train", "set_score"),
    ("Diversity ↑, training prompts", "train", "diversity"),
    ("Diversity ↑, validation prompts", "eval", "diversity"),
    ("Utility of a response ↑, validation", "eval", "expected_utility"),
    *((f"{name} ↑, validation", "eval", name.replace(" ", "_")) for name in (name_at(kind, k) for kind, k in SHOWN_AT)),
)
"""Title, kind of row, key. Each method has a set score of its own, so the first is drawn for one method alone."""


def draw_learning(methods: Sequence[Method], path: Path) -> Path | None:
    """Draw means over seeds, in bands from the lowest to the highest seed; return ``None`` without any rows.

    A panel without values is left out. If a step occurs twice, as after a resume, the later row counts. A missing, null
    or non-finite value is a gap.
    """
    panels = []
    looks = looks_of(methods)
    for title, kind, key in PANELS if len(methods) == 1 else PANELS[1:]:
        lines = []
        for method, look in zip(methods, looks, strict=True):
            steps, values = over_steps(method, kind, key)
            if len(steps):
                lines.append((method.label, look, steps, values))
        if lines:
            panels.append((title, kind, lines))
    if not panels:
        return None
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.new_figure(height=2.8 * rows + 0.6, width=12.0)
    legend: dict[str, Artist] = {}
    for number, (title, kind, lines) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        style.dress(axes, title)
        for label, look, steps, values in lines:
            smooth = kind == "train" and len(steps) >= FEWEST_TO_SMOOTH
            shown = np.stack([_smoothed(row) for row in values]) if smooth else values
            if len(shown) > 1:
                low, high = shown.min(axis=0), shown.max(axis=0)
                axes.fill_between(steps, low, high, color=look.colour, alpha=style.BAND_ALPHA, lw=0)
            symbol = "" if smooth else look.marker
            drawn: dict[str, Any] = {"color": look.colour, "ls": look.line, "mec": style.PAPER}
            line = axes.plot(steps, shown.mean(axis=0), lw=1.8, marker=symbol, ms=5, **drawn)
            if kind == "eval" or label not in legend:
                legend[label] = line[0]
        axes.xaxis.set_major_locator(style.round_ticks(5, whole=True))
        style.from_zero(axes)
        axes.yaxis.set_major_locator(style.round_ticks(5))
    figure.supxlabel("training step (training curves are smoothed)", color=style.FAINT_INK, fontsize=11)
    if any(len(method.rows) > 1 for method in methods):
        legend["band: lowest to highest seed"] = Patch(facecolor=style.INK, alpha=style.BAND_ALPHA, lw=0)
    return style.save(figure, path, legend, columns=6, title=method_title(methods))


def over_steps(method: Method, kind: str, key: str) -> tuple[Floats, Floats]:
    """Return the steps that all seeds have, (t,), and the values there, (seeds, t)."""
    all_series = [_series(rows, kind, key) for rows in method.rows]
    series = [(steps, values) for steps, values in all_series if len(steps)]
    if not series:
        return np.zeros(0), np.zeros((0, 0))
    common = reduce(np.intersect1d, [steps for steps, _ in series])
    return common, np.stack([values[np.isin(steps, common)] for steps, values in series])


def _series(metrics: Sequence[Mapping[str, object]], kind: str, key: str) -> tuple[Floats, Floats]:
    """Return the steps, ascending, and the values of one key in the rows of one kind."""
    value_at: dict[float, float] = {}
    for row in metrics:
        step, value = row.get("step"), row.get(key)
        if row.get("kind") != kind or not isinstance(step, Real) or not isinstance(value, Real):
            continue
        if isfinite(step) and isfinite(value):
            value_at[float(step)] = float(value)
    steps, values = np.array(sorted(value_at.items()), dtype=np.float64).reshape(-1, 2).T
    return steps, values


def _smoothed(values: Floats) -> Floats:
    """Smooth by a Gaussian a fortieth of the run wide: centred, so that it never lags, and renormalised at the ends."""
    width = max(1.0, len(values) / 40)
    radius = ceil(3 * width)
    blurred = gaussian_filter1d(values, width, mode="constant", radius=radius)
    weight = gaussian_filter1d(np.ones(len(values)), width, mode="constant", radius=radius)
    return np.asarray(blurred / weight)
