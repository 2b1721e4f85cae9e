"""Maps raw scores to [0, 1] by the quantiles of reference answers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np


def quantile(score: float, references: Sequence[float]) -> float:
    """Return the place of a score among reference scores, in [0, 1].

    0 at or below the lowest reference, 1 at or above the highest, linear between neighbours, so that R different
    references lie at 0, 1/(R−1), …, 1. Equal references share the middle of their places, and the places of the lowest
    and the highest ones are stretched to 0 and 1. Where all are equal, a score equal to them is at 0.5.

    Args:
        score: A finite score.
        references: Scores of at least two references, ascending.
    """
    if references[0] == references[-1]:
        return 0.5 + 0.5 * ((score > references[0]) - (score < references[0]))
    middles = [bisect_left(references, one) + bisect_right(references, one) - 1 for one in references]
    place = float(np.interp(score, references, middles))
    return (place - middles[0]) / (middles[-1] - middles[0])
