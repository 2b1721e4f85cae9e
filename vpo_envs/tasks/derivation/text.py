"""The two prompts of a system of equations, and the reader and writer of derivations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from vpo_envs.core import Unparsable
from vpo_envs.tasks.derivation.task import UNKNOWNS, DerivationTask, Equation, reduced, solution, unknowns_of
from vpo_envs.text import answer_tags, several_answers

MAX_CHARS = 4000
MAX_LINES = 16
SHOWN_CHARS = 40
PARENTS = {"eliminate": 2, "substitute": 2, "isolate": 1}
"""The methods, with the number of earlier lines that each uses."""
STEP = re.compile(r"(eliminate|substitute|isolate)\s+([1-9][0-9]?)(?:\s+([1-9][0-9]?))?\s*:(.*)", re.DOTALL | re.ASCII)
TERM = re.compile(r"\s*([+-])?\s*([0-9]{1,9}(?:/[0-9]{1,9})?)?\s*\*?\s*([xyz])?\s*", re.ASCII)


class Step(NamedTuple):
    """One line of a derivation."""

    method: str
    parents: tuple[int, ...]
    """Numbers of the lines that it is made from; the given ones come first, from 1."""
    equation: Equation
    """Over three unknowns, reduced."""
    alone: int
    """The unknown that stands alone on the left side; -1 if none does."""


Derivation = tuple[Step, ...]


def read_derivation(text: str) -> Derivation:
    """Read a derivation: lines such as ``eliminate 1 2: 3 y - 2 z = 7``, separated by line breaks or semicolons.

    Raises:
        Unparsable: The text is too long, has too many lines, or a line is not of this form.
    """
    if len(text) > MAX_CHARS:
        raise Unparsable(f"a derivation has at most {MAX_CHARS:,} characters, got {len(text):,}")
    lines = [line.strip() for line in re.split(r"[\n;]", text.replace("−", "-")) if line.strip()]
    if not 1 <= len(lines) <= MAX_LINES:
        raise Unparsable(f"a derivation has 1 to {MAX_LINES} lines, got {len(lines)}")
    return tuple([_read_step(line) for line in lines])


def write_equation(equation: Equation, alone: int = -1, values: Sequence[Fraction] = ()) -> str:
    """Return an equation as text.

    Args:
        equation: The equation.
        alone: The unknown that stands alone on the left side; all stand there if it is -1.
        values: Values of the unknowns. If given, the number is written as the sum of what each unknown contributes.
    """
    sizes = [Fraction(number, 1 if alone < 0 else equation[alone]) for number in equation]
    rest = [] if alone < 0 else [-size if i != alone else Fraction(0) for i, size in enumerate(sizes[:-1])]
    left = _write_side(equation[:-1], 0) if alone < 0 else UNKNOWNS[alone]
    if not values:
        return f"{left} = {_write_side(rest, sizes[-1])}"
    parts = [_write_side(rest, 0)] if any(rest) else []
    parts += [_signed(size * value) for size, value in zip(sizes, values, strict=False) if size]
    return f"{left} = {' '.join(parts)}"


def full_prompt(task: DerivationTask, num_answers: int) -> str:
    """Return the system and the rules for a model that follows instructions."""
    count = len(task.equations)
    if num_answers == 1:
        wanted = "Write one derivation between these tags:"
    else:
        wanted = f"{several_answers(num_answers, 'derivations')}\nWrite each derivation between its own tags:"
    return "\n".join(
        [
            f"Solve this system of equations for {', '.join(UNKNOWNS[:count])}, line by line:",
            "",
            *[f"{number}: {write_equation(given)}" for number, given in enumerate(task.equations, start=1)],
            "",
            f"Your lines are numbered from {count + 1} on. Each is made from earlier lines in one of three ways, which "
            "it names with their numbers:",
            "- eliminate i j: an equation that follows from lines i and j, each with two unknowns or more, and in "
            "which an unknown of both is gone.",
            "- isolate i: line i with one unknown alone on the left side.",
            "- substitute i j: line i, where an unknown stands alone on the left side, put into line j.",
            "An equation may be multiplied by any number, and fractions are exact. A derivation that has a wrong line, "
            "or does not state the value of every unknown, scores nothing. This shows the form, for another system:",
            "eliminate 1 2: 3 y = 6",
            "isolate 3: y = 2",
            "substitute 4 1: x = 1/2",
            "",
            f"A derivation is scored on three goals: few lines (1 with {fewest_lines(count)}, 0 with more); "
            "elimination (1 if all lines are eliminations, falling evenly to 0 if only three quarters are); "
            "and substitution (the same for the lines that isolate or substitute).",
            "",
            wanted,
            *[f"{opening}lines{closing}" for opening, closing in answer_tags(num_answers)],
        ]
    )


def fewest_lines(unknowns: int) -> int:
    """Return the fewest lines that solve a general system: 2 for two unknowns, 6 for three.

    Three values take a line each. The first needs two lines in the same two unknowns; the unknown that is not in them
    needs another line in two unknowns. A step removes one unknown only, so none of these lines is another's.
    """
    return 2 if unknowns == 2 else 6


def compact_prompt(task: DerivationTask, num_answers: int) -> str:
    """Return the system and its solution in a few words, for a small model, which has to derive what it is told."""
    lines = [f"{number} : {write_equation(given)}" for number, given in enumerate(task.equations, start=1)]
    values = " ".join(map(_signed, solution(task.equations)))
    return "\n".join([*map(in_few_words, lines), f"solution {values}", f"answers {num_answers}"])


def in_few_words(line: str) -> str:
    """Return a line with one word for each term: ``y - 3 z = - 7`` as ``y -3z = -7``."""
    return re.sub(r"([0-9]) (?=[xyz])", r"\1", re.sub(r"([+-]) ", r"\1", line))


def _signed(number: Fraction) -> str:
    return f"{'-' if number < 0 else '+'}{abs(number)}"


def _read_step(line: str) -> Step:
    match = STEP.fullmatch(line)
    if match is None:
        raise Unparsable(f"{line[:SHOWN_CHARS]!r} is not a method, line numbers, a colon and an equation")
    method, one, other, text = match.groups()
    if (other is not None) is not (PARENTS[method] == 2):
        raise Unparsable(f"{method} names {PARENTS[method]} of the earlier lines: {line[:SHOWN_CHARS]!r}")
    parents = (int(one),) if other is None else (int(one), int(other))
    left, *right = text.split("=")
    if len(right) != 1:
        raise Unparsable(f"an equation has one equals sign: {line[:SHOWN_CHARS]!r}")
    sides = [_read_side(left), _read_side(right[0])]
    numbers = [a - b for a, b in zip(*sides, strict=True)]
    equation = reduced([*numbers[:-1], -numbers[-1]])
    if not unknowns_of(equation):
        raise Unparsable(f"the equation has no unknown: {line[:SHOWN_CHARS]!r}")
    name = left.strip()
    alone = UNKNOWNS.index(name) if name in tuple(UNKNOWNS) and sides[1][UNKNOWNS.index(name)] == 0 else -1
    return Step(method, parents, equation, alone)


def _read_side(text: str) -> list[Fraction]:
    """Return the sum of the terms of one side: the coefficient of each unknown, then the number."""
    total = [Fraction(0)] * (len(UNKNOWNS) + 1)
    at = 0
    while at < len(text) or not at:
        match = TERM.match(text, at)
        if match is None or match.end() == at or not (match[2] or match[3]) or (at and not match[1]):
            raise Unparsable(f"{text.strip()[:SHOWN_CHARS]!r} is not a sum of terms such as 3 x, - 1/2 y or 4")
        try:
            size = Fraction(match[2] or 1)
        except ZeroDivisionError:
            raise Unparsable(f"{match[2]} divides by zero") from None
        total[UNKNOWNS.index(match[3]) if match[3] else -1] += -size if match[1] == "-" else size
        at = match.end()
    return total


def _write_side(coefficients: Sequence[int | Fraction], number: int | Fraction) -> str:
    names = (*UNKNOWNS[: len(coefficients)], "")
    words: list[str] = []
    for size, name in zip([*coefficients, number], names, strict=True):
        if not size:
            continue
        words += ["-" if size < 0 else "+"] if words or size < 0 else []
        words += [str(abs(size))] if abs(size) != 1 or not name else []
        words += [name] if name else []
    return " ".join(words) or "0"
