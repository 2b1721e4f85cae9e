"""Random systems of linear equations with whole solutions."""

from __future__ import annotations

import random

import numpy as np
from pydantic import Field

from vpo_envs.core import Frozen, Split
from vpo_envs.generation import split_of_content
from vpo_envs.tasks.derivation.task import LARGEST, DerivationTask, determinant, is_general

MAX_TRIES = 10_000


class DerivationConfig(Frozen):
    """How systems are drawn."""

    unknowns: int = Field(3, ge=2, le=3, description="unknowns, and equations")
    coefficients: int = Field(9, ge=1, le=20, description="size of the largest coefficient")
    solutions: int = Field(9, ge=1, le=20, description="size of the largest unknown, which is a whole number")


PRESETS = {
    "conflict": DerivationConfig(),
    "easy": DerivationConfig(unknowns=2, coefficients=5),
    "embedded": DerivationConfig(coefficients=3, solutions=3),
}
"""``conflict``: three unknowns, whose front needs a set and a vector. ``easy``: two unknowns. ``embedded``: three
unknowns and small numbers."""


def draw_task(rng: np.random.Generator, config: DerivationConfig, split: Split) -> DerivationTask:
    """Draw a general system of ``split``.

    Raises:
        ValueError: No system of this configuration was found in ``MAX_TRIES`` tries.
    """
    source = random.Random(int.from_bytes(rng.bytes(16)))
    sizes = [size for size in range(-config.coefficients, config.coefficients + 1) if size]
    for _ in range(MAX_TRIES):
        solution = [source.randint(-config.solutions, config.solutions) for _ in range(config.unknowns)]
        rows = [source.choices(sizes, k=config.unknowns) for _ in solution]
        equations = tuple((*row, sum(a * v for a, v in zip(row, solution, strict=True))) for row in rows)
        if max(abs(number) for equation in equations for number in equation) > LARGEST or determinant(rows) == 0:
            continue
        task = DerivationTask(equations=equations)
        if split_of_content(f"{equations}") == split and is_general(task):
            return task
    raise ValueError(f"no system found in {MAX_TRIES} tries for {config!r}: allow larger coefficients or solutions")
