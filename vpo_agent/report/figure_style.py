"""How figures look: palette, axes, legends, and how a figure becomes a file.

Drawn with matplotlib's objects alone, never pyplot: no global figure, back end or style is read or set, so the
functions may be called from threads, servers and notebooks. Colours are Okabe and Ito's, which stay apart for
colour-blind readers, and every curve also has its own marker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

PALETTE = ("#56606b", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "<", ">")
INK, FAINT_INK, GRID, PAPER = "#24292f", "#57606a", "#e6e8eb", "#ffffff"
ROUND_STEPS = (1, 2, 2.5, 5, 10)
WIDTH_INCHES, DPI = 9.0, 200  # 1800 pixels: sharp on the 900 of a README


def new_figure(height: float, width: float = WIDTH_INCHES) -> Figure:
    """An empty figure of that height and width in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.08, wspace=0.03, hspace=0.04)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes, title: str) -> None:
    """Light theme, said in full so that a reader's own matplotlib style changes nothing."""
    axes.set_facecolor(PAPER)
    axes.set_title(title, loc="left", color=INK, fontsize=11.5, fontweight="bold")
    axes.grid(visible=True, color=GRID, lw=0.8, ls="-")
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#b4bac1")
        spine.set_linewidth(0.9)
    axes.tick_params(colors="#b4bac1", labelcolor=FAINT_INK, labelsize=10, length=3)


def legend_above(figure: Figure, entries: Mapping[str, Artist], columns: int = 4) -> None:
    """One legend for the whole figure, above it, where it hides nothing."""
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside upper center",
        ncols=min(columns, len(entries)),
        frameon=False,
        fontsize=10.5,
        labelcolor=INK,
    )


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write the PNG beside its place and move it there, so that nobody ever reads half a picture."""
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ValueError(f"plots are PNG images; got the path {str(target)!r}; end it in .png")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        # Without the version of matplotlib, the same data give the same bytes.
        figure.savefig(unfinished, format="png", dpi=DPI, facecolor=PAPER, metadata={"Software": None})
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def readable_ticks(ks: NDArray[np.floating]) -> list[float]:
    """The ks to write on a logarithmic axis: the ends, then round numbers, then others where there is room."""

    def roundness(k: float) -> int:
        digits = str(int(k)).rstrip("0")
        return ("1", "5", "2", "3").index(digits) if digits in ("1", "5", "2", "3") else 4

    room = 0.06 * float(np.log(ks[-1] / ks[0]))
    chosen = [float(ks[0]), float(ks[-1])]
    for k in sorted((float(k) for k in ks[1:-1]), key=lambda k: (roundness(k), k)):
        if min(abs(np.log(k / other)) for other in chosen) >= room:
            chosen.append(k)
    return sorted(set(chosen))
