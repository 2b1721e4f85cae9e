"""From tokens to text as they come: pieces for a stream, and the end at a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What a decoder shows for a character of which only some bytes are there."""


class GrowingText:
    """The text of a growing row of tokens.

    A token's text depends on its neighbours (a word's leading space, a character of several tokens), so each is decoded
    behind the ones before it, and a character that is not complete yet is held back.

    Args:
        tokenizer: Decodes.
        before: Tokens that the text continues; none where it stands by itself.
        stop: Strings at the first of which the text ends.
        keep_stop: Whether the stop string stays in the text.
    """

    def __init__(self, tokenizer: Any, before: Sequence[int], stop: Sequence[str], keep_stop: bool) -> None:
        self.text = ""
        self.stopped = False
        self._tokenizer = tokenizer
        # A handful of tokens is context enough.
        self._ids = list(before[-8:])
        self._from, self._read = 0, len(self._ids)
        self._stop, self._keep_stop = stop, keep_stop
        self._released = 0

    def push(self, *tokens: int) -> None:
        """Append tokens."""
        self._ids += tokens
        known, now = self._decoded()
        if len(now) > len(known) and not now.endswith(_INCOMPLETE):
            self._from, self._read = self._read, len(self._ids)
            self._extend(now[len(known) :])

    def finish(self) -> None:
        """Say that no token follows: what was held back belongs to the text."""
        if not self.stopped:
            known, now = self._decoded()
            self._extend(now[len(known) :])
            self._read = len(self._ids)

    def release(self, *, last: bool = False) -> str:
        """The part of the text that is new since the last call and cannot become part of a stop string any more."""
        end = len(self.text)
        if not (last or self.stopped):
            end -= max((_overlap(self.text, stop) for stop in self._stop), default=0)
        start, self._released = self._released, max(self._released, end)
        return self.text[start : self._released]

    def _decoded(self) -> tuple[str, str]:
        known, now = (
            str(self._tokenizer.decode(ids, skip_special_tokens=True))
            for ids in (self._ids[self._from : self._read], self._ids[self._from :])
        )
        return known, now

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
    """Length of the longest end of ``text`` with which ``stop`` begins."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
