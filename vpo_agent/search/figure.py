"""The figure of a search: instances solved against the answers or tokens sampled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.ticker import MaxNLocator

from vpo_agent.pages import figure_style as style
from vpo_agent.pages.looks import looks
from vpo_agent.search.records import SearchResult
from vpo_agent.search.settings import VALUE_NAMES

POINTS = 1000
"""The most budgets at which a curve is computed."""


def plot_solved(results: Mapping[str, SearchResult], path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draw the instances solved and the mean value of the answers against the budget, a curve for each search.

    ``results`` are the searches by name. Missing folders of ``path`` are created; it is returned.

    Raises:
        ValueError: There are no searches, or ``path`` does not end in ``.png``.
    """
    if not results:
        raise ValueError("no searches to plot: the mapping is empty; pass at least one SearchResult")
    goal = next(iter(results.values())).goal
    figure = style.new_figure(height=4.4)
    legend: dict[str, Artist] = {}
    panels = figure.subplots(1, 2)
    for axes, heading in zip(panels, ("Instances solved ↑", f"{VALUE_NAMES[goal].capitalize()} ↑, mean"), strict=True):
        style.dress(axes, heading)
        axes.xaxis.set_major_locator(style.round_ticks(5, whole=True))
    panels[0].yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=(1, 2, 5, 10)))
    for (name, result), look in zip(results.items(), looks(list(results)), strict=True):
        budgets = np.unique(np.linspace(1, result.budget, POINTS).astype(int)).tolist()
        values, solved = result.value_within(budgets), result.solved_within(budgets)
        for axes, curve in zip(panels, (solved.sum(axis=0), values.mean(axis=0)), strict=True):
            drawn: dict[str, Any] = {"color": look.colour, "marker": look.marker, "ls": look.line, "mec": style.PAPER}
            drawn |= {"drawstyle": "steps-post", "markevery": max(1, len(curve) // 8)}
            legend[name] = axes.plot(budgets, curve, lw=2.0, ms=6, mew=1.0, **drawn)[0]
    optimum = [one.optimum for one in next(iter(results.values())).instances]
    known = [value for value in optimum if value is not None]
    if len(known) == len(optimum):
        legend["exact front's optimum"] = panels[1].axhline(float(np.mean(known)), color=style.INK, lw=1.3, ls="--")
    for axes in panels:
        style.from_zero(axes)
    unit = next(iter(results.values())).unit
    figure.supxlabel(f"{unit}s sampled per instance", color=style.FAINT_INK, fontsize=11)
    return style.save(figure, path, legend, title=title)
