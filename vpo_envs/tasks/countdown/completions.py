"""What can still come of the beginning of an expression: the exact front of its completions.

Read from left to right, a beginning leaves at each open parenthesis, and outside of all, at most two operands with
their operators: a sum so far and a product so far. What follows multiplies or divides the product by further operands,
then adds further terms to the sum, and closes the parenthesis. An operand or a term is any expression of numbers that
are left, if need be in parentheses, so tables of all values of their subsets are all that is needed. All arithmetic is
exact, in 64 bits.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from vpo_envs.core import Unparsable
from vpo_envs.tasks.countdown.front import Ints, Reached, distinct, near_targets, reach, smaller_tables, undominated
from vpo_envs.tasks.countdown.scoring import CountdownOutcome, outcome_of
from vpo_envs.tasks.countdown.task import CountdownTask
from vpo_envs.tasks.countdown.text import MAX_CHARS, read_beginning

Values = dict[int, tuple[Ints, Ints]]
"""Numerators and denominators (n,), by the subset of the given numbers that they use of those left, as a bit mask."""

DIGITS_AT_END = re.compile(r"[0-9]+\Z")


@lru_cache(maxsize=1 << 14)
def completions(task: CountdownTask, text: str) -> tuple[CountdownOutcome, ...]:
    """Return the outcomes of all expressions that begin with ``text`` and that no other such beats in every fact.

    The facts are hits and numbers used. A number at the end may get more digits. If no completion earns anything, an
    outcome without any hit represents them. Expressions may be longer than is read: with a text near that limit, there
    may be less room than this assumes.
    """
    near = _reached(task, text)
    if near is None or not len(near.used):
        return (outcome_of(task, False, True, 0, 1, len(task.numbers)),)
    chosen = undominated(task, near)
    columns = [column[chosen].tolist() for column in (near.numerator, near.denominator, near.used)]
    return tuple(outcome_of(task, True, True, *row) for row in zip(*columns, strict=True))


def _reached(task: CountdownTask, text: str) -> Reached | None:
    """Return the values near a target of all completions of a text, with the fewest numbers; ``None`` without any."""
    begun = DIGITS_AT_END.search(text)
    if len(text) > MAX_CHARS:
        return None
    try:
        reading = read_beginning(text[: begun.start()] if begun else text)
    except Unparsable:
        return None
    left = list(task.numbers)
    for number in reading.numbers:
        if number not in left:
            return None
        left.remove(number)
    if (task.integers and not reading.whole) or (begun and not reading.wants_operand):
        return None
    keep = near_targets(task)
    if not reading.numbers and not begun:
        # Parentheses around a whole expression change nothing.
        return reach(task.numbers, task.integers, keep)[1]
    tables = _tables(task, left)
    parts, waiting = list(reading.parts), list(reading.waiting)
    if begun:
        operand = _numbers_that_begin(begun[0], left)
    elif reading.wants_operand:
        operand = tables
    else:
        _, numerator, denominator = parts.pop()
        operand = {0: _one(numerator, denominator)}
    while True:
        for signs in ("*/", "+-"):
            if waiting and waiting[-1] in signs:
                _, numerator, denominator = parts.pop()
                operand = {
                    used: _combined(waiting[-1], _one(numerator, denominator), values, task.integers)
                    for used, values in operand.items()
                }
                waiting.pop()
            operand = _continued(operand, signs, tables, task.integers)
        if not waiting:
            break
        waiting.pop()
    found = []
    for used, pair in operand.items():
        index = np.flatnonzero(keep(*pair))
        size = np.full_like(index, len(reading.numbers) + used.bit_count())
        found.append(np.stack([pair[0][index], pair[1][index], size]))
    near = np.concatenate(found, axis=1) if found else np.zeros((3, 0), dtype=np.int64)
    values = near[:, distinct(near[0], near[1], near[2])]
    return Reached(*values, *np.zeros_like(values[:2]))


def _one(numerator: int, denominator: int) -> tuple[Ints, Ints]:
    sign = 1 if denominator > 0 else -1
    return np.array([sign * numerator], dtype=np.int64), np.array([sign * denominator], dtype=np.int64)


def _numbers_that_begin(digits: str, left: list[int]) -> Values:
    """Return the numbers that are left and can be written so that they begin with these digits."""
    begun = digits.lstrip("0")
    return {1 << left.index(number): _one(number, 1) for number in dict.fromkeys(left) if str(number).startswith(begun)}


def _tables(task: CountdownTask, left: list[int]) -> Values:
    """Return all values of each subset of the numbers that are left, fewer than all; bits are places in ``left``."""
    # Of equal numbers any will do.
    places: list[int] = []
    for number in left:
        places.append(next(i for i, given in enumerate(task.numbers) if given == number and i not in places))
    whole = smaller_tables(task.numbers, task.integers)
    tables = {}
    everything = (1 << len(task.numbers)) - 1
    for subset in range(1, min(1 << len(left), everything)):
        table = whole[sum(1 << place for i, place in enumerate(places) if subset >> i & 1)]
        tables[subset] = table.numerator, table.denominator
    return tables


def _continued(values: Values, signs: str, tables: Values, integers: bool) -> Values:
    """Return all values after any number of further operands with these operators."""
    out: dict[int, list[tuple[Ints, Ints]]] = {used: [pair] for used, pair in values.items()}
    merged: Values = {}
    while out:
        # Further operands only add numbers, so the smallest subset is complete.
        used = min(out)
        numerator, denominator = (np.concatenate(arrays) for arrays in zip(*out.pop(used), strict=True))
        first = distinct(numerator, denominator)
        merged[used] = numerator[first], denominator[first]
        for more, operands in tables.items():
            if not more & used:
                out.setdefault(used | more, []).extend(
                    _combined(sign, merged[used], operands, integers) for sign in signs
                )
    return merged


def _combined(sign: str, first: tuple[Ints, Ints], second: tuple[Ints, Ints], integers: bool) -> tuple[Ints, Ints]:
    """Return the results of an operator for all pairs of operands, reduced, without divisions by zero."""
    p, q = (np.repeat(values, len(second[0])) for values in first)
    r, s = (np.tile(values, len(first[0])) for values in second)
    if sign == "*":
        numerator, denominator = p * r, q * s
    elif sign == "/":
        numerator, denominator = p * s * np.sign(r), q * np.abs(r)
    else:
        numerator, denominator = p * s + (r * q if sign == "+" else -r * q), q * s
    kept = denominator != 0
    if integers:
        kept &= numerator % np.where(kept, denominator, 1) == 0
    numerator, denominator = numerator[kept], denominator[kept]
    common = np.gcd(numerator, denominator)
    return numerator // common, denominator // common
