"""Random numbers with three targets that they reach: presets and knobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from vpo_envs.core import Split
from vpo_envs.pareto import gains
from vpo_envs.tasks.countdown.front import Ints, front_expressions, reach
from vpo_envs.tasks.countdown.task import (
    LARGEST,
    LARGEST_TARGET,
    MAX_NUMBERS,
    OBJECTIVES,
    CountdownTask,
    judge,
    read_expression,
)
from vpo_envs.tasks.generation import CertifiedConfig, Range, ascending

MAX_TRIES = 10_000
MAX_CERTIFICATES = 1500
"""Tasks whose gains are computed, some milliseconds each, before the wanted gains count as impossible."""
TARGET_TRIES = 8
"""Targets that are tried with the same numbers."""


class CountdownConfig(CertifiedConfig):
    """How tasks are drawn. Pairs are inclusive ranges."""

    count: int = Field(4, ge=2, le=MAX_NUMBERS, description="given numbers")
    numbers: Annotated[tuple[int, int], ascending(1, LARGEST)] = Field((1, 12), description="size of a given number")
    targets: Annotated[tuple[int, int], ascending(0, LARGEST_TARGET)] = Field((20, 99), description="size of a target")
    gap: Range = Field((8, 10), description="distance between a target and the next larger one")
    tolerance: int = Field(10, ge=1, le=LARGEST_TARGET, description="distance at which a value earns nothing any more")
    needs: int = Field(2, ge=1, description="fewest numbers that reach a target exactly")
    most: int = Field(MAX_NUMBERS, description="most numbers that the shortest expression for a target uses")
    integers: bool = Field(False, description="whether every intermediate result must be a whole number")

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if self.gap[0] < 1:
            raise ValueError(f"gap must be at least 1, since targets differ, got {self.gap}")
        if self.needs > self.count:
            raise ValueError(f"needs must be at most count={self.count}, got {self.needs}")
        if self.most < self.needs:
            raise ValueError(f"most must be at least needs={self.needs}, got {self.most}")
        return self


PRESETS = {
    "conflict": CountdownConfig(),
    "paper": CountdownConfig(
        count=5, numbers=(1, 25), targets=(100, 999), gap=(30, 300), needs=4, min_set_gain=1.0, min_vector_gain=1.0
    ),
}
"""``conflict``: three expressions beat one, and a value between two targets is a compromise. ``paper``: larger
targets far apart, so that an expression serves one of them."""


def draw_task(source: random.Random, config: CountdownConfig, split: Split) -> CountdownTask:
    """Draw a certified task of ``split``."""
    refused = 0
    for _ in range(MAX_TRIES):
        for task in _candidates(source, config, split):
            if config.certifies(partial(_gains, task)):
                return task
            refused += 1
            if refused == MAX_CERTIFICATES:
                raise ValueError(f"none of {refused} tasks is certified for {config!r}: ask for lower gains")
    raise ValueError(
        f"no numbers and targets found in {MAX_TRIES} tries for {config!r}: allow other targets, gaps or lower gains"
    )


def front_vectors(expressions: list[str], task: CountdownTask) -> NDArray[np.float64]:
    """Return the reward vectors of expressions that earn something, shape (n, d)."""
    outcomes = [judge(task, read_expression(expression)) for expression in expressions]
    return np.array([[objective.score(outcome) for objective in OBJECTIVES] for outcome in outcomes])


def _candidates(source: random.Random, config: CountdownConfig, split: Split) -> Iterator[CountdownTask]:
    """Draw numbers, and yield them with some targets that are of this split."""
    numbers = tuple(sorted([source.randint(*config.numbers) for _ in range(config.count)]))
    reachable = _reachable(numbers, config)
    low, high = config.gap
    for middle in source.sample(reachable, min(TARGET_TRIES, len(reachable))):
        below = [target for target in reachable if low <= middle - target <= high]
        above = [target for target in reachable if low <= target - middle <= high]
        if not below or not above:
            continue
        targets = source.choice(below), middle, source.choice(above)
        task = CountdownTask(numbers=numbers, targets=targets, tolerance=config.tolerance, integers=config.integers)
        if task.split == split:
            yield task


# Small configurations draw the same numbers and targets again and again.
@lru_cache(maxsize=1024)
def _reachable(numbers: tuple[int, ...], config: CountdownConfig) -> list[int]:
    """Return the targets of the right size whose shortest exact expression has the right number of numbers."""
    low, high = config.targets

    def wanted(numerator: Ints, denominator: Ints) -> NDArray[np.bool_]:
        whole = numerator % denominator == 0
        return np.asarray(whole & (numerator >= low * denominator) & (numerator <= high * denominator))

    _, reached = reach(numbers, config.integers, wanted)
    right = (reached.used >= config.needs) & (reached.used <= config.most)
    reachable: list[int] = reached.numerator[right].tolist()
    return reachable


@lru_cache(maxsize=1 << 15)
def _gains(task: CountdownTask) -> tuple[float, float]:
    return gains(front_vectors(front_expressions(task), task))
