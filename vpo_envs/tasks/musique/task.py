"""A multi-hop question with its paragraphs, the facts about an answer to it, and the objectives."""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vpo_envs.core import Objective, Task
from vpo_envs.text import count_tokens, squad_tokens, token_f1

MAX_HOPS = 4
MAX_CITATIONS = 4


class Paragraph(BaseModel):
    """One numbered paragraph that an answer may cite."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=0)
    title: str
    text: str


class Hop(BaseModel):
    """One step of the reasoning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    @field_validator("answers")
    @classmethod
    def _can_be_given(cls, answers: tuple[str, ...]) -> tuple[str, ...]:
        for answer in answers:
            if not has_words(answer):
                raise ValueError(f"an answer needs a letter or a digit, got {answer[:40]!r}")
        if "<" in answers[0] and ">" in answers[0]:
            raise ValueError(f"a gold answer cannot hold a tag, got {answers[0][:40]!r}")
        return answers

    @model_validator(mode="after")
    def _paragraphs_are_there(self) -> MuSiQueTask:
        numbers = [paragraph.number for paragraph in self.paragraphs]
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"paragraphs need numbers of their own, got {numbers}")
        for hop in self.hops:
            if hop.paragraph not in numbers:
                raise ValueError(f"hop {hop.question[:40]!r} rests on paragraph {hop.paragraph}, which is not there")
        return self

    @cached_property
    def support(self) -> tuple[int, ...]:
        """Number of the gold paragraph of each hop."""
        return tuple(hop.paragraph for hop in self.hops)

    @cached_property
    def gold_tokens(self) -> tuple[dict[str, int], ...]:
        """Token counts of each gold answer."""
        return tuple(count_tokens(squad_tokens(answer)) for answer in self.answers)


class MuSiQueAnswer(NamedTuple):
    """A parsed answer."""

    citations: tuple[int, ...]
    """The first :data:`MAX_CITATIONS` distinct paragraph numbers, in the order of the text."""
    tokens: tuple[str, ...]
    """The final answer, normalised."""


class MuSiQueOutcome(NamedTuple):
    """The facts about one answer; what an objective of MuSiQue looks at."""

    hops: tuple[bool, ...]
    """Whether the gold paragraph of each of four hops is among the citations that count; false for absent hops."""
    hop_count: int
    """Hops of the question."""
    answer_f1: float
    """Best token F1 over the gold answers, in [0, 1]."""
    cited: int
    """Distinct citations that count."""


def judge(task: MuSiQueTask, answer: MuSiQueAnswer) -> MuSiQueOutcome:
    """The facts about an answer."""
    counted = answer.citations[: task.max_citations]
    hops = [number in counted for number in task.support]
    f1 = max([token_f1(answer.tokens, gold) for gold in task.gold_tokens])
    hops += [False] * (MAX_HOPS - len(hops))
    return MuSiQueOutcome(tuple(hops), len(task.support), f1, len(counted))


def has_words(text: str) -> bool:
    """Whether a text holds a letter or a digit of any script."""
    return any(map(str.isalnum, text))


OBJECTIVES = (
    Objective("hop_1", "The paragraph of the first step is cited", lambda o: float(o.hops[0])),
    Objective("hop_2", "The paragraph of the second step is cited", lambda o: float(o.hops[1])),
    Objective("hop_3", "The paragraph of the third step is cited", lambda o: float(o.hops[2])),
    Objective("hop_4", "The paragraph of the fourth step is cited", lambda o: float(o.hops[3])),
    Objective("answer_f1", "Token F1 of the final answer with the best gold answer", lambda o: o.answer_f1),
)
SCALAR_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 3.0)
"""The paper's scalar: the final answer weighs as much as three paragraphs."""

ROUNDING = 1e-9


@lru_cache(maxsize=64)
def falling_objective(objectives: tuple[Objective, ...], hop_count: int, max_citations: int) -> str | None:
    """The first objective that falls when an answer does better in one fact, all else equal; ``None`` where none does.

    Better is one more hop found, a higher F1 (tried in sixteenths), or one citation fewer.
    """
    own = [objective for objective in objectives if objective not in OBJECTIVES]
    grades = [step / 16 for step in range(17)]
    for objective in own:
        table = {}
        for found in product((False, True), repeat=hop_count):
            hops = (*found, *[False] * (MAX_HOPS - hop_count))
            for cited in range(max_citations + 1):
                scores = [objective.score(MuSiQueOutcome(hops, hop_count, grade, cited)) for grade in grades]
                if any(after < before - ROUNDING for before, after in pairwise(scores)):
                    return objective.name
                table[found, cited] = scores
        for (found, cited), scores in table.items():
            worse = [(found, cited + 1)] if cited < max_citations else []
            worse += [((*found[:i], False, *found[i + 1 :]), cited) for i in range(hop_count) if found[i]]
            for other in worse:
                if any(a < b - ROUNDING for a, b in zip(scores, table[other], strict=True)):
                    return objective.name
    return None
