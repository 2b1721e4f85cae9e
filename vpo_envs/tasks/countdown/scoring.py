"""The outcome of an expression, and the objectives."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.countdown.task import TARGETS, CountdownTask
from vpo_envs.tasks.countdown.text import Expression


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
    """For each target max(0, 1 - distance / tolerance)."""
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
    return outcome_of(task, given, whole or not task.integers, numerator, denominator, len(numbers))


def outcome_of(
    task: CountdownTask, given: bool, whole: bool, numerator: int, denominator: int, used: int
) -> CountdownOutcome:
    """Return the outcome of an expression with this value, which uses ``used`` numbers."""
    # Divided only where the result is small: the value of an expression may exceed the largest float.
    furthest = task.tolerance * denominator
    misses = [abs(numerator - target * denominator) for target in task.targets]
    hits = tuple([1 - miss / furthest if miss < furthest else 0.0 for miss in misses])
    return CountdownOutcome(given, whole, numerator, denominator, hits, used, len(task.numbers))


def _hit(target: int, outcome: CountdownOutcome) -> float:
    return outcome.hits[target]


def _frugality(outcome: CountdownOutcome) -> float:
    return 1 - (outcome.used - 1) / (outcome.total - 1)


OBJECTIVES = (
    # A partial, unlike a lambda, can be pickled with its environment.
    *(
        Objective(f"hit_{i + 1}", f"Closeness to the {ordinal} target", partial(_hit, i))
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
