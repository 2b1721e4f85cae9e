"""Objectives by name: beside columns and measures that have names of their own, and in pairs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

PREFIX = "reward/"
Pair = tuple[int, int]
"""Two objectives by their places."""


def free_name(objective: str, taken: Container[str]) -> str:
    """Return the name of an objective's mean: its own, or ``reward/NAME`` where that is taken."""
    return f"{PREFIX}{objective}" if objective in taken else objective


def short_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose objectives, all under ``reward/NAME``, have their own names where no other column does."""
    return {
        free_name(name.removeprefix(PREFIX), row) if name.startswith(PREFIX) else name: value
        for name, value in row.items()
    }


def read_pairs(text: str, objectives: Sequence[str]) -> list[Pair]:
    """Read pairs of different objectives from ``"gold,diamond"``; several are separated by ``;``."""
    known = list(objectives)
    found = []
    for part in text.split(";"):
        names = [name.strip() for name in part.split(",")]
        for name in names:
            if name not in known:
                raise ValueError(f"--pairs names the unknown objective {name!r}: choose among {', '.join(known)}")
        if len(names) != 2 or names[0] == names[1]:
            raise ValueError(f"--pairs takes two different objectives, such as {known[0]},{known[-1]}; got {part!r}")
        found.append((known.index(names[0]), known.index(names[1])))
    return found
