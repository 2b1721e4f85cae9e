"""Maps raw scores to [0, 1] by the quantiles of reference answers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence


def quantile(score: float, references: Sequence[float]) -> float:
    """Return the place of a score among reference scores, in [0, 1].

    0 at or below the lowest reference, 1 at or above the highest, linear between neighbours, so that R different
    references lie at 0, 1/(R−1), …, 1. Equal references share the middle of their places; where all are equal, so does
    a score equal to them.

    Args:
        score: A finite score.
        references: Scores of at least two references, ascending.
    """
    below, upto = bisect_left(references, score), bisect_right(references, score)
    if upto > below:
        place = (below + upto - 1) / 2
    elif below == 0:
        place = 0.0
    elif below == len(references):
        place = below - 1.0
    else:
        low, high = references[below - 1], references[below]
        place = below - 1 + (score - low) / (high - low)
    return place / (len(references) - 1)
