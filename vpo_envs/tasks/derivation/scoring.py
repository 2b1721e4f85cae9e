"""The outcome of a derivation, checked line by line, and the objectives."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.tasks.derivation.task import UNKNOWNS, DerivationTask, Equation, cancel, reduced, unknowns_of
from vpo_envs.tasks.derivation.text import Derivation, Step, fewest_lines

PURE = 0.75
"""Share of lines of one kind from which on it earns something."""


class DerivationOutcome(NamedTuple):
    """The facts about one derivation that the objectives look at."""

    lines: int
    right: int
    """Lines before the first wrong one."""
    solved: bool
    """Whether all lines are right and give the value of every unknown."""
    eliminations: int
    """Lines that eliminate; the others isolate or substitute."""
    fewest: int
    """Lines of a shortest derivation."""


def judge(task: DerivationTask, answer: Derivation) -> DerivationOutcome:
    """Check each line of a derivation against those before it."""
    count = len(task.equations)
    padding = (0,) * (len(UNKNOWNS) - count)
    known = [(reduced((*given[:-1], *padding, given[-1])), -1) for given in task.equations]
    for step in answer:
        if not _follows(step, known):
            break
        known.append((step.equation, step.alone))
    right = len(known) - count
    values = {alone for equation, alone in known if alone >= 0 and len(unknowns_of(equation)) == 1}
    eliminations = sum(step.method == "eliminate" for step in answer)
    solved = right == len(answer) and len(values) == count
    return DerivationOutcome(len(answer), right, solved, eliminations, fewest_lines(count))


def _follows(step: Step, known: list[tuple[Equation, int]]) -> bool:
    """Return whether a line follows from the lines that it names, by the method that it names."""
    if max(step.parents) > len(known) or len(set(step.parents)) < len(step.parents):
        return False
    (one, alone), *others = [known[number - 1] for number in step.parents]
    if step.method == "isolate":
        return step.equation == one and step.alone >= 0
    other = others[0][0]
    if step.method == "substitute":
        return alone >= 0 and other[alone] != 0 and step.equation == cancel(one, other, alone)
    shared = set(unknowns_of(one)) & set(unknowns_of(other))
    several = min(len(unknowns_of(one)), len(unknowns_of(other))) > 1
    return several and any(step.equation == cancel(one, other, unknown) for unknown in shared)


def _few_lines(outcome: DerivationOutcome) -> float:
    return float(outcome.lines <= outcome.fewest)


def _by_method(eliminating: bool, outcome: DerivationOutcome) -> float:
    lines = outcome.eliminations if eliminating else outcome.lines - outcome.eliminations
    return max(0.0, (lines / outcome.lines - PURE) / (1 - PURE))


# Partials, unlike lambdas, can be pickled with their environment.
OBJECTIVES = (
    Objective("few_lines", "1 with the fewest lines that can solve the system, else 0", _few_lines),
    Objective("by_elimination", "1 if all lines eliminate, 0 at three quarters of them", partial(_by_method, True)),
    Objective(
        "by_substitution",
        "1 if all lines isolate or substitute, 0 at three quarters of them",
        partial(_by_method, False),
    ),
)
