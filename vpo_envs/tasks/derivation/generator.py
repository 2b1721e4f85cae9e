"""Random systems of linear equations with whole solutions."""

from __future__ import annotations

import random
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from vpo_envs.core import Frozen, Split
from vpo_envs.generation import split_of_content
from vpo_envs.tasks.derivation.task import LARGEST, DerivationTask, determinant, is_general

MAX_TRIES = 10_000
LeftSide = tuple[tuple[int, ...], ...]
"""The coefficients of each equation of a system."""


class DerivationConfig(Frozen):
    """How systems are drawn."""

    unknowns: int = Field(3, ge=2, le=3, description="unknowns, and equations")
    coefficients: int = Field(9, ge=1, le=20, description="size of the largest coefficient")
    solutions: int = Field(9, ge=1, le=20, description="size of the largest unknown, which is a whole number")
    left_sides: tuple[LeftSide, ...] = Field((), description="left sides to choose from, in any order; all if empty")

    @model_validator(mode="after")
    def _have_the_right_shape(self) -> Self:
        for rows in self.left_sides:
            if [len(row) for row in rows] != [self.unknowns] * self.unknowns:
                raise ValueError(f"left_sides need {self.unknowns} rows of as many coefficients, got {rows}")
        return self


KNOWN: LeftSide = ((1, 2, 1), (1, -1, 3), (1, 1, -2))
"""A left side whose derivations have small numbers."""
PRESETS = {
    "conflict": DerivationConfig(),
    "easy": DerivationConfig(unknowns=2, coefficients=5),
    "embedded": DerivationConfig(solutions=2, left_sides=(KNOWN,)),
}
"""``conflict``: three unknowns, whose front needs a set and a vector. ``easy``: two unknowns. ``embedded``: three
unknowns, one left side in any order, and small solutions, so that a small model can know every line by heart."""


def draw_task(rng: np.random.Generator, config: DerivationConfig, split: Split) -> DerivationTask:
    """Draw a general system of ``split``.

    Raises:
        ValueError: No system of this configuration was found in ``MAX_TRIES`` tries.
    """
    source = random.Random(int.from_bytes(rng.bytes(16)))
    sizes = [size for size in range(-config.coefficients, config.coefficients + 1) if size]
    for _ in range(MAX_TRIES):
        solution = [source.randint(-config.solutions, config.solutions) for _ in range(config.unknowns)]
        if config.left_sides:
            rows = source.sample(source.choice(config.left_sides), k=config.unknowns)
        else:
            rows = [tuple(source.choices(sizes, k=config.unknowns)) for _ in solution]
        equations = tuple((*row, sum(a * v for a, v in zip(row, solution, strict=True))) for row in rows)
        if max(abs(number) for equation in equations for number in equation) > LARGEST or determinant(rows) == 0:
            continue
        task = DerivationTask(equations=equations)
        if split_of_content(f"{equations}") == split and is_general(task):
            return task
    raise ValueError(f"no system found in {MAX_TRIES} tries for {config!r}: allow larger coefficients or solutions")
