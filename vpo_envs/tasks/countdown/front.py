"""Everything that given numbers can reach: a dynamic programme over their subsets, and the exact Pareto front.

A table lists the distinct values that use all numbers of one subset, as reduced fractions, each with a way to make it:
an operator, and one entry in the table of each part. All arithmetic is exact, in 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.countdown.task import STRENGTH, CountdownTask

Ints = NDArray[np.int64]
Keep = Callable[[Ints, Ints], NDArray[np.bool_]]
"""Function that tells from numerators and denominators which values are wanted."""

OPERATORS = "+*-/"
NUMBER = 3
"""Strength of a number, which needs no parentheses."""
ROUNDING = 1e-9
"""Values this close to the end of an interval count as outside."""


class Table(NamedTuple):
    """The distinct values of one subset; arrays of shape (n,)."""

    numerator: Ints
    """Numerators."""
    denominator: Ints
    """Denominators, above 0."""
    operator: Ints
    """Index into :data:`OPERATORS`."""
    part: Ints
    """The subset of the first operand as a bit mask; the second operand has the rest."""
    first: Ints
    """Index of the first operand in its table."""
    second: Ints
    """Index of the second operand in its table."""


class Reached(NamedTuple):
    """Distinct values of all subsets, each with the fewest numbers that make it; arrays of shape (n,)."""

    numerator: Ints
    denominator: Ints
    used: Ints
    subset: Ints
    entry: Ints
    """Index in the table of the subset."""


def reach(numbers: tuple[int, ...], integers: bool, keep: Keep) -> tuple[dict[int, Table], Reached]:
    """Return the tables of all subsets, and the wanted values among them.

    The table of the whole set has wanted values only.
    """
    whole = (1 << len(numbers)) - 1
    smaller = smaller_tables(numbers, integers)
    tables = {**smaller, whole: _join(smaller, whole, integers, keep)}
    columns = []
    for subset, table in tables.items():
        entry = np.flatnonzero(keep(table.numerator, table.denominator))
        used, mask = np.full_like(entry, subset.bit_count()), np.full_like(entry, subset)
        columns.append(np.stack([table.numerator[entry], table.denominator[entry], used, mask, entry]))
    wanted = Reached(*np.concatenate(columns, axis=1))
    first = distinct(wanted.numerator, wanted.denominator, wanted.used)
    return tables, Reached(*[column[first] for column in wanted])


def near_targets(task: CountdownTask) -> Keep:
    """Return the test for values that earn something for some target."""
    low, high = min(task.targets) - task.tolerance, max(task.targets) + task.tolerance
    targets = np.array(task.targets)[:, None]

    def keep(numerator: Ints, denominator: Ints) -> NDArray[np.bool_]:
        near = np.asarray((numerator > low * denominator) & (numerator < high * denominator))
        near[near] = (np.abs(numerator[near] - targets * denominator[near]) < task.tolerance * denominator[near]).any(
            axis=0
        )
        return near

    return keep


@lru_cache(maxsize=1024)
def front_expressions(task: CountdownTask) -> list[str]:
    """Return an expression for every combination of hits and numbers used that no other expression beats."""
    tables, near = reach(task.numbers, task.integers, near_targets(task))
    chosen = undominated(task, near)
    entries = zip(near.subset[chosen].tolist(), near.entry[chosen].tolist(), strict=True)
    return [_write(task.numbers, tables, subset, entry)[0] for subset, entry in entries]


def undominated(task: CountdownTask, near: Reached) -> Ints:
    """Return indices of the values whose hits and numbers used are not beaten; of equal values, keep the first.

    A value is beaten by values that are nearer to every target that it is near to, and use no more numbers. They lie
    between ``low`` and ``high``, an open interval that ends at the value, or is empty where the value lies between two
    such targets. So most values need no comparison with each of the others.
    """
    value = near.numerator / near.denominator
    low, high = np.full(len(value), -np.inf), np.full(len(value), np.inf)
    facts: list[NDArray[np.float64]] = [-near.used.astype(np.float64)]
    for target in task.targets:
        miss = np.abs(near.numerator - target * near.denominator) / (task.tolerance * near.denominator)
        is_near = miss < 1
        beyond_target = 2 * target - value  # As far from the target, on its other side.
        low = np.where(is_near, np.maximum(low, np.minimum(value, beyond_target)), low)
        high = np.where(is_near, np.minimum(high, np.maximum(value, beyond_target)), high)
        facts.append(np.maximum(0, 1 - miss))
    beaten = np.zeros(len(value), dtype=bool)
    for used in range(1, len(task.numbers) + 1):
        rivals = np.sort(value[near.used <= used])
        rivals_below_high = np.searchsorted(rivals, high - ROUNDING)
        rivals_up_to_low = np.searchsorted(rivals, low + ROUNDING, side="right")
        beaten |= (near.used == used) & (rivals_below_high > rivals_up_to_low)
    candidates = np.flatnonzero(~beaten)
    return np.asarray(candidates[non_dominated(np.stack(facts, axis=1)[candidates])])


def _write(numbers: tuple[int, ...], tables: dict[int, Table], subset: int, index: int) -> tuple[str, int]:
    """Return the expression of one entry of a table with as few parentheses as possible, and its strength."""
    if subset.bit_count() == 1:
        return str(numbers[subset.bit_length() - 1]), NUMBER
    table = tables[subset]
    operator, part = OPERATORS[table.operator[index]], int(table.part[index])
    left, left_strength = _write(numbers, tables, part, int(table.first[index]))
    right, right_strength = _write(numbers, tables, subset ^ part, int(table.second[index]))
    if left_strength < STRENGTH[operator]:
        left = f"( {left} )"
    # In a - ( b + c ) and a / ( b * c ) operators of equal strength need them as well.
    if right_strength < STRENGTH[operator] + (operator in "-/"):
        right = f"( {right} )"
    return f"{left} {operator} {right}", STRENGTH[operator]


@lru_cache(maxsize=256)
def smaller_tables(numbers: tuple[int, ...], integers: bool) -> dict[int, Table]:
    """Return the table of every subset but the whole set; a subset is a bit mask."""
    tables: dict[int, Table] = {}
    for subset in range(1, (1 << len(numbers)) - 1):
        if subset.bit_count() == 1:
            number, denominator, unused = np.array([[numbers[subset.bit_length() - 1]], [1], [0]])
            tables[subset] = Table(number, denominator, unused, unused, unused, unused)
        else:
            tables[subset] = _join(tables, subset, integers)
    return tables


def _join(tables: dict[int, Table], subset: int, integers: bool, keep: Keep | None = None) -> Table:
    """Return the table of a subset from those of its parts."""
    joined = []
    for part in _halves(subset):
        rest = subset ^ part
        first, second = tables[part], tables[rest]
        # All pairs: p/q from the part and r/s from the rest.
        i, j = np.indices((len(first.numerator), len(second.numerator))).reshape(2, -1)
        p, q, r, s = first.numerator[i], first.denominator[i], second.numerator[j], second.denominator[j]
        part_first, rest_first = (np.full_like(i, part), i, j), (np.full_like(i, rest), j, i)
        results = [
            ("+", p * s + r * q, q * s, part_first),
            ("*", p * r, q * s, part_first),
            ("-", p * s - r * q, q * s, part_first),
            ("-", r * q - p * s, q * s, rest_first),
            ("/", p * s, q * r, part_first),
            ("/", r * q, p * s, rest_first),
        ]
        joined += [
            np.stack([numerator, denominator, np.full_like(i, OPERATORS.index(operator)), *operands])
            for operator, numerator, denominator, operands in results
        ]
    entries = np.concatenate(joined, axis=1)
    entries = entries[:, entries[1] != 0]
    if integers:
        entries = entries[:, entries[0] % entries[1] == 0]
    entries[:2] *= np.sign(entries[1])
    if keep is not None:
        entries = entries[:, keep(entries[0], entries[1])]
    entries[:2] //= np.gcd(entries[0], entries[1])
    return Table(*entries[:, distinct(entries[0], entries[1])])


def _halves(subset: int) -> Iterator[int]:
    """Yield one part of every division of a subset into two, but not the other part."""
    part = (subset - 1) & subset
    while part > subset ^ part:
        yield part
        part = (part - 1) & subset


def distinct(numerator: Ints, denominator: Ints, *then: Ints) -> Ints:
    """Return the index of the first of all equal fractions, in the order of ``then``."""
    order = np.lexsort((*then, denominator, numerator))
    numerator, denominator = numerator[order], denominator[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (numerator[1:] != numerator[:-1]) | (denominator[1:] != denominator[:-1])
    return np.asarray(order[first])
