"""Draw how VPO scores one rollout: `python docs/site/drawing.py` writes docs/images/vpo_score.svg.

The card is opaque and light, so that it can be read on a dark page as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np
from template import DOCS

IMAGE = DOCS / "images" / "vpo_score.svg"
OBJECTIVES = ("gold", "diamond", "haste")
ANSWERS = np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.6, 1.0]])
"""Reward vectors of the three answers of a rollout, (m, d)."""
WEIGHTINGS = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7], [0.4, 0.3, 0.3]])
"""Four of the weightings that a training step draws, (K, d)."""

WIDTH, ROW = 820, 34
LABELS, COLUMNS, BEST = 28, (410, 510, 610), 740
"""Horizontal places of the labels, of the answers and of the best scores."""
TINTS = ("#fbe3b0", "#bfdcf2", "#bfe8d8")
"""Colours of the answers, light enough for dark text."""
INK, FAINT_INK, RULE = "#1f2328", "#57606a", "#d0d7de"


def scores() -> np.ndarray:
    """Return the score w·r of each answer under each weighting, (K, m)."""
    return np.asarray(WEIGHTINGS @ ANSWERS.T)


def drawing() -> str:
    """Return the drawing as SVG."""
    lines = list(_contents())
    height = 3 * ROW + (len(OBJECTIVES) + len(WEIGHTINGS) + 3) * ROW
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="16">',
        "<title>How VPO scores one rollout</title>",
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="12" fill="#ffffff" stroke="{RULE}"/>',
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


def _contents() -> Iterator[str]:
    y = 1.2 * ROW
    yield _text(LABELS, y, "1. The model writes m answers", bold=True)
    for x, number, tint in zip(COLUMNS, range(1, 4), TINTS, strict=True):
        yield _box(x, y, tint)
        yield _text(x, y, f"answer {number}", anchor="middle", bold=True)
    y += 1.3 * ROW
    yield _text(LABELS, y, "2. Each gets a reward vector", bold=True)
    for name, values in zip(OBJECTIVES, ANSWERS.T, strict=True):
        yield _text(COLUMNS[0] - 64, y, name, anchor="end", faint=True)
        yield from (_text(x, y, f"{value:.1f}", anchor="middle") for x, value in zip(COLUMNS, values, strict=True))
        y += ROW
    yield f'<path d="M{LABELS} {y - 0.5 * ROW:g}H{WIDTH - LABELS}" stroke="{RULE}"/>'
    y += 0.4 * ROW
    yield _text(LABELS, y, "3. Random weightings score the answers", bold=True)
    yield _text(BEST, y, "best score", anchor="middle", bold=True)
    for weighting, row in zip(WEIGHTINGS, scores(), strict=True):
        y += ROW
        best = int(row.argmax())
        yield _text(COLUMNS[0] - 64, y, " / ".join(f"{weight:.1f}" for weight in weighting), anchor="end", faint=True)
        yield _box(COLUMNS[best], y, TINTS[best])
        for position, (x, score) in enumerate(zip(COLUMNS, row, strict=True)):
            yield _text(x, y, f"{score:.2f}", anchor="middle", bold=position == best, faint=position != best)
        yield _text(BEST, y, f"{row[best]:.2f}", anchor="middle", bold=True)
    y += 0.7 * ROW
    yield f'<path d="M{LABELS} {y:g}H{WIDTH - LABELS}" stroke="{RULE}"/>'
    y += 0.8 * ROW
    yield _text(LABELS, y, "4. The mean of the best scores is the score of the rollout", bold=True)
    yield _text(BEST, y, f"{scores().max(axis=1).mean():.2f}", anchor="middle", bold=True)
    y += 0.9 * ROW
    alone = ", ".join(f"{score:.2f}" for score in scores().mean(axis=0))
    yield _text(LABELS, y, f"Each answer alone would score {alone} on average.", faint=True)


def _box(x: float, y: float, fill: str) -> str:
    return f'<rect x="{x - 46}" y="{y - 21:g}" width="92" height="30" rx="6" fill="{fill}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, faint: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    fill = FAINT_INK if faint else INK
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}"{weight}>{escape(text)}</text>'


if __name__ == "__main__":
    IMAGE.write_text(drawing(), encoding="utf-8")
