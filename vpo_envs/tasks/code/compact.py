"""``vpo/Code-v0`` with ``preset="compact"``: short programs over a list, judged by the tests of three customers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from vpo_envs.core import Frozen, Objective, Task, split_of_content
from vpo_envs.tasks.base import entry
from vpo_envs.tasks.compact import CompactEnv, Words
from vpo_envs.tasks.generation import ascending
from vpo_envs.tasks.language import LISTS, read_program, run

List = tuple[int, ...]

CUSTOMERS = "abc"
WISHES = {
    "reverse": "backwards",
    "double": "twice",
    "negate": "opposite",
    "increment": "more",
    "rotate": "shifted",
    "sort": "ascending",
    "unique": "distinct",
    "head": "first-three",
    "positive": "above-zero",
    "negative": "below-zero",
    "even": "no-odd",
    "odd": "no-even",
    "small": "below-five",
    "large": "from-five",
}
"""How the prompt asks for each step."""
ALWAYS = ("reverse", "double", "negate", "increment", "rotate")
"""Steps that change nearly every list: what all customers want."""
SOMETIMES = tuple(step for step in LISTS if step not in ALWAYS)
"""Steps that leave some lists as they are: what a single customer wants."""
MAX_COMMON = 3
MAX_INPUT = 6
NUMBERS = range(-9, 10)
TRIES = 120
PROBES: tuple[List, ...] = tuple(
    tuple(random.Random(seed).choices(NUMBERS, k=2 * MAX_INPUT)) for seed in range(2 * MAX_INPUT)
)
"""Lists by which programs are told apart."""


class CompactConfig(Frozen):
    """How specifications are drawn."""

    common: Annotated[tuple[int, int], ascending(1, MAX_COMMON)] = Field(
        (2, 2), description="steps that all customers want"
    )
    tests: int = Field(5, ge=1, le=16, description="tests of each customer")
    shared: int = Field(2, ge=0, description="tests of each customer that the common steps alone pass")

    @model_validator(mode="after")
    def _shares_some(self) -> CompactConfig:
        if self.shared > self.tests:
            raise ValueError(f"shared is at most tests={self.tests}, got {self.shared}")
        return self

    @property
    def longest(self) -> int:
        """Longest program, in steps: the common ones and one more."""
        return self.common[1] + 1


PRESETS = {"compact": CompactConfig()}


class SuiteTask(Task):
    """What three customers want of a program, and their tests."""

    common: tuple[str, ...]
    """Steps that all of them want first."""
    own: tuple[str, ...]
    """The step that each wants next."""
    inputs: tuple[tuple[List, ...], ...]
    """The inputs of each customer's tests; the expected output is that of the common steps and the own one."""

    @property
    def canonical(self) -> str:
        """What the programs do, whatever the order of the customers."""
        return behaviour(self.common, self.own)

    @cached_property
    def tests(self) -> tuple[tuple[int, List, List], ...]:
        """Customer, input and expected output of each test, customer by customer."""
        return tuple(
            (customer, values, run(LISTS, (*self.common, self.own[customer]), values))
            for customer, inputs in enumerate(self.inputs)
            for values in inputs
        )


class SuiteOutcome(NamedTuple):
    """The facts about one program."""

    passed: tuple[float, ...]
    """Share of each customer's tests that it passes."""


def behaviour(common: Sequence[str], wishes: Sequence[str]) -> str:
    """Return what the common steps, and then each customer's step in any order, make of the probes."""
    shared = [run(LISTS, common, probe) for probe in PROBES]
    return f"{shared} {sorted([LISTS[step].run(values) for values in shared] for step in wishes)}"


