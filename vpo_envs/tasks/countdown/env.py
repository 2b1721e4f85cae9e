"""``vpo/Countdown-v0``: one expression, three targets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType

import numpy as np

from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import TaskEnv, endless, of_each_kind
from vpo_envs.tasks.countdown.front import front_expressions
from vpo_envs.tasks.countdown.generate import PRESETS, CountdownConfig, draw_task, front_vectors
from vpo_envs.tasks.countdown.task import (
    OBJECTIVES,
    CountdownOutcome,
    CountdownTask,
    Expression,
    fact_grid,
    full_prompt,
    judge,
    read_expression,
)


class CountdownEnv(TaskEnv[CountdownTask, Expression, CountdownOutcome]):
    """Write one expression of given numbers whose value is close to three targets at once.

    ## Description

    A countdown gives a few numbers and three targets. An expression uses each number at most once. It has one value, so
    it hits one target exactly, or lies between two of them and earns a part of both. Each target alone can be hit.

    ## Action space

    Text: ``num_answers`` expressions, each in its tag, such as ``( 3 + 5 ) * 7``: whole numbers, ``+ - * /`` and
    parentheses, at most 1,000 characters. ``× ÷ −`` are read as well. A text that is not such an expression, or that
    divides by zero, is unparsable. The order of terms and the order of factors make no difference: such expressions are
    the same answer.

    ## Rewards

    Four objectives, each in [0, 1]. All are zero if the expression uses a number that is not given, or one too often.
    They are zero too if its value is ``tolerance`` or more away from every target, or, where ``integers`` is set, if an
    intermediate result is not a whole number:

    0. ``hit_1`` to ``hit_3``: max(0, 1 - distance from this target / ``tolerance``), calculated in exact fractions.
    3. ``frugality``: 1 - (numbers used - 1) / (numbers given - 1).

    With ``preset="conflict"`` neighbouring targets are a little less than ``tolerance`` apart, and each task is
    certified by its exact front. The utility of the best three expressions is at least 1.3 times that of the best one
    (``min_set_gain``). It is at least 1.15 times that of the best three expressions whose scalar reward is within 0.02
    of the best (``min_vector_gain``).

    ``pareto_front()`` is exact. It is also exact for a subclass whose objectives never fall when a value is closer to a
    target or an expression uses fewer numbers.

    Args:
        preset: ``"conflict"`` (default: four numbers), ``"paper"`` (the game as usual: five numbers, large targets far
            apart) or ``"compact"`` (three small numbers and a prompt of a few words, for a small model), a class of
            its own: ``vpo_envs.CountdownCompactEnv``.
        difficulty: Knobs that replace the preset's, by name; see
            ``vpo_envs.tasks.countdown.generate.CountdownConfig``.
        **options: Those of :class:`vpo_envs.VectorTextEnv`.
    """

    task_type = CountdownTask
    namespace = 16
    presets = MappingProxyType({**PRESETS, "compact": "vpo_envs.tasks.countdown.compact:CountdownCompactEnv"})
    config: CountdownConfig
    objectives = monotone_objectives = OBJECTIVES

    def draw(self, source: random.Random) -> CountdownTask:
        """Draw numbers and targets, certified and of this split."""
        return draw_task(source, self.config, self.split)

    def prompt(self, task: CountdownTask, num_answers: int) -> str:
        """Return the numbers, the targets, the rules and the tags to fill in."""
        return full_prompt(task, num_answers)

    parse = staticmethod(read_expression)
    evaluate = staticmethod(judge)

    def effective(self, answer: Expression, outcome: CountdownOutcome) -> Expression:
        """Return the expression, without whether intermediate results are whole where that makes no difference."""
        return answer._replace(whole=outcome.whole)

    def feasible(self, outcome: CountdownOutcome) -> bool:
        """Return whether the expression keeps the rules and comes close to some target."""
        return outcome.given and outcome.whole and any(outcome.hits)

    def outcome_front(self, task: CountdownTask) -> Sequence[tuple[CountdownOutcome, str]]:
        """Return every outcome that no other expression beats in hits and numbers used, each with an expression."""
        return [(judge(task, read_expression(text)), text) for text in front_expressions(task)]

    def fact_grids(self, task: CountdownTask) -> Sequence[FactGrid]:
        """Return the outcomes on which objectives must be monotone in hits and numbers used."""
        return [fact_grid(len(task.numbers))]

    def demonstrations(self, task: CountdownTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return expressions of the front: first the best on an objective or by scalar reward, then random ones."""
        expressions = front_expressions(task)
        best = [expressions[i] for i in of_each_kind(rng, front_vectors(expressions, task))]
        return self.different(task, chain(best, endless(partial(_random_expression, task, rng))), num_answers)


def _random_expression(task: CountdownTask, rng: np.random.Generator) -> str:
    """Return an expression of some of the numbers."""
    numbers = rng.permutation(task.numbers)[: int(rng.integers(1, len(task.numbers) + 1))]
    text = str(numbers[0])
    for place, number in enumerate(numbers[1:], start=1):
        left = text if place == 1 else f"( {text} )"
        text = f"{left} {rng.choice([*'+-*/'])} {number}"
    return text
