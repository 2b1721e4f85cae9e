"""Figures of one method or of several side by side: search curves and fronts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator

from vpo_agent.measure.intervals import SAID
from vpo_agent.measure.measures import SINGLY, WHOLE, name_at
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.summary import BY_TOKENS
from vpo_agent.pages import figure_style as style
from vpo_agent.pages.figure_style import Look
from vpo_agent.report.methods import Method, common_names, looks_of, title
from vpo_envs.pareto import non_dominated

Pair = tuple[int, int]
"""Two objectives by their places."""
PANELS = {
    name_at("utility", "k"): "utility@k ↑ (over random weightings, 0 to 1)",
    name_at("best", "k"): "best@k ↑ (scalar reward, 0 to 1)",
    "pass@k": "pass@k ↑ (share of prompts)",
    BY_TOKENS: "utility ↑ (over random weightings, 0 to 1)",
}
"""Labels of the search curves by name, in order."""
BUBBLE = 900.0
"""Area in square points of a bubble that holds every answer."""
BINS = 20
"""Rewards are grouped into bubbles on a grid of this many steps from 0 to 1."""


def draw_curves(methods: Sequence[Method], path: Path) -> Path:
    """Draw utility@k and best@k and, if they are known, pass@k and the utility by generated tokens.

    Answers are drawn singly. A single method also gets its curves in whole responses, in place of the curve by tokens.
    """
    known = common_names(methods, "curves")
    panels = [name for name in PANELS if name in known and (len(methods) > 1 or name != BY_TOKENS)]
    columns = 3 if len(panels) == 3 else 2
    rows = -(-len(panels) // columns)
    figure = style.new_figure(height=3.9 * rows + 0.5, width=12.5 if columns == 3 else 11.0)
    legend: dict[str, Artist] = {}
    first = methods[0].summaries[0]
    for number, name in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        by_tokens = name == BY_TOKENS
        x = "generated tokens per prompt, in whole responses" if by_tokens else f"k, answers per prompt, {SINGLY}"
        style.dress(axes, "", x=x, y=PANELS[name])
        for method, look in zip(methods, looks_of(methods), strict=True):
            label = method.label if len(methods) > 1 else SINGLY
            legend.setdefault(label, _curve(axes, method, name, look))
        whole = name.replace(SINGLY, WHOLE)
        if len(methods) == 1 and whole != name and whole in known:
            look = looks_of(methods)[0]._replace(marker="D", line="--")
            legend[WHOLE] = _curve(axes, methods[0], whole, look)
        ceiling = {name_at("best", "k"): first.optimum, "pass@k": None}.get(name, first.front_utility)
        if ceiling is not None:
            line = axes.axhline(float(ceiling.mean()), color=style.INK, lw=1.3, ls=(0, (5, 3)))
            legend["best on the exact fronts"] = line
        if not by_tokens:
            style.log_axis(axes, methods[0].curve(name).ks)
        style.from_zero(axes)
        axes.yaxis.set_major_locator(style.round_ticks(7))
    seeds = any(len(method.summaries) > 1 for method in methods)
    band = f"band: {SAID if seeds else '95 % interval over prompts'}"
    legend[band] = Patch(facecolor=style.INK, alpha=style.BAND_ALPHA, lw=0)
    if seeds:
        legend["thin line: one training seed"] = Line2D([], [], color=style.FAINT_INK, lw=0.8)
    return style.save(figure, path, legend, title=title(methods))


def _curve(axes: Axes, method: Method, name: str, look: Look) -> Artist:
    ks, values = method.curve(name)
    if len(values) > 1:
        for seed in values.mean(axis=1):
            axes.plot(ks, seed, color=look.colour, lw=0.8, alpha=0.75)
    return style.band_line(axes, ks, method.band(values), look, lw=2.2, ms=6.5, mew=1.0, zorder=3)


def default_pairs(pool: Pool) -> list[Pair]:
    """Return the pairs of objectives with the most points to trade off, on the fronts or else among the answers."""
    sets = pool.answers() if pool.fronts is None else pool.fronts

    def points(pair: Pair) -> float:
        return float(np.mean([non_dominated(np.asarray(vectors)[:, list(pair)]).sum() for vectors in sets]))

    pairs = sorted(combinations(range(len(pool.objectives)), 2), key=points, reverse=True)
    return pairs[:1] + [pair for pair in pairs[1:3] if points(pair) > 1.05]


def draw_fronts(methods: Sequence[Method], pairs: Sequence[Pair], path: Path) -> Path | None:
    """Draw answers and exact fronts in the plane of two objectives; return ``None`` if there is no pair.

    A filled bubble's area shows a share of the answers of a method's first run, a ring's area a share of the fronts'
    points.
    """
    if not pairs:
        return None
    # The pairs of a single method are side by side; several methods have one row per pair.
    rows, columns = (1, len(pairs)) if len(methods) == 1 else (len(pairs), len(methods))
    figure = style.new_figure(height=3.5 * rows + 0.5, width=max(5.2, min(3.4 * columns, 16.5) + 0.6))
    methods_with_looks = list(zip(methods, looks_of(methods), strict=True))
    for number, (pair, (method, look)) in enumerate(product(pairs, methods_with_looks), start=1):
        pool = method.summaries[0].pool
        axes = figure.add_subplot(rows, columns, number)
        heading = method.label if len(methods) > 1 and number <= columns else ""
        across, up = pair
        style.dress(axes, heading, x=f"{pool.objectives[across]} ↑", y=f"{pool.objectives[up]} ↑")
        prompts = np.flatnonzero(pool.active[:, pair].all(axis=1))
        answers = pool.answers()[prompts][:, :, list(pair)].reshape(-1, 2)
        _bubbles(axes, answers, facecolor=look.colour, alpha=0.75, lw=0)
        if pool.fronts is not None and len(prompts):
            points = np.concatenate([pool.fronts[prompt][:, list(pair)] for prompt in prompts])
            _bubbles(axes, points, facecolor="none", edgecolor=style.INK, lw=1.3)
        axes.set_xlim(-0.13, 1.13)
        axes.set_ylim(-0.13, 1.13)
        axes.set_box_aspect(1)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    blank: dict[str, Any] = {"color": "none", "marker": "o", "ms": np.sqrt(BUBBLE * 0.1)}
    shade = looks_of(methods)[0].colour if len(methods) == 1 else style.FAINT_INK
    legend: dict[str, Artist] = {"a tenth of all answers": Line2D([], [], mfc=shade, mec="none", alpha=0.75, **blank)}
    if methods[0].summaries[0].pool.fronts is not None:
        legend["a tenth of the exact fronts' points"] = Line2D([], [], mfc="none", mec=style.INK, mew=1.3, **blank)
    return style.save(figure, path, legend, columns=2 if columns > 1 else 1, title=title(methods))


def _bubbles(axes: Axes, points: Floats, **look: Any) -> None:
    if len(points):
        centres, counts = np.unique(np.round(points * BINS) / BINS, axis=0, return_counts=True)
        axes.scatter(centres[:, 0], centres[:, 1], s=BUBBLE * counts / counts.sum(), **look)
