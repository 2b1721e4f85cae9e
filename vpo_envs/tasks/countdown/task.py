"""Numbers and three targets: the prompts, reading an expression, its outcome and the objectives."""

from __future__ import annotations

import re
from math import gcd
from typing import NamedTuple

from pydantic import Field, field_validator

from vpo_envs.core import Objective, Task, Unparsable
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import entry
from vpo_envs.tasks.generation import worded
from vpo_envs.text import answer_tags, several_answers

MAX_NUMBERS = 6
LARGEST = 100
LARGEST_TARGET = 100_000
"""With these bounds, exact arithmetic on six numbers fits into 64 bits."""
TARGETS = 3


class CountdownTask(Task):
    """Numbers to calculate with, and the targets to reach."""

    numbers: tuple[int, ...] = Field(min_length=2, max_length=MAX_NUMBERS)
    """The given numbers, each of which may be used once."""
    targets: tuple[int, ...] = Field(min_length=TARGETS, max_length=TARGETS)
    tolerance: int = Field(10, ge=1, le=LARGEST_TARGET)
    """Distance from a target at which nothing is earned any more."""
    integers: bool = False
    """Whether every intermediate result must be a whole number."""

    @property
    def canonical(self) -> str:
        """The numbers and the targets, each in ascending order."""
        return f"{tuple(sorted(self.numbers))} {tuple(sorted(self.targets))}"

    @field_validator("numbers")
    @classmethod
    def _are_small(cls, numbers: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= number <= LARGEST for number in numbers):
            raise ValueError(f"the given numbers must lie from 1 to {LARGEST}, got {numbers}")
        return numbers

    @field_validator("targets")
    @classmethod
    def _are_different(cls, targets: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(targets)) < len(targets) or not all(abs(target) <= LARGEST_TARGET for target in targets):
            raise ValueError(f"targets must be different numbers of at most {LARGEST_TARGET:,}, got {targets}")
        return targets


MAX_CHARS = 1000
"""Longest text that is read as an expression, which also bounds its depth and the size of its value."""
SHOWN_CHARS = 20
TOKEN = re.compile(r"[0-9]+|\S")
SIGNS = str.maketrans("×·÷−–", "**/--")
STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}
DIGITS = frozenset("0123456789")


class Expression(NamedTuple):
    """An expression that was read, with its exact value."""

    key: str
    """The expression with its operands in a fixed order, and without parentheses that make no difference."""
    numbers: tuple[int, ...]
    """The numbers used, in ascending order."""
    numerator: int
    """Numerator of the value as a reduced fraction."""
    denominator: int
    """Denominator of the value as a reduced fraction, above 0."""
    whole: bool
    """Whether every intermediate result is a whole number."""


Part = tuple[str, tuple[str, ...], tuple[str, ...], int, int]
"""A part of an expression: its kind (``"+"`` for a sum with differences, ``"*"`` for a product with quotients, empty
for a number); the keys of what is added or multiplied; of what is subtracted or divided by; and the value."""


def key_of(part: Part) -> str:
    """Return a part as an expression, whatever the order of its operands."""
    kind, ahead, behind, _, _ = part
    if not kind:
        return ahead[0]
    inverse = "-" if kind == "+" else "/"
    return f"({kind.join(sorted(ahead))}{''.join([inverse + key for key in sorted(behind)])})"


