"""``vpo/Programs-v0`` with ``preset="compact"``: programs over lists in a language of fourteen words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from vpo_envs.core import Objective, Task
from vpo_envs.tasks.base import endless, entry
from vpo_envs.tasks.compact import CompactEnv, Words
from vpo_envs.tasks.language import LISTS, MAX_STEPS, behaviour, read_program, run
from vpo_envs.tasks.programs.generate import Example, ProgramsConfig, draw_program, near_programs, objectives_of
from vpo_envs.tasks.refine import RefiningEnv

RIGHT = 0.5
"""Share of the demonstrations that are right; the others fit an example, so that a base is partly right in many
ways."""
PARTS = (0.55, 0.4, 0.05)
"""Shares of the demonstrations that are the first part, the second part and the whole program."""


class ProgramTask(Task):
    """A program with the examples that show and judge it."""

    program: tuple[str, ...]
    """The steps, from the first to the last."""
    cut: int = 0
    """Number of steps of the first part, where parts can be seen apart."""
    shown: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Input and output of the examples in the prompt."""
    hidden: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Input and output of the examples that are scored."""
    others: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    """Examples of another program, which the prompt shows under another name."""

    @property
    def canonical(self) -> str:
        """What the program does."""
        return repr(behaviour(LISTS, self.program))


class ProgramOutcome(NamedTuple):
    """The facts about one program."""

    right: tuple[float, ...]
    """1 for each hidden example that it gets right, else 0."""


class ProgramsCompactEnv(RefiningEnv[ProgramTask, Words, ProgramOutcome], CompactEnv[ProgramTask, ProgramOutcome]):
    """Find the program of a few steps that turns each list into its output.

    ## Description

    A prompt shows examples of a program over lists, such as ``f 3 -2 5 > 5 -2 3``. Nothing conflicts: the right program
    earns everything. What is rare is being right, and a program that is partly right earns a part.

    ## Action space

    Text: ``num_answers`` programs, each in its tag: one to four steps, such as ``reverse double sort``. The steps are
    the keys of ``vpo_envs.tasks.language.LISTS``; anything else is unparsable.

    ## Rewards

    ``example_1`` to ``example_4``, each 1 if the program is right on this *hidden* example, else 0. A program solves
    its task if all hold. Hidden examples are drawn like those in the prompt and have other inputs. ``pareto_front()``
    is one point.

    Args:
        difficulty: Knobs by name; see ``vpo_envs.tasks.programs.generate.ProgramsConfig``. ``parts=true`` draws
            programs of two parts: of four examples, two need the first part alone, one the second, and one both.
        refine: Tell what each answer but the last makes of the examples in the prompt, before the next answer.
        **options: Those of :class:`vpo_envs.TaskEnv`.
    """

    task_type = ProgramTask
    namespace = 24
    presets = MappingProxyType({"compact": ProgramsConfig()})
    config: ProgramsConfig
    objectives = objectives_of(4, partial(entry, "right"))

    def choose_objectives(self) -> tuple[Objective, ...]:
        """Return one objective per hidden example."""
        return objectives_of(self.config.examples, partial(entry, "right"))

    def draw(self, source: random.Random) -> ProgramTask | None:
        """Draw a program of this split, by what it does, and its examples."""
        drawn = draw_program(source, self.config, self.split)
        if drawn is None:
            return None
        return ProgramTask(
            program=drawn.program, cut=drawn.cut, shown=drawn.shown, hidden=drawn.hidden, others=drawn.others
        )

    def prompt(self, task: ProgramTask, num_answers: int) -> str:
        """Return the examples."""
        lines = [_line("f", example) for example in task.shown] + [_line("g", example) for example in task.others]
        return "\n".join([*lines, f"answers {num_answers} f"])

    def parse(self, text: str) -> Words:
        """Read a program."""
        return read_program(super().parse(text), MAX_STEPS)

    def evaluate(self, task: ProgramTask, answer: Words) -> ProgramOutcome:
        """Run the program on the hidden examples."""
        return ProgramOutcome(tuple([float(run(LISTS, answer, value) == output) for value, output in task.hidden]))

    def results(self, task: ProgramTask, answer: Words) -> str:
        """Return the program's outputs for the examples of the prompt, in their order."""
        return "\n".join(" ".join([">", *map(str, run(LISTS, answer, value))]) for value, _ in task.shown)

    def outcome_front(self, task: ProgramTask) -> Sequence[tuple[ProgramOutcome, str]]:
        """Return the outcome of the program itself, which no other beats."""
        return [(self.evaluate(task, task.program), " ".join(task.program))]

    def ways(self, task: ProgramTask) -> Sequence[Words]:
        """Return the program, and those one edit away that fit a shown example."""
        return task.program, *near_programs(LISTS, task.program, task.shown)

    def demonstrations(self, task: ProgramTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return different programs: half of the time the right one, else one that fits a shown example.

        A task with parts is answered by the first part alone (share .55), the second part alone (.40) or the whole
        program (.05). Programs of random steps follow.
        """
        if task.cut:
            parts = [task.program[: task.cut], task.program[task.cut :], task.program]
            programs = [parts[i] for i in rng.choice(3, size=3, replace=False, p=PARTS)]
        else:
            right, *near = self.ways(task)
            programs = [near[i] for i in rng.permutation(len(near))[:num_answers]] or [right]
            if rng.random() < 1 - (1 - RIGHT) ** num_answers:
                programs[int(rng.integers(len(programs)))] = right

        def slip() -> Words:
            return tuple([str(step) for step in rng.choice([*LISTS], size=len(task.program))])

        return self.different(task, map(" ".join, chain(programs, endless(slip))), num_answers)


def _line(name: str, example: Example) -> str:
    value, output = example
    return " ".join([name, *map(str, value), ">", *map(str, output)])
