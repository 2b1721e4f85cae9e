"""``vpo/Programs-v0``: find the function behind examples, judged on examples that are not shown."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from vpo_envs.core import Objective
from vpo_envs.tasks.base import TaskEnv, endless, in_random_order
from vpo_envs.tasks.code.env import CodeEnv, passed
from vpo_envs.tasks.code.task import CodeOutcome, CodeTask, CodeTest, Verdict, code_prompt, example
from vpo_envs.tasks.generation import read_knobs
from vpo_envs.tasks.language import LISTS, TEXTS, behaviour, python
from vpo_envs.tasks.programs.generate import Example, ProgramsConfig, draw_program, objectives_of

ENTRY = "f"
STATEMENTS = {
    False: (
        "The function `f` turns a list of whole numbers into another list in a few simple steps, such as reversing, "
        "sorting or doubling it, or dropping some numbers. Find it from these examples. The tests have other "
        "lists.\n",
        "A few simple steps one after another make up the function `f` of a list of whole numbers: a step may reverse "
        "the list, sort it, double it or leave out some numbers. Which function is it? The tests have other lists than "
        "these examples:\n",
        "From a list of whole numbers, `f` makes another one. It does so in a few steps, all of them simple, like "
        "sorting, reversing, doubling or leaving out numbers. These examples show what it does, and the tests have "
        "other lists:\n",
    ),
    True: (
        "The function `f` turns a text into another text in a few simple steps, such as reversing, sorting or "
        "doubling it, or dropping some letters. Find it from these examples. The tests have other "
        "texts.\n",
        "A few simple steps one after another make up the function `f` of a text: a step may reverse the text, sort "
        "it, double it or leave out some letters. Which function is it? The tests have other texts than these "
        "examples:\n",
        "From a text, `f` makes another one. It does so in a few steps, all of them simple, like sorting, reversing, "
        "doubling or leaving out letters. These examples show what it does, and the tests have other texts:\n",
    ),
}
"""The question, by whether the function works on texts."""


def _right(position: int) -> Callable[[CodeOutcome], float]:
    return partial(passed, position)


class FunctionTask(CodeTask):
    """A function to find from examples."""

    program: tuple[str, ...]
    """Steps of the function, from the first to the last."""
    texts: bool
    """Whether it works on texts; else on lists of whole numbers."""

    @property
    def canonical(self) -> str:
        """What the function does."""
        return repr(behaviour(TEXTS if self.texts else LISTS, self.program))


class ProgramsEnv(CodeEnv):
    """Write the Python function of a few simple steps that turns each input into its output.

    ## Description

    A prompt shows examples of a function over lists of whole numbers or over texts. Nothing conflicts: the right
    function earns everything. What is rare is being right, and a function that is partly right earns a part.

    ## Action space

    Text: ``num_answers`` definitions of a function ``f``, each in its tag, fenced or not. They run in a sandbox, as the
    answers of ``vpo/Code-v0`` do.

    ## Rewards

    ``example_1`` to ``example_4``, each 1 if the function is right on this *hidden* example, else 0. A function solves
    its task if all hold. Hidden examples are drawn like those in the prompt and have other inputs, so that a table of
    the shown ones earns nothing. ``pareto_front()`` is one point.

    Args:
        preset: ``"paper"`` (default) for Python, or ``"compact"`` for a language of fourteen words, a class of its own:
            ``vpo_envs.ProgramsCompactEnv``.
        difficulty: Knobs by name; see ``vpo_envs.tasks.programs.generate.ProgramsConfig``.
        **options: Those of ``vpo_envs.tasks.code.env.CodeEnv``: ``refine``, ``time_limit``, ``sandbox``, ``split`` and
            others.
    """

    task_type = FunctionTask
    namespace = 25
    presets = MappingProxyType(
        {"paper": ProgramsConfig(), "compact": "vpo_envs.tasks.programs.compact:ProgramsCompactEnv"}
    )
    objectives = monotone_objectives = objectives_of(4, _right)
    read_row = TaskEnv.read_row
    example_row: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, difficulty: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.knobs = read_knobs(ProgramsConfig(), difficulty)
        super().__init__(**options)
        self.config = self.knobs

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return one objective per hidden example."""
        return objectives_of(self.knobs.examples, _right)

    def draw(self, source: random.Random) -> FunctionTask | None:
        """Draw a function of this split, by what it does, and its examples."""
        texts = source.random() < 0.5
        drawn = draw_program(source, self.config, self.split, texts=texts)
        if drawn is None:
            return None
        examples = [example("call", ENTRY, i, _test(shown)) for i, shown in enumerate(drawn.shown, start=1)]
        examples += [example("call", "g", i, _test(other)) for i, other in enumerate(drawn.others, start=1)]
        return FunctionTask(
            title="",
            statement="\n".join([source.choice(STATEMENTS[texts]), *examples]),
            kind="call",
            tests=tuple(_test(hidden) for hidden in drawn.hidden),
            entry=ENTRY,
            solution=python(TEXTS if texts else LISTS, drawn.program),
            program=drawn.program,
            texts=texts,
        )

    def demonstrations(self, task: CodeTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return the function itself, at a random place among variants with one step replaced, dropped or added."""
        assert isinstance(task, FunctionTask)
        steps, program = (TEXTS if task.texts else LISTS), task.program

        def slip() -> tuple[str, ...]:
            place, name = int(rng.integers(len(program))), str(rng.choice([*steps]))
            more = [(), (name,), (name, program[place])][int(rng.integers(3))]
            return (*program[:place], *more, *program[place + 1 :])

        programs = chain([program], endless(slip))
        functions = self.different(task, (python(steps, program) for program in programs), num_answers)
        return in_random_order(rng, functions)

    def prompt(self, task: CodeTask, num_answers: int) -> str:
        """Return the examples, and the form of the answers."""
        return code_prompt(task, num_answers, constant_earns=True, told=self.tells(task))

    def feasible(self, outcome: CodeOutcome) -> bool:
        """Return true: one right example earns its part, which a constant function seldom gets."""
        return True

    def outcome_front(self, task: CodeTask) -> Sequence[tuple[CodeOutcome, str]]:
        """Return the outcome of the function itself, which no other beats; nothing has to run."""
        verdicts: list[Verdict] = ["passed"] * len(task.tests)
        return [(CodeOutcome(tuple(verdicts)), task.solution)]


def _test(example: Example) -> CodeTest:
    value, output = example
    return CodeTest(input=json.dumps([value]), output=json.dumps(output))
