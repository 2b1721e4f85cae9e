"""A question with its paragraphs: the prompt, reading an answer, its outcome, the objectives, and MuSiQue's rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from envs_data.readers import BadRow
from vpo_envs.core import Frozen, Objective, Task, Unparsable
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import entry
from vpo_envs.tasks.generation import worded
from vpo_envs.text import answer_tags, count_tokens, read_tag, several_answers, squad_tokens, token_f1

MAX_HOPS = 4
MAX_CITATIONS = 4


class Paragraph(Frozen):
    """One numbered paragraph that an answer may cite."""

    number: int = Field(ge=0)
    title: str
    text: str


class Hop(Frozen):
    """One hop of a question."""

    question: str
    """The hop as a question of its own; ``#1`` is replaced by the answer of the first hop."""
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
    exact: bool = False
    """Whether a final answer must have all words of a gold one and no others; otherwise it earns their F1."""

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


INTEGER = re.compile(r"\d+")
NO_PARAGRAPH = -1
LONGEST_NUMBER = 9
NUMBER_WORDS = ("no", "one", "two", "three", "four")


class MuSiQueAnswer(NamedTuple):
    """A parsed answer."""

    citations: tuple[int, ...]
    """The first :data:`MAX_CITATIONS` distinct paragraph numbers, in the order of the text."""
    tokens: tuple[str, ...]
    """The final answer, normalised."""


def read_citations(text: str) -> tuple[int, ...]:
    """Return the first four distinct integers of a text, however separated: ``[3]``, ``3 and 7``, ``7.``.

    A number too long for any paragraph is read as -1.
    """
    numbers = [int(digits) if len(digits) <= LONGEST_NUMBER else NO_PARAGRAPH for digits in INTEGER.findall(text)]
    return tuple(dict.fromkeys(numbers))[:MAX_CITATIONS]


def read_answer(text: str) -> MuSiQueAnswer:
    """Read an answer: citations in an optional ``<support>``, and the answer itself in ``<final>``."""
    final = read_tag(text, "final")
    if final is None:
        raise Unparsable("no <final>…</final>")
    if not has_words(final):
        raise Unparsable("<final> contains no letter or digit")
    support = read_tag(text, "support")
    return MuSiQueAnswer(() if support is None else read_citations(support), squad_tokens(final))


def write_answer(citations: Sequence[int], final: str) -> str:
    """Return the content of an answer tag."""
    return f"<support>{', '.join(map(str, citations))}</support><final>{final}</final>"


class Wording(NamedTuple):
    """One way to put the task into words."""

    opening: str
    form: str
    cap: str
    """Sentence on how many citations count: ``{cap}`` is a number in words with "paragraph" or "paragraphs"."""
    choice: str
    """Sentence with the number of hops, ``{steps}``, for prompts whose hops cannot all be cited."""
    objectives: str
    exact: str
    """Sentence on how a final answer scores that must be exact."""
    words: str
    """Sentence on how a final answer scores by its words."""


WORDINGS = (
    Wording(
        "Answer the question using the paragraphs below. It takes several steps, each answered by one paragraph.",
        "An answer has two parts: the numbers of the paragraphs that support it, in <support>, and the answer itself, "
        "as short as possible, in <final>.",
        "Cite at most {cap}: further citations do not count.",
        "The question takes {steps} steps, so choose which of them to support.",
        "Citing the paragraph of each step is an objective, and the final answer is another.",
        "The final answer must be the right name and nothing else.",
        "The final answer scores by the words that it shares with the correct one, and loses by others.",
    ),
    Wording(
        "Below are numbered paragraphs and a question. To answer it, several facts have to be joined, each from a "
        "paragraph of its own.",
        "Write the numbers of the paragraphs with these facts in <support>, separated by commas, and the short answer "
        "in <final>.",
        "Only the first {cap} that you cite can score.",
        "There are {steps} such facts: decide whose paragraphs you cite.",
        "Each of these paragraphs is an objective, met by citing it; the answer is another.",
        "The answer scores only if it is exactly the name asked for.",
        "The answer scores more the more of its words are those of the correct one, and none of those is missing.",
    ),
    Wording(
        "Read the paragraphs and answer the question after them. One paragraph leads to the next until the answer is "
        "found.",
        "Name the paragraphs on the way by their numbers in <support>, and the answer in as few words as possible in "
        "<final>.",
        "No more than {cap} count, in the order in which you cite them.",
        "The way has {steps} paragraphs, so some of them must be left out.",
        "There is an objective for each paragraph on the way, met by citing it, and one for the answer.",
        "That one is for the right name alone: a second name beside it makes the answer wrong.",
        "That one depends on how many words the answer has in common with the correct one, and on how few others it "
        "has.",
    ),
)


