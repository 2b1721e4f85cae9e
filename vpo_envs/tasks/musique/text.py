"""How a multi-hop question is put to a model, and how an answer is read back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vpo_envs.core import Unparsable
from vpo_envs.tasks.musique.task import MAX_CITATIONS, MuSiQueAnswer, MuSiQueTask, has_words
from vpo_envs.text import answer_tags, read_tag, squad_tokens

INTEGER = re.compile(r"\d+")
NO_PARAGRAPH = -1
LONGEST_NUMBER = 9
NUMBER_WORDS = ("no", "one", "two", "three", "four")


def read_citations(text: str) -> tuple[int, ...]:
    """The first four distinct integers of a text, whatever stands between them: ``[3]``, ``3 and 7``, ``7.``.

    A number too long for any paragraph reads as -1.
    """
    found: list[int] = []
    for match in INTEGER.finditer(text):
        digits = match.group()
        number = int(digits) if len(digits) <= LONGEST_NUMBER else NO_PARAGRAPH
        if number not in found:
            found.append(number)
            if len(found) == MAX_CITATIONS:
                break
    return tuple(found)


def read_answer(text: str) -> MuSiQueAnswer:
    """Read an answer: citations in ``<support>``, which may be left out, and the answer proper in ``<final>``.

    Raises:
        Unparsable: There is no ``<final>``, or no letter or digit in it.
    """
    final = read_tag(text, "final")
    if final is None:
        raise Unparsable("no <final>…</final>")
    if not has_words(final):
        raise Unparsable("<final> holds no answer")
    support = read_tag(text, "support")
    return MuSiQueAnswer(() if support is None else read_citations(support), squad_tokens(final))


def write_answer(citations: Sequence[int], final: str) -> str:
    """What stands inside an answer tag."""
    return f"<support>{', '.join(map(str, citations))}</support><final>{final}</final>"


def question_prompt(task: MuSiQueTask, num_answers: int) -> str:
    """Paragraphs, question, rules and the tags that are wanted."""
    cap = task.max_citations
    rule = (
        f"Cite at most {NUMBER_WORDS[cap]} different paragraph{'s' if cap > 1 else ''}: further citations do not count."
    )
    if cap < len(set(task.support)):
        rule += f" The question takes {NUMBER_WORDS[len(task.support)]} steps, so choose which of them to support."
    tags = answer_tags(num_answers)
    if num_answers == 1:
        wanted = ["Give one answer in this form:"]
    else:
        wanted = [
            f"Give {num_answers} different answers that make different trade-offs between these goals. They are judged "
            "together: under each weighting of the goals only the best of them counts. Use this form:"
        ]
    form = [f"{opening}<support>...</support><final>...</final>{closing}" for opening, closing in tags]
    return "\n".join(
        [
            "Answer the question from the paragraphs. It takes several steps, each of which rests on one paragraph.",
            "",
            *[f"[{paragraph.number}] {paragraph.title}: {paragraph.text}" for paragraph in task.paragraphs],
            "",
            f"Question: {task.question}",
            "",
            "An answer has two parts: the numbers of the paragraphs that it rests on, in <support>, and the answer "
            "itself, as short as possible, in <final>.",
            rule,
            "It is scored on citing the paragraph of each step, and on the words that its final answer shares with the "
            "right one.",
            *wanted,
            *form,
        ]
    )
