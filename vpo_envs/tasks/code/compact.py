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
"""Steps that change nearly every list: what all customers want where it is named."""
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
    named: bool = Field(False, description="state what all customers want in a line of its own, which can be copied")

    @model_validator(mode="after")
    def _shares_some(self) -> CompactConfig:
        if self.shared > self.tests:
            raise ValueError(f"shared must be at most tests={self.tests}, got {self.shared}")
        return self

    @property
    def longest(self) -> int:
        """Longest program, in steps: the common ones and one more."""
        return self.common[1] + 1


PRESETS = {"compact": CompactConfig()}


class SuiteTask(Task):
    """What three customers want of a program, and their tests."""

    common: tuple[str, ...]
    """Steps that all of them want, in this order."""
    own: tuple[str, ...]
    """The further step that each customer wants."""
    places: tuple[int, ...]
    """How many of the common steps come before each customer's own step."""
    inputs: tuple[tuple[List, ...], ...]
    """The inputs of each customer's tests; the expected output is what the customer's program returns."""
    named: bool = False
    """Whether the prompt says what all of them want in a line of its own."""

    @property
    def canonical(self) -> str:
        """What the programs do, whatever the order of the customers."""
        return behaviour(self.common, self.programs)

    @property
    def programs(self) -> tuple[Words, ...]:
        """The program that each customer wants."""
        return programs_of(self.common, self.own, self.places)

    @cached_property
    def tests(self) -> tuple[tuple[int, List, List], ...]:
        """Customer, input and expected output of each test, customer by customer."""
        return tuple(
            (customer, values, run(LISTS, self.programs[customer], values))
            for customer, inputs in enumerate(self.inputs)
            for values in inputs
        )


class SuiteOutcome(NamedTuple):
    """The facts about one program."""

    passed: tuple[float, ...]
    """Share of each customer's tests that it passes."""


def programs_of(common: Words, own: Words, places: Sequence[int]) -> tuple[Words, ...]:
    """Return the common steps with each customer's own step at its place."""
    return tuple((*common[:place], step, *common[place:]) for step, place in zip(own, places, strict=True))


def behaviour(common: Words, programs: Sequence[Words]) -> str:
    """Return what the common steps, and then each customer's program in any order, make of the probes."""
    shared = [run(LISTS, common, probe) for probe in PROBES]
    return f"{shared} {sorted([run(LISTS, program, probe) for probe in PROBES] for program in programs)}"


class CodeCompactEnv(CompactEnv[SuiteTask, SuiteOutcome]):
    """Write a program of a few steps over a list, for three customers who want different things.

    ## Description

    The prompt states what each customer wants, such as ``a backwards ascending twice``. All of them want the same steps
    in the same order, and each one step more, anywhere among them. Each customer tests programs on lists of integers.
    On some of the tests the customer's own step makes no difference, so the common steps alone pass. On the others, no
    other customer's program passes. With the knob ``named`` the prompt states the common steps in a line of their own,
    ``all backwards twice``, then what each wants after them, such as ``a ascending``.

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
        count = source.randint(*config.common)
        if config.named:
            common = tuple(source.sample(ALWAYS, count))
            own = tuple(source.sample(SOMETIMES, len(CUSTOMERS)))
            places = [count] * len(CUSTOMERS)
        else:
            own = tuple(source.sample(SOMETIMES, len(CUSTOMERS)))
            common = tuple(source.sample([step for step in LISTS if step not in own], count))
            places = [source.randint(0, count) for _ in CUSTOMERS]
        programs = programs_of(common, own, places)
        if split_of_content(behaviour(common, programs)) != self.split:
            return None
        inputs = [_draw_inputs(source, config, common, programs, customer) for customer in range(len(CUSTOMERS))]
        if not all(inputs):
            return None
        return SuiteTask(common=common, own=own, places=tuple(places), inputs=tuple(inputs), named=config.named)

    def prompt(self, task: SuiteTask, num_answers: int) -> str:
        """Return what each customer wants; where it is named, what all want and what each wants beyond that."""
        wishes = [("all", *task.common)] if task.named else []
        wanted = [(step,) for step in task.own] if task.named else task.programs
        wishes += [(name, *steps) for name, steps in zip(CUSTOMERS, wanted, strict=True)]
        lines = [" ".join((name, *(WISHES[step] for step in steps))) for name, *steps in wishes]
        return "\n".join([*lines, f"answers {num_answers}"])

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
        return *task.programs, task.common


def _outcome(task: SuiteTask, outputs: Sequence[List]) -> SuiteOutcome:
    """Return the outcome of a program with these outputs in the task's tests."""
    passed = [0] * len(task.inputs)
    for (customer, _, expected), output in zip(task.tests, outputs, strict=True):
        passed[customer] += output == expected
    return SuiteOutcome(tuple(count / len(inputs) for count, inputs in zip(passed, task.inputs, strict=True)))


def _draw_inputs(
    source: random.Random, config: CompactConfig, common: Words, programs: Sequence[Words], customer: int
) -> tuple[List, ...]:
    """Return inputs on which no other customer's program is right; the common steps are right on ``shared`` of them.

    If too few are found, the result is empty.
    """
    program = programs[customer]
    others = [other for number, other in enumerate(programs) if number != customer]
    need = {True: config.shared, False: config.tests - config.shared}
    # By whether the common steps alone are right.
    inputs: dict[bool, list[List]] = {True: [], False: []}
    for _ in range(TRIES):
        values = tuple(source.choices(NUMBERS, k=source.randint(1, MAX_INPUT)))
        if source.random() < 0.5:
            values = tuple(source.choices(values, k=len(values)))
        result = run(LISTS, program, values)
        common_is_right = run(LISTS, common, values) == result
        if len(inputs[common_is_right]) == need[common_is_right]:
            continue
        # No program for another customer may be right as well, and many programs leave nothing.
        if result and all(run(LISTS, other, values) != result for other in others):
            inputs[common_is_right].append(values)
            if all(len(inputs[kind]) == need[kind] for kind in need):
                shuffled = inputs[True] + inputs[False]
                source.shuffle(shuffled)
                return tuple(shuffled)
    return ()
