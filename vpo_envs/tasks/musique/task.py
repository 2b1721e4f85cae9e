"""A multi-hop question with its paragraphs."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field, field_validator, model_validator

from vpo_envs.core import Frozen, Task
from vpo_envs.text import count_tokens, squad_tokens

MAX_HOPS = 4
MAX_CITATIONS = 4


class Paragraph(Frozen):
    """One numbered paragraph that an answer may cite."""

    number: int = Field(ge=0)
    title: str
    text: str


class Hop(Frozen):
    """One step of the reasoning."""

    question: str
    """The step as a question of its own; ``#1`` stands for the answer of the first step."""
    answer: str
    paragraph: int
    """Number of the paragraph that answers it."""


class MuSiQueTask(Task):
    """One question over numbered paragraphs."""

    id: str
    question: str
    paragraphs: tuple[Paragraph, ...] = Field(min_length=1)
    hops: tuple[Hop, ...] = Field(min_length=1, max_length=MAX_HOPS)
    answers: tuple[str, ...] = Field(min_length=1)
    """The gold answer, then its aliases."""
    max_citations: int = Field(MAX_CITATIONS, ge=1, le=MAX_CITATIONS)
    """How many distinct citations count; further ones do not."""

    @property
    def canonical(self) -> str:
        """The question, and the paragraphs in alphabetical order."""
        return f"{self.question} {sorted(paragraph.text for paragraph in self.paragraphs)}"

    @field_validator("answers")
    @classmethod
    def _can_be_given(cls, answers: tuple[str, ...]) -> tuple[str, ...]:
        for answer in answers:
            if not has_words(answer):
                raise ValueError(f"an answer needs a letter or a digit, got {answer[:40]!r}")
        if "<" in answers[0] and ">" in answers[0]:
            raise ValueError(f"a gold answer cannot contain a tag, got {answers[0][:40]!r}")
        return answers

    @model_validator(mode="after")
    def _paragraphs_are_there(self) -> MuSiQueTask:
        numbers = [paragraph.number for paragraph in self.paragraphs]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"two paragraphs have the same number: {numbers}")
        for hop in self.hops:
            if hop.paragraph not in numbers:
                raise ValueError(f"hop {hop.question[:40]!r} rests on paragraph {hop.paragraph}, which is missing")
        return self

    @cached_property
    def support(self) -> tuple[int, ...]:
        """Number of the gold paragraph of each hop."""
        return tuple(hop.paragraph for hop in self.hops)

    @cached_property
    def gold_tokens(self) -> tuple[dict[str, int], ...]:
        """Token counts of each gold answer."""
        return tuple(count_tokens(squad_tokens(answer)) for answer in self.answers)


def has_words(text: str) -> bool:
    """Return whether a text contains a letter or a digit of any script."""
    return any(map(str.isalnum, text))
