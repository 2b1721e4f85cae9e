"""A page in HTML that needs nothing but itself: images inline, no script, nothing from a network."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

MAX_PIXELS = 1800
"""Widest image, in pixels; wider ones are shrunk."""
COLOURS = 128
"""Figures have few colours, and a palette makes them a third of their size."""

STYLE = """
:root { color-scheme: light dark;
  --ink: #24292f; --faint: #57606a; --paper: #ffffff; --line: #d8dee4; --tint: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --faint: #9aa4ae; --paper: #0f1419; --line: #30363d; --tint: #181e25; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 74rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.9rem; margin: 0 0 .4rem; } h2 { font-size: 1.3rem; margin: 2.6rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; }
p, li { max-width: 50rem; } .faint { color: var(--faint); }
figure { margin: 1rem 0; } figcaption { color: var(--faint); font-size: .93rem; max-width: 50rem; margin-top: .4rem; }
img { max-width: 100%; height: auto; display: block; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; padding: .4rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; margin: .8rem 0;
  font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--faint); font-weight: 600; } .r { text-align: right; white-space: nowrap; }
tbody tr:hover { background: var(--tint); } code, pre { font: .88em ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """The whole page."""
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n"
        "</html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, faint: bool = False) -> str:
    """A paragraph."""
    return f"<p{' class=faint' if faint else ''}>{escape(text)}</p>"


def listing(items: Sequence[str]) -> str:
    """A bulleted list."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def text_block(text: str) -> str:
    """Text as it stands."""
    return f"<pre>{escape(text)}</pre>"


def table(head: Sequence[str], body: Sequence[Sequence[str]], align: str) -> str:
    """A table; ``align`` has an l or r for each column."""

    def row(cells: Sequence[str], tag: str) -> str:
        parts = [
            f"<{tag}{' class=r' if side == 'r' else ''}>{escape(cell)}</{tag}>"
            for cell, side in zip(cells, align, strict=True)
        ]
        return f"<tr>{''.join(parts)}</tr>"

    rows = "\n".join(row(cells, "td") for cells in body)
    return f'<div class="wide"><table><thead>{row(head, "th")}</thead><tbody>\n{rows}\n</tbody></table></div>'


def figure(image: Path, caption: str, alt: str) -> str:
    """An image file, inline, with its caption."""
    data = base64.b64encode(_small(image)).decode()
    return (
        f'<figure><img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _small(image: Path) -> bytes:
    from PIL import Image

    with Image.open(image) as opened:
        picture = opened.convert("RGB")
    if picture.width > MAX_PIXELS:
        height = round(picture.height * MAX_PIXELS / picture.width)
        picture = picture.resize((MAX_PIXELS, height), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()
