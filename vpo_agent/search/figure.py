"""The figure of a search: instances solved against answers sampled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.ticker import MaxNLocator

from vpo_agent.report import figure_style as style
from vpo_agent.search.goal import VALUE_NAMES
from vpo_agent.search.records import TOLERANCE, SearchResult


def plot_solved(
    results: Mapping[str, SearchResult], path: str | os.PathLike[str], *, tolerance: float = TOLERANCE
) -> Path:
    """Draw the instances solved and the mean value of the answers against their number, a curve for each search.

    ``results`` are the searches by name. Instances within ``tolerance`` of their optimum count as solved. Missing
    folders of ``path`` are created; it is returned.

    Raises:
        ValueError: There are no searches, or ``path`` does not end in ``.png``.
    """
    if not results:
        raise ValueError("no searches to plot: the mapping is empty; pass at least one SearchResult")
    goal = next(iter(results.values())).goal
    figure = style.new_figure(height=4.4)
    legend: dict[str, Artist] = {}
    panels = figure.subplots(1, 2)
    for axes, title in zip(panels, ("Instances solved", f"{VALUE_NAMES[goal].capitalize()}, mean"), strict=True):
        style.dress(axes, title)
        axes.xaxis.set_major_locator(style.round_ticks(5, whole=True))
    panels[0].yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=(1, 2, 5, 10)))
    for number, (name, result) in enumerate(results.items()):
        curves = (result.solved(tolerance).sum(axis=0), result.value().mean(axis=0))
        for axes, curve in zip(panels, curves, strict=True):
            answers = np.arange(1, len(curve) + 1)
            look: dict[str, Any] = {"color": style.colour(number), "marker": style.marker(number), "mec": style.PAPER}
            look |= {"drawstyle": "steps-post", "markevery": max(1, len(curve) // 8)}
            legend[name] = axes.plot(answers, curve, lw=2.0, ms=6, mew=1.0, **look)[0]
    optimum = [one.optimum for one in next(iter(results.values())).instances]
    known = [value for value in optimum if value is not None]
    if len(known) == len(optimum):
        legend["exact front's optimum"] = panels[1].axhline(float(np.mean(known)), color=style.INK, lw=1.3, ls="--")
    figure.supxlabel("answers sampled per instance", color=style.FAINT_INK, fontsize=11)
    return style.save(figure, path, legend)
