"""Figures that compare methods: differences along k, and measures with both intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from vpo_agent.measure.intervals import difference_over_seeds, over_prompts, over_seeds
from vpo_agent.report import figure_style as style
from vpo_agent.report.looks import looks_of
from vpo_agent.report.methods import Method, title, units
from vpo_agent.report.tables import ARROWS


def draw_differences(methods: Sequence[Method], baseline: Method, path: Path) -> Path | None:
    """Draw utility@k and best@k minus the baseline's, with both intervals; ``None`` without another method."""
    others = [(method, look) for method, look in zip(methods, looks_of(methods), strict=True) if method is not baseline]
    if not others:
        return None
    kinds = ("utility@k", "best@k")
    figure = style.new_figure(height=7.6, width=11.0)
    legend: dict[str, Artist] = {}
    without = False
    for row, kind in enumerate(kinds):
        left = figure.add_subplot(len(kinds), 2, 2 * row + 1)
        right = figure.add_subplot(len(kinds), 2, 2 * row + 2, sharey=left)
        k = "k, answers to a prompt" if row else ""
        titles = ("", "") if row else ("95 % interval over prompts", "95 % interval over training seeds")
        style.dress(left, titles[0], x=k, y=f"↑ {kind}: method − {baseline.label}")
        style.dress(right, titles[1], x=k)
        ks, ours = baseline.curve(kind)
        for axes in (left, right):
            equal = axes.axhline(0, color=style.INK, lw=1.3, ls=(0, (5, 3)))
            legend[f"as good as {baseline.label}; above: better"] = equal
            style.log_axis(axes, ks)
            axes.yaxis.set_major_locator(style.round_ticks(7))
        for method, look in others:
            theirs = method.curve(kind).values
            paired = over_prompts((theirs - ours.mean(axis=0)).mean(axis=0))
            seeds = difference_over_seeds(ours.mean(axis=1), theirs.mean(axis=1))
            legend[method.label] = style.band_line(left, ks, paired, look, lw=2, ms=6, mew=0.8)
            if seeds is None:
                without = True
                right.plot(ks, paired.mean, color=look.colour, lw=1.4, ls=":")
            else:
                style.band_line(right, ks, seeds, look, lw=2, ms=6, mew=0.8)
    if without:
        legend["dotted: one seed, so no interval"] = Line2D([], [], color=style.FAINT_INK, lw=1.4, ls=":")
    legend["band: 95 % interval"] = Patch(facecolor=style.INK, alpha=style.BAND_ALPHA, lw=0)
    return style.save(figure, path, legend, columns=5, title=title(methods))


def draw_measures(methods: Sequence[Method], names: Sequence[str], path: Path) -> Path:
    """Draw each measure in a panel of its own, a row for each method: its mean, both intervals, and every seed."""
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure = style.new_figure(height=rows * (1.2 + 0.3 * len(methods)) + 0.5, width=12.0)
    for place, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, place + 1)
        # Methods may write different numbers of answers in a rollout, which a value per rollout depends on.
        better = ARROWS[methods[0].summaries[0].measures[name].better]
        style.dress(axes, f"{name}{better}", x="\nor ".join(units(methods, name)))
        for number, (method, look) in enumerate(zip(methods, looks_of(methods), strict=True)):
            values = method.values(name)
            prompts, seeds = over_prompts(values.mean(axis=0)), over_seeds(values.mean(axis=1))
            shade = look.colour
            axes.plot([prompts.low, prompts.high], [number] * 2, color=shade, lw=7, alpha=0.35, solid_capstyle="butt")
            if seeds is not None:
                reach = [[seeds.mean - seeds.low], [seeds.high - seeds.mean]]
                axes.errorbar([seeds.mean], [number], xerr=reach, color=shade, lw=1.3, capsize=4, fmt="none")
                each = [number + 0.24] * len(values)
                axes.plot(values.mean(axis=1), each, "o", mfc=style.PAPER, mec=shade, ms=4.5, ls="none")
            axes.plot([prompts.mean], [number], look.marker, color=shade, ms=6.5, mec=style.PAPER, mew=0.9)
        style.name_rows(axes, [method.label for method in methods])
        if place % columns:
            axes.set_yticks([])
        axes.grid(visible=False, axis="y")
        # No measure is below zero, though an interval over few seeds may be.
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(style.round_ticks(4))
    legend: dict[str, Artist] = {
        "mean": Line2D([], [], color=style.FAINT_INK, marker="o", ls="none", ms=6.5),
        "95 % interval over prompts": Line2D([], [], color=style.FAINT_INK, lw=7, alpha=0.35),
    }
    if any(len(method.summaries) > 1 for method in methods):
        circle: dict[str, Any] = {"mfc": style.PAPER, "mec": style.FAINT_INK, "marker": "o"}
        legend["one training seed"] = Line2D([], [], ls="none", ms=4.5, **circle)
        label = "95 % interval over training seeds (Student's t)"
        legend[label] = Line2D([], [], color=style.FAINT_INK, lw=1.3, marker="|", ms=9)
    return style.save(figure, path, legend, title=title(methods))