def read_expression(text: str) -> Expression:
    """Read an expression of whole numbers, ``+ - * /`` and parentheses, and calculate its value exactly.

    ``× · ÷`` and the typographic minus signs are read as well, and a full stop at the end is ignored. Multiplication
    and division bind more strongly than addition and subtraction; operators of equal strength are read from the left.
    Expressions that differ only in the order of terms or of factors are the same. The text is never executed, and
    reading it takes no recursion.
    """
    if len(text) > MAX_CHARS:
        raise Unparsable(f"an expression has at most {MAX_CHARS:,} characters, got {len(text):,}")
    numbers: list[int] = []
    parts: list[Part] = []
    waiting: list[str] = []
    whole = wants_operand = True
    for token in TOKEN.findall(text.rstrip().removesuffix(".").translate(SIGNS)):
        if token in STRENGTH:
            if wants_operand:
                raise Unparsable(f"a number is missing before {token}")
            strength = STRENGTH[token]
            while waiting and waiting[-1] != "(" and STRENGTH[waiting[-1]] >= strength:
                whole = _calculate(parts, waiting.pop()) and whole
            waiting.append(token)
            wants_operand = True
        elif token == ")":
            if wants_operand:
                raise Unparsable("a number is missing before )")
            while waiting and waiting[-1] != "(":
                whole = _calculate(parts, waiting.pop()) and whole
            if not waiting:
                raise Unparsable("a ( is missing for )")
            waiting.pop()
        elif token != "(" and token[0] not in DIGITS:
            raise Unparsable(f"{token!r} is not a digit, one of + - * / or a parenthesis")
        elif not wants_operand:
            raise Unparsable(f"an operator is missing before {token[:SHOWN_CHARS]}")
        elif token == "(":
            waiting.append(token)
        else:
            number = int(token)
            numbers.append(number)
            parts.append(("", (str(number),), (), number, 1))
            wants_operand = False
    if wants_operand:
        raise Unparsable("a number is missing at the end" if waiting else "no expression")
    while waiting:
        operator = waiting.pop()
        if operator == "(":
            raise Unparsable("a ) is missing at the end")
        whole = _calculate(parts, operator) and whole
    *_, numerator, denominator = parts[0]
    common = gcd(numerator, denominator) if denominator > 0 else -gcd(numerator, denominator)
    return Expression(key_of(parts[0]), tuple(sorted(numbers)), numerator // common, denominator // common, whole)


def _calculate(parts: list[Part], operator: str) -> bool:
    """Replace the last two parts by the result of an operator; return false for a division with a remainder."""
    right, left = parts.pop(), parts.pop()
    left_kind, ahead, behind, p, q = left
    right_kind, more, less, r, s = right
    exact = True
    if operator == "/":
        if r == 0:
            raise Unparsable(f"{key_of(right)[:SHOWN_CHARS]} is 0, and nothing can be divided by it")
        numerator, denominator = p * s, q * r
        exact = numerator % denominator == 0
        if exact:
            numerator, denominator = numerator // denominator, 1
    elif operator == "*":
        numerator, denominator = p * r, q * s
    elif operator == "+":
        numerator, denominator = p * s + r * q, q * s
    else:
        numerator, denominator = p * s - r * q, q * s
    kind = "+" if operator in "+-" else "*"
    if left_kind != kind:
        ahead, behind = (key_of(left),), ()
    if right_kind != kind:
        more, less = (key_of(right),), ()
    if operator in "-/":
        more, less = less, more
    parts.append((kind, ahead + more, behind + less, numerator, denominator))
    return exact


class Wording(NamedTuple):
    """One way to put the task into words, with ``{numbers}``, ``{targets}``, ``{tolerance}`` and ``{count}``."""

    opening: str
    rules: tuple[str, ...]
    integers: str
    fractions: str
    objectives: str


WORDINGS = (
    Wording(
        "You are given the numbers {numbers}, and the targets {targets}. Write an arithmetic expression whose value "
        "is close to one or more of the targets.",
        (
            "Use +, -, *, / and parentheses, and each given number at most once. You need not use all of them. Each "
            "sign stands between two parts of the expression.",
            "Write nothing but the expression: no result, no equals sign, no words.",
            "An expression that uses any other number scores nothing. So does one whose value is {tolerance} or "
            "more away from every target.",
        ),
        "Every intermediate result must be a whole number.",
        "Intermediate fractions are allowed and computed exactly.",
        "An expression is scored on four objectives. Each target is one of them: 1 if the value is the target, "
        "decreasing linearly to 0 at a distance of {tolerance}. The fourth is frugality: 1 if one number is used, "
        "decreasing linearly to 0 if all {count} are used.",
    ),
    Wording(
        "Make an expression from some of the numbers {numbers}. Its value should be near the targets, which are "
        "{targets}.",
        (
            "No number may be used more often than it is given; some may be left out. Allowed signs are +, -, *, / and "
            "parentheses, and no - in front of the first number.",
            "The answer is the expression alone, without its value.",
            "An expression with a number that is not given scores 0 on every objective. So does one whose value is "
            "{tolerance} or more away from every target.",
        ),
        "All intermediate values must be whole numbers.",
        "Intermediate values may be fractions, which are not rounded.",
        "There are four objectives. Three of them are the targets: 1 for hitting the target, linearly less with the "
        "distance from it, and 0 from a distance of {tolerance} on. The fourth is using few numbers: 1 for one number, "
        "linearly less for each further one, and 0 for all {count}.",
    ),
    Wording(
        "The targets are {targets}. Combine the numbers {numbers} so that the result comes close to at least one "
        "target.",
        (
            "Use each number once or not at all, joined by +, -, *, / and parentheses. A - is never the sign of a "
            "number.",
            "Give the expression without a result and without words.",
            "You score nothing if another number occurs in it, or if all targets are {tolerance} or more away from "
            "its value.",
        ),
        "Each part of the expression has a whole number as its value.",
        "Parts of the expression may have fractions as values; nothing is rounded.",
        "There are four objectives: how near the value is to each of the three targets (1 if equal, 0 at a distance "
        "of {tolerance}, linear in between), and how few numbers are used (1 for one number, 0 for all {count}, linear "
        "in between).",
    ),
)


def full_prompt(task: CountdownTask, num_answers: int) -> str:
    """Return numbers, targets and rules for a model that follows instructions."""
    wording = worded(task, WORDINGS)
    if num_answers == 1:
        wanted = "Write one expression between these tags:"
    else:
        wanted = f"{several_answers(num_answers, 'expressions')}\nWrite each expression between its own tags:"
    rules = [*wording.rules, wording.integers if task.integers else wording.fractions]
    text = "\n".join(
        [wording.opening, "", "Rules:", *(f"- {rule}" for rule in rules), "", wording.objectives, "", wanted]
    )
    filled = text.format(
        numbers=_listed(task.numbers), targets=_listed(task.targets), tolerance=task.tolerance, count=len(task.numbers)
    )
    return "\n".join([filled, *[f"{opening}an expression{closing}" for opening, closing in answer_tags(num_answers)]])


def _listed(numbers: tuple[int, ...]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}"


class CountdownOutcome(NamedTuple):
    """The facts about one expression that the objectives look at."""

    given: bool
    """Whether it uses given numbers only, each at most once."""
    whole: bool
    """Whether every intermediate result is a whole number, or need not be."""
    numerator: int
    """Numerator of the value."""
    denominator: int
    """Denominator of the value."""
    hits: tuple[float, ...]
    """Score for each target: max(0, 1 - distance / tolerance)."""
    used: int
    """Numbers used."""
    total: int
    """Numbers given, at least 2."""


def judge(task: CountdownTask, answer: Expression) -> CountdownOutcome:
    """Compare the numbers that an expression uses with those given, and its value with the targets."""
    _, numbers, numerator, denominator, whole = answer
    left = list(task.numbers)
    try:
        for number in numbers:
            left.remove(number)
        given = True
    except ValueError:
        given = False
    # Divided only where the result is small: the value of an expression may exceed the largest float.
    furthest = task.tolerance * denominator
    misses = [abs(numerator - target * denominator) for target in task.targets]
    hits = tuple([1 - miss / furthest if miss < furthest else 0.0 for miss in misses])
    exact = whole or not task.integers
    return CountdownOutcome(given, exact, numerator, denominator, hits, len(numbers), len(task.numbers))


def _frugality(outcome: CountdownOutcome) -> float:
    return 1 - (outcome.used - 1) / (outcome.total - 1)


OBJECTIVES = (
    *(
        Objective(f"hit_{i + 1}", f"Closeness to the {ordinal} target", entry("hits", i))
        for i, ordinal in enumerate(("first", "second", "third"))
    ),
    Objective("frugality", "Share of the numbers saved: 1 for a single number, 0 if all are used", _frugality),
)


def fact_grid(total: int) -> FactGrid:
    """Return outcomes, from worse to better: fewer numbers used, closer to each target."""
    closeness = tuple(step / 8 for step in range(9))
    return FactGrid(_outcome, ((total,), tuple(range(total, 0, -1)), *[closeness] * TARGETS))


def _outcome(total: int, used: int, *hits: float) -> CountdownOutcome:
    return CountdownOutcome(True, True, 0, 1, hits, used, total)
