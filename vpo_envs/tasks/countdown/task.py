"""A set of numbers and three targets as an instance."""

from __future__ import annotations

from pydantic import Field, field_validator

from vpo_envs.core import Task

MAX_NUMBERS = 6
LARGEST = 100
LARGEST_TARGET = 100_000
"""With these bounds, exact arithmetic on six numbers fits into 64 bits."""
TARGETS = 3


class CountdownTask(Task):
    """Numbers to calculate with, and the targets to reach."""

    numbers: tuple[int, ...] = Field(min_length=2, max_length=MAX_NUMBERS)
    """The given numbers, each of which may be used once."""
    targets: tuple[int, ...] = Field(min_length=TARGETS, max_length=TARGETS)
    tolerance: int = Field(10, ge=1, le=LARGEST_TARGET)
    """Distance from a target at which nothing is earned any more."""
    integers: bool = False
    """Whether every intermediate result must be a whole number."""

    @property
    def canonical(self) -> str:
        """The numbers and the targets, each in ascending order."""
        return f"{tuple(sorted(self.numbers))} {tuple(sorted(self.targets))}"

    @field_validator("numbers")
    @classmethod
    def _are_small(cls, numbers: tuple[int, ...]) -> tuple[int, ...]:
        if not all(1 <= number <= LARGEST for number in numbers):
            raise ValueError(f"the given numbers lie from 1 to {LARGEST}, got {numbers}")
        return numbers

    @field_validator("targets")
    @classmethod
    def _are_different(cls, targets: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(targets)) < len(targets) or not all(abs(target) <= LARGEST_TARGET for target in targets):
            raise ValueError(f"targets are different numbers of at most {LARGEST_TARGET:,}, got {targets}")
        return targets
