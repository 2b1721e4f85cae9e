"""Parts of messages: a number with its noun, and the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def counted(count: int, noun: str) -> str:
    """Return the number with its noun: ``"1 answer"``, ``"3 answers"``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``name``, whatever the case; ``None`` if none is."""
    by_lower = {one.lower(): one for one in known}
    return next((by_lower[near] for near in get_close_matches(name.lower(), by_lower, n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"did you mean NAME? "`` for the :func:`nearest` known name; empty if there is none."""
    near = nearest(name, known)
    return "" if near is None else f"did you mean {near}? "
