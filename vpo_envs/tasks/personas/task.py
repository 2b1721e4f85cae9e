"""A text that several personas judge, each by their own checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Annotated

from pydantic import Field

from vpo_envs.core import Task
from vpo_envs.tasks.personas.checks import Check, Counted, compiled, read_text

RUN = 4
"""Number of consecutive words that are compared with the request and with the rest of the text."""


class PersonasTask(Task):
    """One text to write."""

    request: str = Field(min_length=1)
    """What is asked for, in words; a text must not be copied from it."""
    topic: str = ""
    """The word that the text must use; empty for a row of a data set, where any text of one's own will do."""
    personas: tuple[Annotated[tuple[Check, ...], Field(min_length=1)], ...] = Field(min_length=1)
    """The checks of each persona, at least one, in the order of the objectives."""

    @property
    def canonical(self) -> str:
        """The topic and the checks."""
        return content(self.topic, self.personas)

    @cached_property
    def compiled(self) -> tuple[list[Counted], list[tuple[int, int, int]], list[slice]]:
        """What the checks count, each thing once; each check's place there and band; and each persona's checks."""
        counted: dict[Counted, int] = {}
        bands: list[tuple[int, int, int]] = []
        owned: list[slice] = []
        for checks in self.personas:
            owned.append(slice(len(bands), len(bands) + len(checks)))
            for check in checks:
                what, least, most = compiled(check)
                bands.append((counted.setdefault(what, len(counted)), least, most))
        return list(counted), bands, owned

    @cached_property
    def request_words(self) -> list[str]:
        """The words of the request in order."""
        return read_text(self.request).words

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The different words of the request."""
        return frozenset(self.request_words)

    @cached_property
    def passages(self) -> frozenset[tuple[str, ...]]:
        """Runs of words of the request."""
        return frozenset(runs(self.request_words))


def content(topic: str, personas: Iterable[Iterable[Check]]) -> str:
    """Return the topic and the checks, whatever the order of the personas and of their checks."""
    return f"{topic} {sorted(sorted(map(str, own)) for own in personas)}"


def runs(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Return all runs of ``RUN`` words, in order."""
    return zip(*[words[i:] for i in range(RUN)], strict=False)
