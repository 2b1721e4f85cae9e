"""A page that is written once and rendered as Markdown and as HTML.

The HTML is self-contained: images are inline, and there are no scripts and no network access.
"""

from __future__ import annotations

import base64
import io
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from uuid import uuid4

from vpo_envs.common.wording import visible

Table = tuple[list[str], list[list[str]], str]
"""Head, body and alignment: an l or r for each column."""
MAX_PIXELS = 1800
"""Widest image in HTML; wider ones are shrunk."""
COLOURS = 128
"""Size of the palette of images in HTML. Figures have few colours, so a palette reduces a file to a third."""

_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_DEFINITION = re.compile(r"^( {0,3}\[[^\]\n]*\]):", re.MULTILINE)

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
p, li { max-width: 50rem; }
figure { margin: 1rem 0; } figcaption { color: var(--faint); font-size: .93rem; max-width: 50rem; margin-top: .4rem; }
img { max-width: 100%; height: auto; display: block; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; padding: .4rem; }
/* Figures are drawn on white: in the dark, black and white change places and hues stay. */
@media (prefers-color-scheme: dark) { img { filter: invert(.92) hue-rotate(180deg); } }
summary { cursor: pointer; } summary h2 { display: inline; } details { margin: 1.6rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; margin: .8rem 0;
  font-variant-numeric: tabular-nums; }
th, td { padding: .32rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--faint); font-weight: 600; } .r { text-align: right; white-space: nowrap; }
tbody tr:hover { background: var(--tint); } code, pre { font: .88em ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
/* On a phone, figures and wide tables keep a readable size and are moved sideways. */
@media (max-width: 40rem) {
  body { padding: 1rem .8rem 3rem; } table { font-size: .84rem; } th, td { padding: .25rem .4rem; }
  figure img { max-width: none; width: 44rem; } }
"""
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
"""


class Page:
    """The blocks of a page, in order."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._blocks: list[tuple[str, Callable[[], str]]] = []
        self._folded = False
        self.heading(title, 1)

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading."""
        self._add(f"{'#' * level} {_on_a_line(text)}", lambda: f"<h{level}>{_html(text)}</h{level}>")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._add(inert(text), lambda: f"<p>{_html(text)}</p>")

    def listing(self, items: Sequence[str]) -> None:
        """Add a bulleted list."""
        self._add(
            "\n".join(f"- {_on_a_line(item)}" for item in items),
            lambda: "<ul>" + "".join(f"<li>{_html(item)}</li>" for item in items) + "</ul>",
        )

    def table(self, head: Sequence[str], body: Sequence[Sequence[str]], align: str) -> None:
        """Add a table; ``align`` has an l or r for each column."""
        self._add(markdown_table(head, body, align), lambda: _html_table(head, body, align))

    def figure(self, image: Path, alt: str, caption: str = "") -> None:
        """Add an image file: a link in Markdown, inline in HTML."""
        link = f"![{_on_a_line(alt)}]({image.name})"
        self._add(f"{link}\n\n{inert(caption)}" if caption else link, lambda: _html_figure(image, alt, caption))

    def fold(self, text: str) -> None:
        """Add a heading whose blocks, all that follow up to the next fold, are shown on request in HTML."""
        opened = f"<details><summary><h2>{_html(text)}</h2></summary>"
        folded, self._folded = self._folded, True
        self._add(f"## {_on_a_line(text)}", lambda: f"</details>\n{opened}" if folded else opened)

    def markdown(self) -> str:
        """Return the page in Markdown, with links to its images, which lie beside it."""
        return "\n\n".join(text for text, _ in self._blocks) + "\n"

    def html(self) -> str:
        """Return the page as one HTML file."""
        body = "\n".join(render() for _, render in self._blocks) + "</details>" * self._folded
        head = f"{HEAD}<title>{_html(self.title)}</title>\n<style>{STYLE}</style>\n</head>"
        return f"{head}\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"

    def _add(self, markdown: str, html: Callable[[], str]) -> None:
        self._blocks.append((markdown, html))


def inert(text: str) -> str:
    """Return a text for Markdown in which names of strangers begin no link, image, HTML or definition of a link."""
    text = _TAG.sub("&lt;", visible(text)).replace("](", "]\\(")
    return _DEFINITION.sub(r"\1\\:", text)


def _on_a_line(text: str) -> str:
    return inert(text).replace("\n", " ")


def _html(text: str) -> str:
    return escape(visible(text))


def markdown_table(head: Sequence[str], body: Sequence[Sequence[str]], align: str) -> str:
    """Return a table in Markdown; ``align`` has an l or r for each column."""
    bars = {"l": "---", "r": "---:"}
    rows = [[_on_a_line(cell).replace("|", "\\|") for cell in row] for row in (head, *body)]
    rows.insert(1, [bars[side] for side in align])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _html_table(head: Sequence[str], body: Sequence[Sequence[str]], align: str) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        written = []
        for cell, side in zip(cells, align, strict=True):
            style = " class=r" if side == "r" else ""
            written.append(f"<{tag}{style}>{_html(cell)}</{tag}>")
        return f"<tr>{''.join(written)}</tr>"

    rows = "\n".join(row(cells, "td") for cells in body)
    return _wide(f"<table><thead>{row(head, 'th')}</thead><tbody>\n{rows}\n</tbody></table>", "Table")


def _html_figure(image: Path, alt: str, caption: str) -> str:
    from PIL import Image

    with Image.open(image) as opened:
        picture = opened.convert("RGB")
    if picture.width > MAX_PIXELS:
        height = round(picture.height * MAX_PIXELS / picture.width)
        picture = picture.resize((MAX_PIXELS, height), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    data = base64.b64encode(out.getvalue()).decode()
    shown = f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
    return f"<figure>{_wide(shown, alt)}<figcaption>{escape(caption)}</figcaption></figure>"


def _wide(content: str, name: str) -> str:
    """Return a box that is moved sideways on a small screen, also by keyboard."""
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(name)}">{content}</div>'


def check_folder(out: Path, mark: str) -> None:
    """Raise a ValueError unless ``out`` is new, empty, or an earlier report, which holds the file ``mark``, by name."""
    if out.name in ("", ".."):
        raise ValueError(f"{str(out)!r} is not the name of a folder that can be replaced: choose another --out")
    if out.is_dir():
        if any(out.iterdir()) and not (out / mark).is_file():
            raise ValueError(f"{str(out)!r} holds something other than a report: choose another --out")
    elif out.exists():
        raise ValueError(f"{str(out)!r} is a file, not a folder: choose another --out")


@contextmanager
def whole_folder(out: Path, mark: str) -> Iterator[Path]:
    """Yield a new folder to write into, which replaces ``out`` once the block has written everything."""
    check_folder(out, mark)
    aside = out.with_name(f".{out.name}.{uuid4().hex}.part")
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise ValueError(f"cannot write the folder {str(out)!r}: {error.strerror}") from error
    try:
        yield aside
        check_folder(out, mark)
        if out.exists():
            before = aside.with_suffix(".old")
            out.rename(before)
            aside.rename(out)
            shutil.rmtree(before)
        else:
            aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
