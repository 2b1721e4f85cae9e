"""Figures that compare methods: differences along k, and measures with both intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from vpo_agent.pages import figure_style as style
from vpo_agent.report.methods import Method, looks_of, title, units
from vpo_agent.report.tables import ARROWS


def draw_differences(methods: Sequence[Method], baseline: Method, path: Path) -> Path | None:
    """Draw utility@k and best@k minus the baseline's, with intervals; ``None`` without another method."""
    others = [(method, look) for method, look in zip(methods, looks_of(methods), strict=True) if method is not baseline]
    if not others:
        return None
    figure = style.new_figure(height=4.2, width=11.0)
    legend: dict[str, Artist] = {}
    for place, kind in enumerate(("utility@k", "best@k")):
        axes = figure.add_subplot(1, 2, place + 1)
        style.dress(axes, "", x="k, answers to a prompt", y=f"↑ {kind}: method − {baseline.label}")
        ks, ours = baseline.curve(kind)
        equal = axes.axhline(0, color=style.INK, lw=1.3, ls=(0, (5, 3)))
        legend[f"as good as {baseline.label}; above: better"] = equal
        style.log_axis(axes, ks)
        axes.yaxis.set_major_locator(style.round_ticks(7))
        for method, look in others:
            band = method.band(method.curve(kind).values, ours)
            legend[method.label] = style.band_line(axes, ks, band, look, lw=2, ms=6, mew=0.8)
    legend["band: 95 % interval"] = Patch(facecolor=style.INK, alpha=style.BAND_ALPHA, lw=0)
    return style.save(figure, path, legend, columns=5, title=title(methods))


def draw_measures(methods: Sequence[Method], names: Sequence[str], path: Path) -> Path:
    """Draw each measure in a panel of its own, a row for each method: its mean, interval, and every seed."""
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
            band, shade = method.band(values), look.colour
            axes.plot([band.low, band.high], [number] * 2, color=shade, lw=7, alpha=0.35, solid_capstyle="butt")
            if len(values) > 1:
                each = [number + 0.24] * len(values)
                axes.plot(values.mean(axis=1), each, "o", mfc=style.PAPER, mec=shade, ms=4.5, ls="none")
            axes.plot([band.mean], [number], look.marker, color=shade, ms=6.5, mec=style.PAPER, mew=0.9)
        style.name_rows(axes, [method.label for method in methods])
        if place % columns:
            axes.set_yticks([])
        axes.grid(visible=False, axis="y")
        # No measure is below zero, though an interval over few seeds may be.
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(style.round_ticks(4))
    legend: dict[str, Artist] = {
        "mean": Line2D([], [], color=style.FAINT_INK, marker="o", ls="none", ms=6.5),
        "95 % interval": Line2D([], [], color=style.FAINT_INK, lw=7, alpha=0.35),
    }
    if any(len(method.summaries) > 1 for method in methods):
        circle: dict[str, Any] = {"mfc": style.PAPER, "mec": style.FAINT_INK, "marker": "o"}
        legend["one training seed"] = Line2D([], [], ls="none", ms=4.5, **circle)
    return style.save(figure, path, legend, title=title(methods))
