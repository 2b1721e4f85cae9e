"""A word problem: its calculations, the prompt, reading an answer, its outcome and the objectives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

from pydantic import Field, field_validator

from vpo_envs.core import Objective, Task, Unparsable
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.generation import worded
from vpo_envs.tasks.gsm8k.equations import Equation, read_equation, readings
from vpo_envs.text import answer_tags, several_answers

SPARE = 2
"""Equations that an answer may have beyond those of the task's own solution."""


class GSM8KTask(Task):
    """One word problem."""

    question: str = Field(min_length=1)
    calculations: tuple[str, ...]
    """The calculations of the solution in order, such as ``"40-4=36"``."""
    final: str
    """The final answer, a number."""
    most: int | None = Field(None, ge=1)
    """Most equations of an answer; ``None`` for :data:`SPARE` more than the solution has."""

    @property
    def canonical(self) -> str:
        """The numbers of each calculation, whoever the story is about and whatever else it tells."""
        return str([([*map(str, equation.operands)], str(equation.result)) for equation in self.equations])

    @field_validator("calculations")
    @classmethod
    def _are_right(cls, calculations: tuple[str, ...]) -> tuple[str, ...]:
        for text in calculations:
            if not read_equation(text).right:
                raise ValueError(f"{text!r} is not a calculation that holds exactly")
        return calculations

    @field_validator("final")
    @classmethod
    def _is_a_number(cls, final: str) -> str:
        readings(final)
        return final

    @cached_property
    def equations(self) -> tuple[Equation, ...]:
        """The calculations, read."""
        return tuple(map(read_equation, self.calculations))

    @cached_property
    def answer(self) -> Fraction:
        """The final answer; for 60%, whichever of 60 and 0.6 the calculations give, or else 60."""
        numbers = readings(self.final)
        results = {equation.result for equation in self.equations}
        return next((number for number in numbers if number in results), numbers[0])

    @cached_property
    def steps(self) -> tuple[Fraction, ...]:
        """The distinct intermediate values: results of the calculations other than the final answer, in order."""
        results = [equation.result for equation in self.equations]
        return tuple(dict.fromkeys(result for result in results if result != self.answer))

    @property
    def limit(self) -> int:
        """Most equations of an answer."""
        return len(self.calculations) + SPARE if self.most is None else self.most


MAX_CHARS = 4000
MAX_LINES = 32
FINAL = "####"
UNREADABLE = Equation((), Fraction(0), right=False)
"""An equation that breaks a rule, of which nothing is known."""


@dataclass(frozen=True, slots=True)
class GSM8KAnswer:
    """A parsed answer."""

    equations: tuple[Equation, ...]
    final: Fraction
    others: tuple[Fraction, ...] = field(default=(), compare=False)
    """Other numbers that the final answer may mean."""


def read_answer(text: str) -> GSM8KAnswer:
    """Read equations, one per line or separated by semicolons, and the final answer after ``####`` on the last line."""
    if len(text) > MAX_CHARS:
        raise Unparsable(f"an answer has at most {MAX_CHARS:,} characters, got {len(text):,}")
    lines = [line.strip() for line in re.split(r"[\n;]", text) if line.strip()]
    if not 1 <= len(lines) <= MAX_LINES:
        raise Unparsable(f"an answer has 1 to {MAX_LINES} lines, got {len(lines)}")
    if not lines[-1].startswith(FINAL):
        raise Unparsable(f"the last line is {FINAL} and the final answer")
    final, *others = readings(lines[-1].removeprefix(FINAL))
    return GSM8KAnswer(tuple([_read_line(line) for line in lines[:-1]]), final, tuple(others))


def _read_line(line: str) -> Equation:
    """Read an equation; one that cannot be read, such as ``2^2 = 4``, breaks a rule and is treated like a wrong one."""
    try:
        return read_equation(line)
    except Unparsable:
        if "=" not in line:
            raise
        return UNREADABLE


def write_answer(calculations: Sequence[str], final: str) -> str:
    """Return the content of an answer tag."""
    return "\n".join([*calculations, f"{FINAL} {final}"])


class Wording(NamedTuple):
    """One way to put the rules into words, with the ``{limit}`` of equations."""

    form: str
    rules: tuple[str, ...]
    objectives: str


