"""Progress bars on standard error, in a file as lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO, TypeVar

T = TypeVar("T")
CURSOR_UP = "\x1b[A"
LINE_S = 30
"""Seconds between the lines in a file."""
SHORT_S = 3
"""Seconds before a phase that is usually short shows its bar."""


class _Lines:
    """A stream on which each state of a bar is a line of its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if text := text.replace(CURSOR_UP, "").strip():
            self._stream.write(f"{text}\n")

    def flush(self) -> None:
        self._stream.flush()


def progress_bar(label: str, total: int, done: int = 0, *, unit: str = "step", **options: Any) -> Any:
    """Return a bar for ``total`` units, of which ``done`` were done before; a context manager."""
    from tqdm import tqdm

    # Without its thread: each thread of a killed study sends its runs SIGTERM, and a second one saves nothing.
    tqdm.monitor_interval = 0
    if sys.stderr.isatty():
        options = {"mininterval": 0.1, "dynamic_ncols": True, **options}
    else:
        options = {"mininterval": LINE_S, "file": _Lines(sys.stderr), **options}
    return tqdm(total=total, initial=done, unit=unit, desc=label, **options)


def progress(items: Sequence[T], label: str, unit: str) -> Iterator[T]:
    """Yield the items, with a bar if they take more than a few seconds."""
    with progress_bar(label, len(items), unit=unit, leave=False, delay=SHORT_S) as bar:
        for item in items:
            yield item
            bar.update()
