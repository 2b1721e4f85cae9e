"""A system of linear equations as an instance, and the arithmetic of equations.

An equation is a tuple of whole numbers: the coefficient of each unknown, and last the number on the other side. It is
reduced, and its first coefficient that is not 0 is positive, so equal tuples are the same equation up to a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import gcd, lcm

from pydantic import field_validator

from vpo_envs.core import Task

UNKNOWNS = "xyz"
LARGEST = 100
"""Largest number in a given equation."""

Equation = tuple[int, ...]


class DerivationTask(Task):
    """As many linear equations as unknowns."""

    equations: tuple[Equation, ...]
    """The coefficients of each equation, and the number on its other side."""

    @field_validator("equations")
    @classmethod
    def _have_one_solution(cls, equations: tuple[Equation, ...]) -> tuple[Equation, ...]:
        count = len(equations)
        if count not in (2, 3) or any(len(equation) != count + 1 for equation in equations):
            raise ValueError(f"a system has 2 or 3 equations in as many unknowns, got {equations}")
        if not all(abs(number) <= LARGEST for equation in equations for number in equation):
            raise ValueError(f"the numbers of an equation are at most {LARGEST}, got {equations}")
        if determinant([equation[:-1] for equation in equations]) == 0:
            raise ValueError(f"a system has exactly one solution, which {equations} has not")
        return equations


def determinant(rows: Sequence[Sequence[int]]) -> int:
    """Return the determinant of a square matrix of one to three rows."""
    if len(rows) == 1:
        return rows[0][0]
    first, *rest = rows
    return sum((-1) ** i * a * determinant([[*row[:i], *row[i + 1 :]] for row in rest]) for i, a in enumerate(first))


def reduced(numbers: Sequence[int | Fraction]) -> Equation:
    """Return an equation in whole numbers without a common factor, its first coefficient positive; 0 = 0 as zeros."""
    factor = lcm(*(number.denominator for number in numbers))
    whole = [int(number * factor) for number in numbers]
    common = gcd(*whole) or 1
    sign = -1 if next((number for number in whole if number), 1) < 0 else 1
    return tuple([sign * number // common for number in whole])


def cancel(one: Equation, other: Equation, unknown: int) -> Equation:
    """Return the combination of two equations in which an unknown of both is gone."""
    return reduced([a * other[unknown] - b * one[unknown] for a, b in zip(one, other, strict=True)])


def unknowns_of(equation: Equation) -> list[int]:
    """Return the unknowns that occur in an equation."""
    return [i for i, number in enumerate(equation[:-1]) if number]


def is_general(task: DerivationTask) -> bool:
    """Return whether no unknown is missing, and none cancels by accident where another one is cancelled.

    Then every step can remove one unknown only, which the exact front rests on.
    """
    given = [reduced(equation) for equation in task.equations]
    if any(len(unknowns_of(equation)) < len(given) for equation in given):
        return False
    lines = list(dict.fromkeys(given))
    # Lines of two unknowns that shorter derivations than the known ones could use come after at most two steps.
    for _ in range(len(given) - 1):
        for one, other in combinations(list(lines), 2):
            shared = set(unknowns_of(one)) & set(unknowns_of(other))
            for unknown in shared:
                result = cancel(one, other, unknown)
                left = len(set(unknowns_of(one)) | set(unknowns_of(other))) - 1
                if any(result) and len(unknowns_of(result)) != left:
                    return False
                if left > 1:
                    lines.append(result)
        lines = list(dict.fromkeys(lines))
    return True