WORDINGS = (
    Wording(
        "An answer is a list of equations, one a line, and the final answer after ####, as in this one to another "
        "question:",
        (
            "An equation joins numbers by +, -, *, / and parentheses, and has one number after the equals sign. It "
            "holds exactly: write 10 / 3 = 10/3, not 10 / 3 = 3.33.",
            "Its result is used in a later equation, or is the final answer. An equation that breaks a rule reaches no "
            "result, but it still counts as an equation.",
            "Write at most {limit} equations; an answer with more scores nothing. Write no words.",
        ),
        "An answer is scored on several objectives. The intermediate results of the solution make up to {steps} of "
        "them, in order: one for each result, or for a few results where there are more. It is the share of its "
        "results that equations reach, and 0 if fewer than half of the equations reach a result of the solution. The "
        "others are the final answer and, if that is right, brevity (1 without equations, decreasing linearly to 0 at "
        "{limit}).",
    ),
    Wording(
        "Write equations, each on a line of its own, and then #### and the final answer. For another question it "
        "might be:",
        (
            "Left of the equals sign stand two numbers or more with +, -, *, / and parentheses, right of it one "
            "number. Both sides are exactly equal, so 10 / 3 = 10/3 is right and 10 / 3 = 3.33 is wrong.",
            "A wrong equation reaches no result. Neither does one whose result no later equation uses, unless it is "
            "the final answer. Such equations are still counted.",
            "There is no text between the equations. There are {limit} of them at most: an answer with more scores 0 "
            "on every objective.",
        ),
        "There are several objectives. Up to {steps} are for the intermediate results of the solution, one for each "
        "or, where there are more, one for a few that follow each other: the share of them that is reached. All of "
        "these score 0 if more than half of the equations reach no result of the solution. The final answer is another "
        "objective. The last is brevity, which scores if the final answer is right: 1 for no equation, linearly less "
        "for each, and 0 for {limit}.",
    ),
    Wording(
        "Give your working as equations, one a line, and end with #### and the final answer. An answer to another "
        "question:",
        (
            "Use numbers, +, -, *, / and parentheses before the equals sign, and one number after it. Round nothing: "
            "10 / 3 = 10/3 holds, 10 / 3 = 3.33 does not.",
            "Each result has a purpose: a later equation needs it, or it is the final answer. An equation "
            "without a purpose reaches nothing, and so does one that does not hold. Both still count as equations.",
            "An answer with more than {limit} equations scores nothing. Words are not allowed.",
        ),
        "These are the objectives: the intermediate results of the solution, which your equations are to reach (at "
        "least half of them must reach one of these results or the final answer); the final answer; and brevity. Each "
        "intermediate result has an objective of its own. If there are more than {steps}, neighbours share one, which "
        "is the share of them that is reached. With a right final answer, brevity decreases linearly from 1 without "
        "equations to 0 at {limit}.",
    ),
)


def full_prompt(task: GSM8KTask, num_answers: int, steps: int) -> str:
    """Return the question, the rules and the tags to fill in; ``steps`` objectives are for intermediate results."""
    wording = worded(task, WORDINGS)
    if num_answers == 1:
        wanted = "Write one answer between these tags:"
    else:
        wanted = f"{several_answers(num_answers)}\nWrite each answer between its own tags:"
    return "\n".join(
        [
            task.question,
            "",
            wording.form,
            "12 * 3 = 36",
            "36 / 2.5 = 14.4",
            "#### 14.4",
            "",
            "Rules:",
            *[f"- {rule}".format(limit=task.limit) for rule in wording.rules],
            "",
            wording.objectives.format(limit=task.limit, steps=steps),
            "",
            wanted,
            *[f"{opening}equations and final answer{closing}" for opening, closing in answer_tags(num_answers)],
        ]
    )


class GSM8KOutcome(NamedTuple):
    """The facts about one answer that the objectives look at."""

    steps: tuple[bool, ...]
    """Whether each intermediate value is reached."""
    final: bool
    """Whether the final answer is right."""
    equations: int
    limit: int
    """Most equations of an answer."""


def judge(task: GSM8KTask, answer: GSM8KAnswer) -> GSM8KOutcome:
    """Find the values of the solution that a true equation reaches and that a later equation uses, or that are final.

    The equation that uses a value need not hold itself, so that a slip at the end does not undo what is before it.
    Values count only if at least half of the equations reach a value of the solution, so that guessing earns little.
    """
    stated, right = (answer.final, *answer.others), readings(task.final)
    # Where only one of the two has a percent sign, the other may be the number before it or a hundredth of that.
    final = stated == right if len(stated) == len(right) else not set(stated).isdisjoint(right)
    used, reached = set(stated), set()
    for equation in reversed(answer.equations):
        if equation.right:
            reached |= used.intersection((equation.result, *equation.others))
        used.update(equation.operands)
    of_solution = reached.intersection((*task.steps, task.answer))
    earns = 2 * len(of_solution) >= len(answer.equations)
    steps = tuple([earns and value in of_solution for value in task.steps])
    return GSM8KOutcome(steps, final, len(answer.equations), task.limit)


def _share(objective: int, objectives: int, outcome: GSM8KOutcome) -> float:
    """Return the share of the intermediate values that one of several objectives stands for."""
    bounds = list(pairwise(groups(len(outcome.steps), objectives)))
    if objective >= len(bounds):
        return 0.0  # A task with fewer steps: the objective is inactive.
    reached = outcome.steps[slice(*bounds[objective])]
    return sum(reached) / len(reached)


def groups(steps: int, objectives: int) -> list[int]:
    """Return the bounds of consecutive groups of steps: one each, or as even as possible if there are too many."""
    count = min(steps, objectives)
    return [i * steps // count for i in range(count + 1)] if count else [0]


def _final(outcome: GSM8KOutcome) -> float:
    return float(outcome.final)


def _brevity(outcome: GSM8KOutcome) -> float:
    return max(0.0, 1 - outcome.equations / outcome.limit) if outcome.final else 0.0


def objectives_of(steps: int) -> tuple[Objective, ...]:
    """Return the objectives with ``steps`` of them for intermediate values."""
    return (
        # A partial, unlike a lambda, can be pickled with its environment.
        *(
            Objective(
                f"step_{i + 1}", f"Intermediate value {i + 1} of the solution is reached", partial(_share, i, steps)
            )
            for i in range(steps)
        ),
        Objective("final", "The final answer is right", _final),
        Objective("brevity", "1 without equations, 0 at the limit, if the final answer is right", _brevity),
    )


def fact_grid(steps: int, limit: int) -> FactGrid:
    """Return outcomes, from worse to better: fewer equations, a right final answer, more steps reached."""
    return FactGrid(_outcome, ((limit,), tuple(range(limit, -1, -1)), (False, True), *[(False, True)] * steps))


def _outcome(limit: int, equations: int, final: bool, *steps: bool) -> GSM8KOutcome:
    return GSM8KOutcome(steps, final, equations, limit)
