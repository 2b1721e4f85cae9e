"""A word problem with its solution in steps."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

from pydantic import Field, field_validator

from vpo_envs.core import Task
from vpo_envs.tasks.gsm8k.equations import Equation, read_equation, read_number

SPARE = 2
"""Equations that an answer may have beyond those of the task's own solution."""


class GSM8KTask(Task):
    """One word problem."""

    question: str = Field(min_length=1)
    calculations: tuple[str, ...]
    """The calculations of the solution in order, such as ``"40-4=36"``."""
    final: str
    """The final answer, a number."""

    @property
    def canonical(self) -> str:
        """The numbers of each calculation, whoever the story is about and whatever else it tells."""
        return str([([*map(str, one.operands)], str(one.result)) for one in self.equations])

    @field_validator("calculations")
    @classmethod
    def _are_right(cls, calculations: tuple[str, ...]) -> tuple[str, ...]:
        for text in calculations:
            if not read_equation(text).right:
                raise ValueError(f"{text!r} is not a calculation that holds exactly")
        return calculations

    @field_validator("final")
    @classmethod
    def _is_a_number(cls, final: str) -> str:
        read_number(final)
        return final

    @cached_property
    def equations(self) -> tuple[Equation, ...]:
        """The calculations, read."""
        return tuple(map(read_equation, self.calculations))

    @cached_property
    def answer(self) -> Fraction:
        """The final answer."""
        return read_number(self.final)

    @cached_property
    def steps(self) -> tuple[Fraction, ...]:
        """The distinct intermediate values: results of the calculations other than the final answer, in order."""
        return tuple(dict.fromkeys(one.result for one in self.equations if one.result != self.answer))

    @property
    def limit(self) -> int:
        """Most equations of an answer."""
        return len(self.calculations) + SPARE
