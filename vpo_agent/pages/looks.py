"""How methods look: each has the same colour, marker and line in every figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
GREY = "#56606b"
"""The colour of a model before training."""
MARKERS_OF_UNTRAINED = ("X", "P", "*")
MARKERS = ("o", "s", "^", "D", "v", "<", ">")
LINES = ("-", "--", "-.", ":")
KNOWN = (
    *("vpo", "grpo", "set_rl", "max_at_k", "vpo_pool", "multi_rlvr"),
    *("vpo_credit", "dr_grpo", "pareto_rank", "darling", "gdpo", "rs_grpo"),
    *("maxrl", "random_weights", "goal_conditioned", "vpo_lexicase"),
    "vpo_hypervolume",
)
"""The registered methods, whose look is fixed; each takes the next colour of the palette."""
UNTRAINED = re.compile(r"(before|base|start|untrained)\b")


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str
    marker: str
    line: str = "-"


def looks(labels: Sequence[str], sources: Sequence[str | None] = ()) -> list[Look]:
    """Return a look for each method of a figure.

    A label that is unknown takes the look of the method that the policy was trained with, unless the figure has that
    method as well, and otherwise a colour that the figure does not use yet.

    Args:
        labels: What the figure calls each method, with or without ``-seed0`` at its end.
        sources: The method that each was trained with; ``None`` where that is unknown.
    """
    numbers = [_known(label) for label in labels]
    for place, source in enumerate(sources):
        number = _known(source or "")
        if numbers[place] is None and not UNTRAINED.match(labels[place]) and number not in numbers:
            numbers[place] = number
    found = []
    greys = count()
    for place, label in enumerate(labels):
        if UNTRAINED.match(label):
            found.append(Look(GREY, MARKERS_OF_UNTRAINED[next(greys) % len(MARKERS_OF_UNTRAINED)]))
            continue
        number = numbers[place]
        if number is None:
            number = numbers[place] = _free([one for one in numbers if one is not None])
        line = LINES[number // len(PALETTE) % len(LINES)]
        found.append(Look(PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)], line))
    return found


def _known(label: str) -> int | None:
    """The place of a label among the known ones, whatever its case and punctuation."""
    names = [_plain(name) for name in KNOWN]
    plain = _plain(re.sub(r"-seed\d+$|\.0\b", "", label))
    return names.index(plain) if plain in names else None


def _plain(label: str) -> str:
    return re.sub(r"[^a-z0-9]", "", label.lower())


def _free(taken: Sequence[int]) -> int:
    """The first number that is not taken, of a colour that is not taken if there is one."""
    shades = {number % len(PALETTE) for number in taken}
    full = len(shades) == len(PALETTE)
    return next(one for one in count() if one not in taken and (full or one % len(PALETTE) not in shades))
