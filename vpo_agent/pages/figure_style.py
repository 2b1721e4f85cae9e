"""How figures look: the colours of methods, axes, legends, labels, and how a figure becomes a file.

Never pyplot: no global figure, back end or style is read or set, so threads, servers and notebooks may draw.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from vpo_agent.measure.intervals import Band
from vpo_agent.measure.origin import names_base

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
GREY = "#56606b"
"""The colour of a base."""
MARKERS_OF_BASES = ("X", "P", "*")
MARKERS = ("o", "s", "^", "D", "v", "<", ">")
LINES = ("-", "--", "-.", ":")
KNOWN = ("vpo", "grpo", "set_rl", "max_at_k", "vpo_pool", "multi_rlvr")
"""The registered methods, whose look is fixed; each takes the next colour of the palette."""


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: str
    line: str = "-"


def looks(labels: Sequence[str], sources: Sequence[str | None] = ()) -> list[Look]:
    """Return a look for each method of a figure.

    A label that is unknown takes the look of the method that the policy was trained with, unless the figure has that
    method as well, and otherwise a colour that the figure does not use yet.
    """
    numbers = [_known(label) for label in labels]
    for position, source in enumerate(sources):
        number_of_source = _known(source or "")
        is_free = numbers[position] is None and not names_base(labels[position])
        if is_free and number_of_source not in numbers:
            numbers[position] = number_of_source
    drawn = []
    bases = 0
    for position, label in enumerate(labels):
        if names_base(label):
            drawn.append(Look(GREY, MARKERS_OF_BASES[bases % len(MARKERS_OF_BASES)]))
            bases += 1
            continue
        number = numbers[position]
        if number is None:
            number = _free([taken for taken in numbers if taken is not None])
            numbers[position] = number
        line = LINES[number // len(PALETTE) % len(LINES)]
        drawn.append(Look(PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)], line))
    return drawn


def _known(label: str) -> int | None:
    """Return the number of a known label, whatever its case and punctuation; ``None`` for another."""
    names = [_plain(name) for name in KNOWN]
    plain = _plain(re.sub(r"-seed\d+$|\.0\b", "", label))
    return names.index(plain) if plain in names else None


def _plain(label: str) -> str:
    return re.sub(r"[^a-z0-9]", "", label.lower())


def _free(taken: Sequence[int]) -> int:
    """Return the first number that is not taken, of a colour that is not taken if there is one."""
    colours = {number % len(PALETTE) for number in taken}
    all_colours_taken = len(colours) == len(PALETTE)
    number = 0
    while number in taken or (number % len(PALETTE) in colours and not all_colours_taken):
        number += 1
    return number


INK, FAINT_INK, GRID, PAPER = "#24292f", "#57606a", "#e6e8eb", "#ffffff"
BAND_ALPHA = 0.16
TURNED = str.maketrans("↑↓", "→←")
"""Arrows of a label that is turned by a right angle, so that they point up and down on the page."""
WIDTH_INCHES, DPI = 9.0, 200  # 1800 pixels: sharp on the 900 of a README


def new_figure(height: float, width: float = WIDTH_INCHES) -> Figure:
    """Return an empty figure of that height and width in inches."""
    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.08, wspace=0.03, hspace=0.04)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes, title: str, *, x: str = "", y: str = "") -> None:
    """Apply the light theme in full, so that a reader's own matplotlib style changes nothing."""
    axes.set(facecolor=PAPER, axisbelow=True)
    axes.set_title(title, loc="left", color=INK, fontsize=11.5, fontweight="bold")
    axes.set_xlabel(x, color=FAINT_INK, fontsize=11)
    axes.set_ylabel(y.translate(TURNED), color=FAINT_INK, fontsize=11)
    axes.grid(visible=True, color=GRID, lw=0.8, ls="-")
    axes.spines[:].set(color="#b4bac1", linewidth=0.9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors="#b4bac1", labelcolor=FAINT_INK, labelsize=10, length=3)


def round_ticks(most: int, whole: bool = False) -> MaxNLocator:
    """Return a locator of at most ``most`` round numbers, or integers if ``whole``."""
    return MaxNLocator(nbins=most, integer=whole, steps=(1, 2, 2.5, 5, 10))


def log_axis(axes: Axes, ks: NDArray[np.int_]) -> None:
    """Make the x axis logarithmic, with numbers of answers written where there is room."""
    ticks = _readable_ticks(ks)
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{k:.0f}" for k in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(ticks[0] / 1.1, ticks[-1] * 1.1)


def band_line(axes: Axes, ks: NDArray[np.int_], band: Band, look: Look, **sizes: Any) -> Artist:
    """Draw a method's means against k, in their band, with markers at the ks written on the axis."""
    axes.fill_between(ks, band.low, band.high, color=look.colour, alpha=BAND_ALPHA, lw=0)
    line = axes.plot(ks, band.mean, color=look.colour, marker=look.marker, ls=look.line, mec=PAPER, **sizes)[0]
    ticks = _readable_ticks(ks)
    line.set_markevery([position for position, k in enumerate(ks) if k in ticks])
    return line


def _readable_ticks(ks: NDArray[np.int_]) -> list[float]:
    """Return the ks to write on a logarithmic axis: the ends, then round numbers, then others where there is room."""
    rank_of_digits = {"1": 0, "5": 1, "2": 2, "3": 3}

    def roundest_first(k: float) -> tuple[int, float]:
        return rank_of_digits.get(str(int(k)).rstrip("0"), 4), k

    room = 0.06 * float(np.log(ks[-1] / ks[0]))
    chosen = [float(ks[0]), float(ks[-1])]
    for k in sorted((float(k) for k in ks[1:-1]), key=roundest_first):
        if min(abs(np.log(k / other)) for other in chosen) >= room:
            chosen.append(k)
    return sorted(set(chosen))


def from_zero(axes: Axes) -> None:
    """Let the y axis start at zero, or below where values are, so that it does not magnify noise."""
    low, high = min(0.0, axes.dataLim.y0), max(0.0, axes.dataLim.y1)
    axes.set_ylim(low, high + (0.06 * (high - low) or 1.0))


def save(
    figure: Figure,
    path: str | os.PathLike[str],
    legend: Mapping[str, Artist] | None = None,
    columns: int = 4,
    title: str = "",
) -> Path:
    """Write a PNG, whole or not at all, with the title and one legend above all panels, where they hide nothing."""
    if legend:
        look: dict[str, Any] = {"frameon": False, "fontsize": 10.5, "labelcolor": INK}
        columns = min(columns, len(legend))
        figure.legend(list(legend.values()), list(legend), loc="outside upper center", ncols=columns, **look).set_title(
            title, FontProperties(size=11.5, weight="bold")
        )
    else:
        figure.suptitle(title, fontsize=11.5, fontweight="bold")
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ValueError(f"plots are PNG images; got the path {str(target)!r}; end it in .png")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        # Without matplotlib's version in the file, the same data give the same bytes.
        figure.savefig(unfinished, format="png", dpi=DPI, facecolor=PAPER, metadata={"Software": None})
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target
