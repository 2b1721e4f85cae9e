"""The prompt of a word problem, and the reader of answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from vpo_envs.core import Unparsable
from vpo_envs.tasks.gsm8k.equations import Equation, read_equation, read_number
from vpo_envs.tasks.gsm8k.task import GSM8KTask
from vpo_envs.text import answer_tags, several_answers

MAX_CHARS = 4000
MAX_LINES = 32
FINAL = "####"


class GSM8KAnswer(NamedTuple):
    """A parsed answer."""

    equations: tuple[Equation, ...]
    final: Fraction


def read_answer(text: str) -> GSM8KAnswer:
    """Read equations, one a line or separated by semicolons, and the final answer after ``####`` on the last line.

    Raises:
        Unparsable: The text is too long, has too many lines, or a line is not of this form.
    """
    if len(text) > MAX_CHARS:
        raise Unparsable(f"an answer has at most {MAX_CHARS:,} characters, got {len(text):,}")
    lines = [line.strip() for line in re.split(r"[\n;]", text) if line.strip()]
    if not 1 <= len(lines) <= MAX_LINES:
        raise Unparsable(f"an answer has 1 to {MAX_LINES} lines, got {len(lines)}")
    if not lines[-1].startswith(FINAL):
        raise Unparsable(f"the last line is {FINAL} and the final answer")
    return GSM8KAnswer(tuple([read_equation(line) for line in lines[:-1]]), read_number(lines[-1].removeprefix(FINAL)))


def write_answer(calculations: Sequence[str], final: str) -> str:
    """Return the content of an answer tag."""
    return "\n".join([*calculations, f"{FINAL} {final}"])


def full_prompt(task: GSM8KTask, num_answers: int) -> str:
    """Return the question, the rules and the tags to fill in."""
    if num_answers == 1:
        wanted = "Write one answer between these tags:"
    else:
        wanted = f"{several_answers(num_answers)}\nWrite each answer between its own tags:"
    return "\n".join(
        [
            task.question,
            "",
            "An answer is a list of equations, one a line, and the final answer after ####, as in this one to another "
            "question:",
            "12 * 3 = 36",
            "36 / 2.5 = 14.4",
            "#### 14.4",
            "",
            "Rules:",
            "- An equation joins numbers by +, -, *, / and parentheses, and has one number after the equals sign. It "
            "holds exactly: write 10 / 3 = 10/3, not 10 / 3 = 3.33.",
            "- Its result is used in a later equation, or is the final answer. Equations that break a rule count for "
            "nothing.",
            f"- Write at most {task.limit} equations; an answer with more scores nothing. Write no words.",
            "",
            "An answer is scored on several goals: each intermediate result of the solution that it reaches; the final "
            f"answer; and, if that is right, brevity (1 without equations, falling evenly to 0 at {task.limit}).",
            "",
            wanted,
            *[f"{opening}equations and final answer{closing}" for opening, closing in answer_tags(num_answers)],
        ]
    )
