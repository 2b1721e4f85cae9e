"""``vpo/GSM8K-v0``: word problems solved by equations, with an objective for each intermediate value."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vpo_envs.contract.arguments import check_whole
from vpo_envs.core import Objective, UnknownFront, Unparsable
from vpo_envs.pareto import FactGrid
from vpo_envs.tasks.base import TaskEnv, endless, in_random_order
from vpo_envs.tasks.gsm8k.equations import read_digits, read_number, tokens
from vpo_envs.tasks.gsm8k.generate import PRESETS, GSM8KConfig, draw_task, read_gsm8k_row
from vpo_envs.tasks.gsm8k.task import (
    GSM8KAnswer,
    GSM8KOutcome,
    GSM8KTask,
    fact_grid,
    full_prompt,
    judge,
    objectives_of,
    read_answer,
    write_answer,
)

STEPS = 4


class GSM8KEnv(TaskEnv[GSM8KTask, GSM8KAnswer, GSM8KOutcome]):
    """Solve a word problem by equations that lead to its answer, with an objective for each intermediate value.

    ## Description

    A word problem whose solution takes a few calculations. Generated problems are stories about goods, in the schema of
    GSM8K (Cobbe et al., 2021, arXiv 2110.14168), whose own rows can be loaded instead. The calculations that such a row
    marks as ``<<40-4=36>>`` give the intermediate values.

    ## Action space

    Text: ``num_answers`` answers, each in its tag: equations, one per line or separated by semicolons, then the final
    answer after ``####``::

        40 - 4 = 36
        36 / 2 = 18
        #### 18

    An equation has whole or decimal numbers, ``+ - * /`` and parentheses on its left side and one number on its right
    side; commas, currency signs, ``%``, fractions and a unit after a result are read. A result of ``60%`` may mean 60
    as well as 0.6. An equation counts if it joins two numbers or more, holds exactly, and its result is used by a later
    equation or is the stated final answer. A line with an equals sign that cannot be read is a wrong equation; a line
    without one makes the answer unparsable. Working in words belongs before the tag.

    ## Rewards

    Objectives in [0, 1], all zero with more equations than the prompt allows:

    0. ``step_1`` to ``step_4``: 1 if an equation that counts has this intermediate value as its result, and at least
       half of the equations have values of the solution. Steps that the task does not have are inactive. If it has
       more, each objective is the share found of some consecutive ones.
    4. ``final``: 1 if the final answer is right.
    5. ``brevity``: 1 without equations, decreasing linearly to 0 at the largest number allowed, if the final answer is
       right.

    ``pareto_front()`` is exact for generated tasks, and for rows whose calculations lead from each intermediate value
    to the final answer.

    Args:
        steps: Number of objectives for intermediate values.
        difficulty: Knobs of the generator by name; see ``vpo_envs.tasks.gsm8k.generate.GSM8KConfig``.
        **options: Those of :class:`vpo_envs.TaskEnv`; ``source`` reads rows of GSM8K.
    """

    task_type = GSM8KTask
    namespace = 22
    harmless_arguments = TaskEnv.harmless_arguments | {"steps"}
    presets = PRESETS
    config: GSM8KConfig
    objectives = monotone_objectives = objectives_of(STEPS)

    def __init__(self, *, steps: int = STEPS, **options: Any) -> None:
        check_whole("steps", steps, 1)
        self.steps = steps
        super().__init__(**options)

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return the objectives for this number of intermediate values."""
        return objectives_of(self.steps)

    def draw(self, source: random.Random) -> GSM8KTask | None:
        """Draw a word problem."""
        return draw_task(source, self.config)

    example_row: ClassVar[dict[str, Any]] = {
        "question": "Of 40 items 4 are wrong.",
        "answer": "<<40-4=36>>36 are right.\n#### 36",
    }
    read_row = staticmethod(read_gsm8k_row)
    parse = staticmethod(read_answer)
    evaluate = staticmethod(judge)

    def prompt(self, task: GSM8KTask, num_answers: int) -> str:
        """Return the question, the rules and the tags to fill in."""
        return full_prompt(task, num_answers, self.steps)

    def feasible(self, outcome: GSM8KOutcome) -> bool:
        """Return whether the answer has few enough equations."""
        return outcome.equations <= outcome.limit

    def active(self, task: GSM8KTask) -> NDArray[np.bool_]:
        """Return which objectives count: all but the steps that the task does not have."""
        absent = {f"step_{step}" for step in range(len(task.steps) + 1, self.steps + 1)}
        return np.array([name not in absent for name in self.objective_names])

    def outcome_front(self, task: GSM8KTask) -> Sequence[tuple[GSM8KOutcome, str]]:
        """Return the outcome of the shortest answer for every set of intermediate values."""
        return list(front_answers(task))

    def fact_grids(self, task: GSM8KTask) -> Sequence[FactGrid]:
        """Return the outcomes on which objectives must be monotone in steps, final answer and number of equations."""
        return [fact_grid(len(task.steps), task.limit)]

    def demonstrations(self, task: GSM8KTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return answers of the front in random order, or all calculations of a row whose front is unknown.

        Then come the same answers with a wrong final answer.
        """
        try:
            answers = [answer for _, answer in front_answers(task)]
        except UnknownFront:
            answers = [write_answer(task.calculations, task.final)]

        def slip() -> str:
            equations, mark, final = answers[int(rng.integers(len(answers)))].rpartition("#### ")
            return f"{equations}{mark}{read_number(final).numerator + int(rng.integers(1, 100))}"

        return self.different(task, chain(in_random_order(rng, answers), endless(slip)), num_answers)


MOST_STEPS = 8
"""Most intermediate values of a task whose front is computed; it has a point for each set of them."""


def front_answers(task: GSM8KTask) -> Iterator[tuple[GSM8KOutcome, str]]:
    """Yield the shortest answer that shows each set of intermediate values.

    Each value shown takes an equation, and the last of them is used by one more, whose result is the final answer. So
    no answer is shorter. The final answer alone shows nothing and takes no equation.
    """
    if len(task.steps) > MOST_STEPS:
        raise UnknownFront(f"the solution has {len(task.steps)} intermediate values, more than {MOST_STEPS}")
    for count in range(len(task.steps) + 1):
        for shown in combinations(range(len(task.steps)), count):
            text = write_answer(_shortest(task, shown) if shown else [], task.final)
            wanted = tuple([i in shown for i in range(len(task.steps))])
            try:
                outcome = judge(task, read_answer(text))
            except Unparsable:
                raise UnknownFront("the solution in one equation is too long") from None
            if outcome != GSM8KOutcome(wanted, True, count + bool(shown), task.limit):
                raise UnknownFront("the calculations of the solution do not lead from each value to the final answer")
            yield outcome, text


def _shortest(task: GSM8KTask, shown: tuple[int, ...]) -> list[str]:
    """Return the calculations of the values shown and of the final answer; each other value is replaced by its
    calculation."""
    kept = {task.steps[i] for i in shown}
    hidden: dict[object, str] = {}
    lines: dict[object, str] = {}
    final = ""
    for text, equation in zip(task.calculations, task.equations, strict=True):
        left = " ".join(
            hidden.get(read_digits(token), token) if token[0] in "0123456789." else token
            for token in tokens(text.partition("=")[0])
        )
        line = f"{left} = {text.partition('=')[2]}"
        if equation.result == task.answer:
            final = line
        elif equation.result in kept:
            lines.setdefault(equation.result, line)
        else:
            hidden.setdefault(equation.result, f"( {left} )")
    return [*lines.values(), *([final] if final else [])]
