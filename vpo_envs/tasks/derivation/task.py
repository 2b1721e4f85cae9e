"""A system of linear equations as an instance, and the arithmetic of equations.

An equation is a tuple of whole numbers: the coefficient of each unknown, and last the number on the other side. It is
reduced, and its first coefficient that is not 0 is positive, so equal tuples are the same equation up to a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import gcd, lcm

from pydantic import field_validator

from vpo_envs.core import Task

UNKNOWNS = "xyz"
LARGEST = 100
"""Largest number in a given equation."""
MOST_BETWEEN = 3
"""Lines of two unknowns in a derivation of six lines, three of which are values."""

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


def solution(equations: Sequence[Equation]) -> list[Fraction]:
    """Return the values of the unknowns of a system with one solution, by Cramer's rule."""
    rows = [equation[:-1] for equation in equations]
    replaced = [[[*e[:i], e[-1], *e[i + 1 : -1]] for e in equations] for i in range(len(rows))]
    return [Fraction(determinant(changed), determinant(rows)) for changed in replaced]


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


@lru_cache(maxsize=1024)
def is_general(task: DerivationTask) -> bool:
    """Return whether no unknown is missing, and none cancels by accident where another one is cancelled.

    Then every step can remove one unknown only, which the exact front rests on. All steps are tried that can follow
    the given lines and up to three lines of two unknowns; a derivation that beats the front would have no more.
    """
    given = [reduced(equation) for equation in task.equations]
    if any(len(unknowns_of(equation)) < len(given) for equation in given):
        return False
    known = {frozenset(given)}
    tried: dict[tuple[Equation, Equation], list[Equation] | None] = {}
    for more in reversed(range(MOST_BETWEEN + 1)):
        longer = set()
        for lines in known:
            for pair in combinations(sorted(lines), 2):
                if pair not in tried:
                    tried[pair] = _between(*pair)
                found = tried[pair]
                if found is None:
                    return False
                if more:
                    longer |= {lines | {line} for line in found}
        known = longer
    return True


def _between(one: Equation, other: Equation) -> list[Equation] | None:
    """Return the lines of several unknowns that cancel one of two lines; ``None`` if another cancels by accident."""
    occur = set(unknowns_of(one)) | set(unknowns_of(other))
    shared = set(unknowns_of(one)) & set(unknowns_of(other))
    results = [result for unknown in shared if any(result := cancel(one, other, unknown))]
    if any(len(unknowns_of(result)) < len(occur) - 1 for result in results):
        return None
    return results if len(occur) > 2 else []
