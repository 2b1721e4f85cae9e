"""The outcome of an answer, and the objectives."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.gsm8k.task import GSM8KTask
from vpo_envs.tasks.gsm8k.text import GSM8KAnswer


class GSM8KOutcome(NamedTuple):
    """The facts about one answer that the objectives look at."""

    steps: tuple[bool, ...]
    """For each intermediate value whether it is reached."""
    final: bool
    """Whether the final answer is right."""
    equations: int
    limit: int
    """Most equations of an answer."""


def judge(task: GSM8KTask, answer: GSM8KAnswer) -> GSM8KOutcome:
    """Follow an answer back from its final answer, through equations that hold, to the values they rest on.

    Values count only if at least half of the equations reach one of the solution, so that guessing earns little.
    """
    needed, reached = {answer.final}, set()
    for equation in reversed(answer.equations):
        if equation.right and equation.result in needed:
            reached.add(equation.result)
            needed.update(equation.operands)
    found = reached.intersection((*task.steps, task.answer))
    earns = 2 * len(found) >= len(answer.equations)
    steps = tuple([earns and value in found for value in task.steps])
    return GSM8KOutcome(steps, answer.final == task.answer, len(answer.equations), task.limit)


def _share(objective: int, objectives: int, outcome: GSM8KOutcome) -> float:
    """Return the share of the intermediate values that one of several objectives stands for."""
    bounds = list(pairwise(groups(len(outcome.steps), objectives)))
    if objective >= len(bounds):
        return 0.0  # A task with fewer steps: the objective is inactive.
    found = outcome.steps[slice(*bounds[objective])]
    return sum(found) / len(found)


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
