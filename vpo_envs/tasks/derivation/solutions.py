"""Derivations of each kind: by elimination, by substitution, and the shortest ones, which mix the two."""

from __future__ import annotations

from collections.abc import Sequence

from vpo_envs.tasks.derivation.task import DerivationTask, Equation, cancel, reduced, solution, unknowns_of
from vpo_envs.tasks.derivation.text import write_equation

KINDS = ("elimination", "substitution", "mostly elimination", "mostly substitution")


class _Sheet:
    """A sheet of paper with numbered lines; every method appends one and returns its number, counted from 0."""

    def __init__(self, task: DerivationTask, in_terms: bool) -> None:
        self.lines: list[Equation] = [reduced(equation) for equation in task.equations]
        self.texts: list[str] = []
        self.values = solution(task.equations) if in_terms else []

    def eliminate(self, one: int, other: int, unknown: int, alone: int = -1) -> int:
        equation = cancel(self.lines[one], self.lines[other], unknown)
        return self._write(f"eliminate {one + 1} {other + 1}", equation, alone)

    def isolate(self, one: int, alone: int) -> int:
        return self._write(f"isolate {one + 1}", self.lines[one], alone)

    def substitute(self, one: int, other: int, unknown: int, alone: int = -1) -> int:
        equation = cancel(self.lines[one], self.lines[other], unknown)
        return self._write(f"substitute {one + 1} {other + 1}", equation, alone)

    def _write(self, source: str, equation: Equation, alone: int) -> int:
        left = unknowns_of(equation)
        self.lines.append(equation)
        # The last unknown of a line is always written as a value.
        self.texts.append(f"{source} : {write_equation(equation, left[0] if len(left) == 1 else alone, self.values)}")
        return len(self.lines) - 1


def derive(
    task: DerivationTask, kind: str, unknowns: Sequence[int], givens: Sequence[int], in_terms: bool = False
) -> list[str]:
    """Return the lines of a derivation of a general system.

    Args:
        task: The system.
        kind: One of :data:`KINDS`; with two unknowns both shortest ones are the one that mixes the methods evenly.
        unknowns: The order in which the unknowns are removed.
        givens: The order in which the given lines are used, counted from 0.
        in_terms: Whether to write the number of a line as the sum of what each unknown contributes.
    """
    sheet = _Sheet(task, in_terms)
    if len(unknowns) == 2:
        _solve_two(sheet, kind, *unknowns, *givens)
    else:
        _solve_three(sheet, kind, *unknowns, *givens)
    return sheet.texts


def _solve_two(sheet: _Sheet, kind: str, p: int, q: int, a: int, b: int) -> None:
    if kind == "substitution":
        isolated = sheet.isolate(a, p)
        value = sheet.substitute(isolated, b, p)
        sheet.substitute(value, isolated, q)
        return
    value = sheet.eliminate(a, b, p)
    if kind == "elimination":
        sheet.eliminate(a, b, q)
    else:
        sheet.substitute(value, a, q)


def _solve_three(sheet: _Sheet, kind: str, p: int, q: int, r: int, a: int, b: int, c: int) -> None:
    if kind == "substitution":
        of_p = sheet.isolate(a, p)
        of_q = sheet.substitute(of_p, b, p, q)
        value = sheet.substitute(of_q, sheet.substitute(of_p, c, p), q)
        value_of_q = sheet.substitute(value, of_q, r)
        sheet.substitute(value, sheet.substitute(value_of_q, of_p, q, p), r)
    elif kind == "mostly substitution":
        of_q = sheet.eliminate(a, b, p, q)
        of_p = sheet.substitute(of_q, a, q, p)
        value = sheet.substitute(of_p, sheet.substitute(of_q, c, q), p)
        sheet.substitute(value, of_p, r)
        sheet.substitute(value, of_q, r)
    else:
        first, second = sheet.eliminate(a, b, p), sheet.eliminate(a, c, p)
        value = sheet.eliminate(first, second, q)
        sheet.eliminate(first, second, r)
        third = sheet.eliminate(a, b, q)
        if kind == "elimination":
            sheet.eliminate(third, sheet.eliminate(a, c, q), r)
        else:
            sheet.substitute(value, third, r)
