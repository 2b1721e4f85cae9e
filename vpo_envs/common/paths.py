"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path


def path_of(text: str) -> Path:
    """Return the path that a text is, with ``~`` expanded; the home of an unknown user stays as it is."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