class CodeCompactEnv(CompactEnv[SuiteTask, SuiteOutcome]):
    """Write a program of a few steps over a list, for three customers who want different things.

    ## Description

    The prompt states what all customers want, such as ``all backwards twice``, and what each wants beyond that, such as
    ``a ascending``. Each customer tests programs on lists of integers. In some of the tests the own wish makes no
    difference, so that a program without it passes; in the others no other customer's program does.

    ## Action space

    Text: ``num_answers`` programs, each in its tag: one to three steps from the left to the right, such as
    ``reverse double sort``; with other knobs at most one step more than customers have in common. The steps are the
    keys of ``vpo_envs.tasks.language.LISTS``; anything else is unparsable.

    ## Rewards

    ``suite_a`` to ``suite_c``, each in [0, 1]: the share of this customer's tests that the program passes.
    ``pareto_front()`` is exact: all programs are tried.
    """

    task_type = SuiteTask
    namespace = 15
    presets = PRESETS
    config: CompactConfig
    objectives = tuple(
        Objective(f"suite_{name}", f"Share of customer {name}'s tests that are passed", entry("passed", i))
        for i, name in enumerate(CUSTOMERS)
    )

    def draw(self, source: random.Random) -> SuiteTask | None:
        """Draw a specification, and the tests."""
        config = self.config
        low, high = config.common
        common = tuple(source.sample(ALWAYS, source.randint(low, high)))
        wishes = tuple(source.sample(SOMETIMES, len(CUSTOMERS)))
        if split_of_content(behaviour(common, wishes)) != self.split:
            return None
        inputs = [_draw_inputs(source, config, common, wishes, customer) for customer in range(len(CUSTOMERS))]
        return SuiteTask(common=common, own=wishes, inputs=tuple(inputs)) if all(inputs) else None

    def prompt(self, task: SuiteTask, num_answers: int) -> str:
        """Return what all customers want, and what each wants."""
        wishes = [" ".join(("all", *(WISHES[step] for step in task.common)))]
        wishes += [f"{name} {WISHES[step]}" for name, step in zip(CUSTOMERS, task.own, strict=True)]
        return "\n".join([*wishes, f"answers {num_answers}"])

    def parse(self, text: str) -> Words:
        """Read a program."""
        return read_program(super().parse(text), self.config.longest)

    def evaluate(self, task: SuiteTask, answer: Words) -> SuiteOutcome:
        """Run the program on the tests of every customer."""
        return _outcome(task, [run(LISTS, answer, values) for _, values, _ in task.tests])

    def outcome_front(self, task: SuiteTask) -> Sequence[tuple[SuiteOutcome, str]]:
        """Return the outcomes of all programs of at most ``longest`` steps."""
        newest: dict[tuple[List, ...], Words] = {tuple(values for _, values, _ in task.tests): ()}
        # By their outputs in the tests; of programs with the same outputs a shortest one is kept.
        programs: dict[tuple[List, ...], Words] = {}
        for _ in range(self.config.longest):
            longer = {
                tuple(LISTS[step].run(output) for output in outputs): (*program, step)
                for outputs, program in newest.items()
                for step in LISTS
            }
            newest = {outputs: program for outputs, program in longer.items() if outputs not in programs}
            programs |= newest
        best: dict[SuiteOutcome, Words] = {}
        for outputs, program in programs.items():
            outcome = _outcome(task, outputs)
            if any(outcome.passed):
                best.setdefault(outcome, program)
        return [(outcome, " ".join(program)) for outcome, program in best.items()]

    def ways(self, task: SuiteTask) -> Sequence[Words]:
        """Return the program of each customer, and the one that does what all want."""
        return *((*task.common, step) for step in task.own), task.common


def _outcome(task: SuiteTask, outputs: Sequence[List]) -> SuiteOutcome:
    """Return the outcome of a program with these outputs in the task's tests."""
    passed = [0] * len(task.inputs)
    for (customer, _, expected), output in zip(task.tests, outputs, strict=True):
        passed[customer] += output == expected
    return SuiteOutcome(tuple(count / len(inputs) for count, inputs in zip(passed, task.inputs, strict=True)))


def _draw_inputs(
    source: random.Random, config: CompactConfig, common: Words, wishes: Words, customer: int
) -> tuple[List, ...]:
    """Return inputs that only the customer's program gets right, but for ``shared`` of them, where the common one does.

    Nothing is returned where too few are found.
    """
    step = LISTS[wishes[customer]].run
    others = [LISTS[wish].run for number, wish in enumerate(wishes) if number != customer]
    need = {True: config.shared, False: config.tests - config.shared}
    # By whether the common steps alone are right.
    inputs: dict[bool, list[List]] = {True: [], False: []}
    for _ in range(TRIES):
        values = tuple(source.choices(NUMBERS, k=source.randint(1, MAX_INPUT)))
        if source.random() < 0.5:
            values = tuple(source.choices(values, k=len(values)))
        start = run(LISTS, common, values)
        result = step(start)
        common_is_right = start == result
        if len(inputs[common_is_right]) == need[common_is_right]:
            continue
        # No program for another customer, or for two of them, may be right as well.
        changed = [other(start) for other in others]
        rivals = changed + [other(result) for other in others] + [step(output) for output in changed]
        rivals += [other(output) for other, output in zip(others, reversed(changed), strict=True)]
        if result not in rivals:
            inputs[common_is_right].append(values)
            if all(len(inputs[kind]) == need[kind] for kind in need):
                shuffled = inputs[True] + inputs[False]
                source.shuffle(shuffled)
                return tuple(shuffled)
    return ()
