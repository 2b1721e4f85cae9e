"""A text that several personas judge, each by their own checks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from pydantic import Field

from vpo_envs.core import Task
from vpo_envs.tasks.personas.checks import Check, Compiled, compiled, read_text

RUN = 4
"""Number of consecutive words that are compared with the request and with the rest of the text."""


class PersonasTask(Task):
    """One text to write."""

    request: str = Field(min_length=1)
    """What is asked for, in words; a text must not be copied from it."""
    topic: str = ""
    """The word that the text must use; empty for a row of a data set, where any text of one's own will do."""
    personas: tuple[tuple[Check, ...], ...] = Field(min_length=1)
    """The checks of each persona, at least one, in the order of the objectives."""

    @cached_property
    def compiled(self) -> list[list[Compiled]]:
        """The checks of each persona, ready for use."""
        return [[compiled(check) for check in checks] for checks in self.personas]

    @cached_property
    def passages(self) -> frozenset[tuple[str, ...]]:
        """Runs of words of the request."""
        return frozenset(runs(read_text(self.request).words))


def runs(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Return all runs of ``RUN`` words, in order."""
    return zip(*[words[i:] for i in range(RUN)], strict=False)
