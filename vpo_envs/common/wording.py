"""Parts of messages: a number with its noun, the probable name, a long text cut, an error with its place."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

PROMPT_CHARS = 1600
"""Longer texts are printed without their middle."""
TAIL_SHARE = 0.45
"""Share of the kept characters that comes from the end, where the question and the rules are."""
TAG = re.compile(r"</?\w+>")
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
"""Characters that command a terminal, are not seen, or change the order in which others are read: controls but for tabs
and line breaks, marks of direction, blanks without width, tags and halves of surrogate pairs."""


def counted(count: int, noun: str) -> str:
    """Return the number with its noun: ``"1 answer"``, ``"3 answers"``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``name``, whatever the case; ``None`` if none is."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"did you mean NAME? "`` for the :func:`nearest` known name; empty if there is none."""
    near = nearest(name, known)
    return "" if near is None else f"did you mean {near}? "


def cut(text: str, limit: int = PROMPT_CHARS, *, keep_tags: bool = True) -> str:
    """Return ``text`` without whole lines of its middle if it is longer than ``limit`` characters.

    A single line that is longer than its share of the limit is broken. With ``keep_tags``, for prompts, a text with a
    tag in its middle is not cut, since the tag may belong to the answer format.
    """
    if len(text) <= limit:
        return text
    tail_chars = int(limit * TAIL_SHARE)
    head, tail = text[: limit - tail_chars], text[-tail_chars:]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail.rstrip("\n") else tail
    middle = text[len(head) : len(text) - len(tail)]
    return text if keep_tags and TAG.search(middle) else f"{head}\n[… {len(middle):,} characters …]\n{tail}"


def visible(text: str) -> str:
    """Return a text with each of its :data:`HIDDEN` characters as its code, such as ``\\x1b`` or ``\\u202e``.

    Line breaks of Windows become plain ones.
    """
    return HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, with the next line if the first ends in a colon.

    An error without a message gives its type.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def told(error: BaseException) -> str:
    """Return an error with the file and line where the code under test, and not a library, raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib")))
    tested = [frame for frame in frames if Path(frame.filename).is_file() and not frame.filename.startswith(libraries)]
    message = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{message} ({tested[-1].filename}, line {tested[-1].lineno})" if tested else message
