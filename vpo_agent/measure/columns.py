"""Names of the objectives' means beside columns and measures that have names of their own."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

PREFIX = "reward/"


def free_name(objective: str, taken: Container[str]) -> str:
    """Return the name of an objective's mean: its own, or ``reward/NAME`` where that is taken."""
    return f"{PREFIX}{objective}" if objective in taken else objective


def short_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose objectives, all under ``reward/NAME``, have their own names where no other column does."""
    return {
        free_name(name.removeprefix(PREFIX), row) if name.startswith(PREFIX) else name: value
        for name, value in row.items()
    }
