"""What generators share: invented names, and the knobs of a configuration."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from zlib import crc32

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from vpo_envs.core import Frozen, Task
from vpo_envs.pareto import FINE_ERROR

ConfigT = TypeVar("ConfigT", bound=BaseModel)
WordingT = TypeVar("WordingT")

ONSETS = [*"bcdfghjklmnprstvwz", "br", "dr", "fl", "gr", "pr", "qu", "st", "tr"]
VOWELS = [*"aeiouaeiouaeiou", "ai", "au", "ea", "ia", "io", "oa"]
CODAS = ["l", "ld", "m", "n", "nd", "r", "rn", "rk", "s", "st", "th", "x", "v", "sk", "lm"]


def invent_name(source: random.Random, *parts: Sequence[str]) -> str:
    """Return one random choice from each of ``parts``, joined."""
    return "".join([source.choice(part) for part in parts])


def worded(task: Task, wordings: Sequence[WordingT]) -> WordingT:
    """Return the wording of a task's prompt: a function of the task, so that no policy can rest on one wording."""
    return wordings[crc32(task.canonical.encode()) % len(wordings)]


class Namer:
    """Draws invented words without repetition."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._used: set[str] = set()

    def word(self) -> str:
        """Return a new capitalised word of two or three syllables."""
        while True:
            middle = invent_name(self._source, ONSETS, VOWELS) if self._source.random() < 0.4 else ""
            first = invent_name(self._source, ONSETS, VOWELS)
            word = (first + middle + invent_name(self._source, ONSETS, VOWELS, CODAS)).title()
            if word not in self._used:
                self._used.add(word)
                return word


def ascending(least: int = 0, most: int | None = None) -> AfterValidator:
    """Return a pydantic validator of an inclusive range (low, high) with least <= low <= high <= most."""

    def check(pair: tuple[int, int]) -> tuple[int, int]:
        if not least <= pair[0] <= pair[1] or (most is not None and pair[1] > most):
            bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"a range is two ascending numbers {bounds}, got {pair}")
        return pair

    return AfterValidator(check)


Range = Annotated[tuple[int, int], ascending()]
"""An inclusive range of numbers that are not negative."""


class CertifiedConfig(Frozen):
    """Knobs of a generator that certifies each task by its exact front."""

    min_set_gain: float = Field(1.3, ge=1.0, description="least gain from a set: the best three answers / the best one")
    min_vector_gain: float = Field(
        1.15,
        ge=1.0,
        description="least gain from the vector: the best three / the best three with nearly the best scalar reward",
    )

    def certifies(self, gains: Callable[[], tuple[float, float]]) -> bool:
        """Return whether the :func:`vpo_envs.pareto.gains` of a task are high enough, beyond their numerical error.

        They are computed only if the knobs ask for a gain above 1.
        """
        least = self.min_set_gain, self.min_vector_gain
        return max(least) == 1 or all(
            wanted == 1 or gain >= wanted * (1 + FINE_ERROR) for gain, wanted in zip(gains(), least, strict=True)
        )


def read_knobs(preset: ConfigT, difficulty: Mapping[str, Any] | None) -> ConfigT:
    """Return a generator's configuration with some knobs replaced."""
    if not isinstance(difficulty, Mapping | None):
        known = ", ".join(type(preset).model_fields)
        raise ValueError(
            f"difficulty holds new values by the name of the knob, {{knob: value}}, got {difficulty!r}; the knobs are "
            f"{known}"
        )
    try:
        return type(preset).model_validate({**preset.model_dump(), **(difficulty or {})})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        no_pair = first["type"] in {"tuple_type", "too_long", "missing"}
        knob = ".".join(str(part) for part in first["loc"][: 1 if no_pair else None]) or "knobs"
        known = ", ".join(type(preset).model_fields)
        message = "must be a list of two, such as [1, 2]" if no_pair else first["msg"].removeprefix("Value error, ")
        raise ValueError(f"difficulty {knob}={first['input']!r}: {message}; the knobs are {known}") from None
