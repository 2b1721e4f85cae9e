"""What commands show: progress bars on standard error, in a file as lines, and texts without control characters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

from vpo_envs.common.wording import visible

T = TypeVar("T")
CURSOR_UP = "\x1b[A"
LINE_S = 30
"""Seconds between the lines in a file."""
SHORT_S = 3
"""Seconds before a phase that is usually short shows its bar."""


class VisibleStream:
    """A stream of text that shows characters which command a terminal or are not seen, see :func:`visible`.

    What models wrote, and names in files of strangers, reach a terminal only through it.
    """

    def __init__(self, stream: TextIO) -> None:
        # Of this name, so that tqdm knows a bar on the stream itself and a line on this one for the same place.
        self._wrapped = stream

    def write(self, text: str) -> int:
        """Write a text; return its length, as streams do."""
        self._wrapped.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


def bare(stream: Any) -> Any:
    """Return the stream under a :class:`VisibleStream`, for bars and drawings of our own; any other as it is."""
    return stream._wrapped if isinstance(stream, VisibleStream) else stream


_KEPT: list[VisibleStream] = []
"""Streams that were standard output or standard error once.

``print`` holds no reference to the stream that it writes to: Python crashes if a thread, such as one that still scores
after Ctrl-C, is printing to a stream that is freed.
"""


@contextmanager
def visible_streams() -> Iterator[None]:
    """Let standard output and standard error show hidden characters, until the end of the block."""
    former = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = shown = [VisibleStream(bare(stream)) for stream in former]
    _KEPT.extend(shown)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = former


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
        options = {"mininterval": 0.1, "dynamic_ncols": True, "file": bare(sys.stderr), **options}
    else:
        options = {"mininterval": LINE_S, "file": _Lines(sys.stderr), **options}
    return tqdm(total=total, initial=done, unit=unit, desc=visible(label), **options)


def progress(items: Sequence[T], label: str, unit: str) -> Iterator[T]:
    """Yield the items, with a bar if they take more than a few seconds."""
    with progress_bar(label, len(items), unit=unit, leave=False, delay=SHORT_S) as bar:
        for item in items:
            yield item
            bar.update()