def question_prompt(task: MuSiQueTask, num_answers: int) -> str:
    """Return the paragraphs, the question, the rules and the tags to fill in."""
    wording = worded(task, WORDINGS)
    cap, steps = task.max_citations, len(set(task.support))
    rule = wording.cap.format(cap=f"{NUMBER_WORDS[cap]} different paragraph{'s' if cap > 1 else ''}")
    if cap < steps:
        rule += " " + wording.choice.format(steps=NUMBER_WORDS[steps])
    several = several_answers(num_answers, conflict=cap < steps)
    wanted = "Give one answer in this form:" if num_answers == 1 else f"{several} Use this form:"
    return "\n".join(
        [
            wording.opening,
            "",
            *[f"[{paragraph.number}] {paragraph.title}: {paragraph.text}" for paragraph in task.paragraphs],
            "",
            f"Question: {task.question}",
            "",
            wording.form,
            rule,
            f"{wording.objectives} {wording.exact if task.exact else wording.words}",
            wanted,
            *[
                f"{opening}<support>...</support><final>...</final>{closing}"
                for opening, closing in answer_tags(num_answers)
            ],
        ]
    )


class MuSiQueOutcome(NamedTuple):
    """The facts about one answer that the objectives look at."""

    hops: tuple[bool, ...]
    """Whether the gold paragraph of each of four hops is among the citations that count; false for absent hops."""
    hop_count: int
    """Hops of the question."""
    answer_f1: float
    """Best token F1 over the gold answers, in [0, 1]."""
    cited: int
    """Distinct citations that count."""


def judge(task: MuSiQueTask, answer: MuSiQueAnswer) -> MuSiQueOutcome:
    """Find the hops whose paragraphs are cited, and compare the final answer with the gold answers."""
    counted = answer.citations[: task.max_citations]
    hops = [number in counted for number in task.support]
    f1 = max([token_f1(answer.tokens, gold) for gold in task.gold_tokens])
    if task.exact:
        f1 = float(f1 == 1)
    hops += [False] * (MAX_HOPS - len(hops))
    return MuSiQueOutcome(tuple(hops), len(task.support), f1, len(counted))


OBJECTIVES = (
    *(
        Objective(f"hop_{i + 1}", f"The paragraph of the {ordinal} step is cited", entry("hops", i))
        for i, ordinal in enumerate(("first", "second", "third", "fourth"))
    ),
    Objective("answer_f1", "Token F1 of the final answer with the best gold answer", attrgetter("answer_f1")),
)
SCALAR_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 3.0)
"""The paper's scalar: the final answer weighs as much as three paragraphs."""


def fact_grid(hop_count: int, max_citations: int) -> FactGrid:
    """Return the outcomes of a question, from worse to better: more hops found, a higher F1, fewer citations."""
    hops = [(False, True)] * hop_count + [(False,)] * (MAX_HOPS - hop_count)
    grades = tuple(step / 16 for step in range(17))
    return FactGrid(_outcome, ((hop_count,), grades, tuple(range(max_citations, -1, -1)), *hops))


def _outcome(hop_count: int, answer_f1: float, cited: int, *hops: bool) -> MuSiQueOutcome:
    return MuSiQueOutcome(hops, hop_count, answer_f1, cited)


class _Published(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Paragraph(_Published):
    idx: int
    title: str
    paragraph_text: str


class _Step(_Published):
    question: str
    answer: str
    paragraph_support_idx: int


class _Row(_Published):
    id: str
    paragraphs: list[_Paragraph] = Field(min_length=1)
    question: str = Field(min_length=1)
    question_decomposition: list[_Step] = Field(min_length=1, max_length=MAX_HOPS)
    answer: str
    answer_aliases: list[str | None] | None = None
    answerable: bool | None = True


def read_published(raw: Mapping[str, Any]) -> MuSiQueTask:
    """Return the task of a row of MuSiQue-Ans.

    Aliases may be null; blank or repeated ones are dropped. A row that does not say so has an answer.
    """
    if "paragraphs" not in raw and "question_decomposition" not in raw:
        raise BadRow("", "unknown schema: a row of MuSiQue-Ans has id, paragraphs, question_decomposition and others")
    if raw.get("answerable") is False:
        raise BadRow("answerable", "the question has no answer in its paragraphs: use the rows of MuSiQue-Ans")
    row = _Row.model_validate(dict(raw))
    aliases = [alias for alias in row.answer_aliases or [] if alias and has_words(alias)]
    return MuSiQueTask(
        id=row.id,
        question=row.question,
        paragraphs=tuple(Paragraph(number=p.idx, title=p.title, text=p.paragraph_text) for p in row.paragraphs),
        hops=tuple(
            Hop(question=step.question, answer=step.answer, paragraph=step.paragraph_support_idx)
            for step in row.question_decomposition
        ),
        answers=tuple(dict.fromkeys([row.answer, *aliases])),
    )
