"""The prompt that lists what each persona checks, and the reader of texts."""

from __future__ import annotations

from collections.abc import Sequence

from vpo_envs.core import Unparsable
from vpo_envs.tasks.personas.checks import Check, describe
from vpo_envs.tasks.personas.task import PersonasTask
from vpo_envs.text import answer_tags, several_answers

MIN_WORDS = 8
MAX_WORDS = 120
AS_BLANKS = bytes.maketrans(b"\n", b" ")
"""Line breaks as blanks."""
CONTROLS = bytes([*range(ord("\n")), *range(ord("\n") + 1, ord(" ")), 127])
"""Control characters of ASCII but the line break."""


def request(topic: str, personas: Sequence[Sequence[Check]]) -> str:
    """Return what is asked for: the topic, the checks of each persona and the rules."""
    lines = [
        f"Write a short text about {topic}. It is for {len(personas)} personas, each of whom judges it by a list of "
        "checks."
    ]
    for number, checks in enumerate(personas, start=1):
        lines += ["", f"Persona {number} wants a text that", *(f"- {describe(check)}" for check in checks)]
    rules = (
        f'Rules: the text uses the word "{topic}" and has {MIN_WORDS} to {MAX_WORDS} words. It is not copied from '
        "these instructions and does not repeat itself. A text that breaks a rule earns nothing."
    )
    return "\n".join([*lines, "", rules])


def full_prompt(task: PersonasTask, num_answers: int) -> str:
    """Return the request and the tags to fill in."""
    tags = [f"{opening} a text {closing}" for opening, closing in answer_tags(num_answers)]
    kind = "personas" if task.topic else "instructions"
    wanted = (
        "Write the text between these tags:"
        if num_answers == 1
        else f"{several_answers(num_answers, 'texts', kind)} Write each text between its own tags:"
    )
    return "\n\n".join([task.request, "\n".join([wanted, *tags])])


def read_answer(text: str) -> str:
    """Return a text with single blanks, and no blanks at the ends of lines.

    Raises:
        Unparsable: The text is empty.
    """
    text = text.strip()
    if not text:
        raise Unparsable("the text is empty")
    if text.isascii():
        blanks = text.encode().translate(AS_BLANKS, CONTROLS)
        if len(blanks) == len(text) and b"  " not in blanks:
            return text
    return "\n".join([" ".join(line.split()) for line in text.splitlines()])
