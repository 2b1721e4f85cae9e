"""The prompt of a multi-hop question, and the reader of its answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from vpo_envs.core import Unparsable
from vpo_envs.tasks.musique.task import MAX_CITATIONS, MuSiQueTask, has_words
from vpo_envs.text import answer_tags, read_tag, several_answers, squad_tokens

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
    """Read an answer: citations in an optional ``<support>``, and the answer itself in ``<final>``.

    Raises:
        Unparsable: There is no ``<final>``, or it contains no letter or digit.
    """
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


def question_prompt(task: MuSiQueTask, num_answers: int) -> str:
    """Return the paragraphs, the question, the rules and the tags to fill in."""
    cap = task.max_citations
    rule = (
        f"Cite at most {NUMBER_WORDS[cap]} different paragraph{'s' if cap > 1 else ''}: further citations do not count."
    )
    if cap < len(set(task.support)):
        rule += f" The question takes {NUMBER_WORDS[len(task.support)]} steps, so choose which of them to support."
    wanted = "Give one answer in this form:" if num_answers == 1 else f"{several_answers(num_answers)} Use this form:"
    return "\n".join(
        [
            "Answer the question using the paragraphs below. It takes several steps, each answered by one paragraph.",
            "",
            *[f"[{paragraph.number}] {paragraph.title}: {paragraph.text}" for paragraph in task.paragraphs],
            "",
            f"Question: {task.question}",
            "",
            "An answer has two parts: the numbers of the paragraphs that support it, in <support>, and the answer "
            "itself, as short as possible, in <final>.",
            rule,
            "You score for citing the paragraph of each step, and for the words that your final answer shares with the "
            "correct one.",
            wanted,
            *[
                f"{opening}<support>...</support><final>...</final>{closing}"
                for opening, closing in answer_tags(num_answers)
            ],
        ]
    )
