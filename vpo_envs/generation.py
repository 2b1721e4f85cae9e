"""Which split a generated instance belongs to, from its content alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, TypeVar
from zlib import crc32

from pydantic import BaseModel, ValidationError

from vpo_envs.core import Split


def split_of_content(content: str) -> Split:
    """The split of an instance with this content: half to train, a quarter each to validation and test.

    A generator draws until the content falls into its own split; so no two splits share an instance, whatever the
    seeds.
    """
    return ("train", "train", "validation", "test")[crc32(content.encode()) >> 7 & 3]


ConfigT = TypeVar("ConfigT", bound=BaseModel)

ONSETS = [*"bcdfghjklmnprstvwz", "br", "dr", "fl", "gr", "pr", "qu", "st", "tr"]
VOWELS = [*"aeiouaeiouaeiou", "ai", "au", "ea", "ia", "io", "oa"]
CODAS = ["l", "ld", "m", "n", "nd", "r", "rn", "rk", "s", "st", "th", "x", "v", "sk", "lm"]


class Namer:
    """Draws invented words, no word twice."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._used: set[str] = set()

    def word(self) -> str:
        """A capitalised word of two or three syllables that has not been drawn before."""
        choice = self._source.choice
        while True:
            middle = choice(ONSETS) + choice(VOWELS) if self._source.random() < 0.4 else ""
            letters: list[str] = [choice(ONSETS), choice(VOWELS), middle, choice(ONSETS), choice(VOWELS), choice(CODAS)]
            word = "".join(letters).title()
            if word not in self._used:
                self._used.add(word)
                return word


def read_knobs(preset: ConfigT, difficulty: Mapping[str, Any] | None) -> ConfigT:
    """A generator's configuration with some knobs replaced.

    Raises:
        ValueError: An unknown knob or a value out of range, in one sentence that lists the knobs.
    """
    try:
        return type(preset).model_validate({**preset.model_dump(), **(difficulty or {})})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        knob = ".".join(str(part) for part in first["loc"]) or "knobs"
        known = ", ".join(type(preset).model_fields)
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"difficulty {knob}={first['input']!r}: {message}; the knobs are {known}") from None
