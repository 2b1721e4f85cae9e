"""Decodes tokens one by one: pieces for a stream, and the end at a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""Decoded for a character of which some bytes are missing."""


class GrowingText:
    """The text of a growing sequence of tokens.

    A token's text depends on its neighbours (a word's leading space, a character of several tokens), so each is decoded
    with the tokens before it, and incomplete characters are held back. It continues the tokens ``before`` and ends at
    the first of the stop strings, or behind it with ``keep_stop``.
    """

    def __init__(self, tokenizer: Any, before: Sequence[int], stop: Sequence[str], keep_stop: bool) -> None:
        self.text = ""
        self.stopped = False
        self._tokenizer = tokenizer
        # A few tokens are context enough.
        self._ids = list(before[-8:])
        self._from, self._read = 0, len(self._ids)
        self._stop, self._keep_stop = stop, keep_stop
        self._released = 0

    def push(self, *tokens: int, last: bool = False) -> None:
        """Append tokens; after the last ones nothing is held back."""
        self._ids += tokens
        known, now = (
            str(self._tokenizer.decode(ids, skip_special_tokens=True))
            for ids in (self._ids[self._from : self._read], self._ids[self._from :])
        )
        if not self.stopped and len(now) > len(known) and (last or not now.endswith(_INCOMPLETE)):
            self._from, self._read = self._read, len(self._ids)
            self._extend(now[len(known) :])

    def release(self, *, last: bool = False) -> str:
        """Return the text that is new since the last call and cannot become part of a stop string."""
        end = len(self.text)
        if not (last or self.stopped):
            end -= max((_overlap(self.text, stop) for stop in self._stop), default=0)
        start, self._released = self._released, max(self._released, end)
        return self.text[start : self._released]

    def _extend(self, piece: str) -> None:
        longest = max(map(len, self._stop), default=0)
        start = max(0, len(self.text) - longest + 1)
        self.text += piece
        found = [(place, stop) for stop in self._stop if (place := self.text.find(stop, start)) >= 0]
        if found:
            place, stop = min(found)
            self.text = self.text[: place + len(stop) * self._keep_stop]
            self.stopped = True


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that ``stop`` begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
