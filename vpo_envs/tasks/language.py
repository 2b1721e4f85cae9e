"""The steps that programs are made of: on lists of whole numbers, and, in Python, on texts as well."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from vpo_envs.core import Unparsable

Value = tuple[int, ...] | str
MAX_STEPS = 4
"""Steps of the longest program."""


class Step(NamedTuple):
    """One step of a program."""

    run: Callable[[Any], Any]
    """Maps a value to a value of the same kind."""
    python: str
    """The step as a Python expression in ``x``."""
    idle: bool = False
    """Whether it leaves some values as they are."""


class Function(NamedTuple):
    """All programs that do the same."""

    program: tuple[str, ...]
    """A shortest of them."""
    parent: int
    """Position, among all functions, of what the program does without its last step."""
    last: Callable[[Any], Any]
    """The last step."""


LISTS: Mapping[str, Step] = {
    "reverse": Step(lambda x: x[::-1], "x[::-1]"),
    "double": Step(lambda x: tuple(2 * i for i in x), "[2 * i for i in x]"),
    "negate": Step(lambda x: tuple(-i for i in x), "[-i for i in x]"),
    "increment": Step(lambda x: tuple(i + 1 for i in x), "[i + 1 for i in x]"),
    "rotate": Step(lambda x: x[1:] + x[:1], "x[1:] + x[:1]"),
    "sort": Step(lambda x: tuple(sorted(x)), "sorted(x)", True),
    "unique": Step(lambda x: tuple(dict.fromkeys(x)), "list(dict.fromkeys(x))", True),
    "head": Step(lambda x: x[:3], "x[:3]", True),
    "positive": Step(lambda x: tuple(i for i in x if i > 0), "[i for i in x if i > 0]", True),
    "negative": Step(lambda x: tuple(i for i in x if i < 0), "[i for i in x if i < 0]", True),
    "even": Step(lambda x: tuple(i for i in x if i % 2 == 0), "[i for i in x if i % 2 == 0]", True),
    "odd": Step(lambda x: tuple(i for i in x if i % 2 == 1), "[i for i in x if i % 2 == 1]", True),
    "small": Step(lambda x: tuple(i for i in x if abs(i) < 5), "[i for i in x if abs(i) < 5]", True),
    "large": Step(lambda x: tuple(i for i in x if abs(i) >= 5), "[i for i in x if abs(i) >= 5]", True),
}
"""The fourteen steps of the small language; a program is their names from the first to the last."""

TEXTS: Mapping[str, Step] = {
    "reverse": Step(lambda x: x[::-1], "x[::-1]"),
    "upper": Step(lambda x: x.upper(), "x.upper()", True),
    "swap": Step(lambda x: x.swapcase(), "x.swapcase()"),
    "rotate": Step(lambda x: x[1:] + x[:1], "x[1:] + x[:1]"),
    "twice": Step(lambda x: x + x, "x + x"),
    "head": Step(lambda x: x[:3], "x[:3]", True),
    "sort": Step(lambda x: "".join(sorted(x)), "''.join(sorted(x))", True),
    "unique": Step(lambda x: "".join(dict.fromkeys(x)), "''.join(dict.fromkeys(x))", True),
    "consonants": Step(
        lambda x: "".join(c for c in x if c not in "aeiou"), "''.join(c for c in x if c not in 'aeiou')", True
    ),
    "ends": Step(lambda x: x[:1] + x[-1:], "x[:1] + x[-1:]", True),
}


def _probes(alphabet: Sequence[Any], shortest: int) -> list[list[Any]]:
    """Return random values of many lengths, the same in every process."""
    return [random.Random(seed).choices(alphabet, k=shortest + seed % 8) for seed in range(48)]


PROBES_OF_LISTS = tuple(tuple(numbers) for numbers in _probes(range(-9, 10), 2))
PROBES_OF_TEXTS = tuple("".join(letters) for letters in _probes("aabeioutrnsAEBRTS", 1))
"""Values by which functions are told apart; a few that differ on rarer values count as one."""


def run(steps: Mapping[str, Step], program: Sequence[str], value: Any) -> Any:
    """Return what a program makes of a value."""
    for name in program:
        value = steps[name].run(value)
    return value


def read_program(words: tuple[str, ...], longest: int) -> tuple[str, ...]:
    """Return the words of an answer if they are a program of at most ``longest`` steps on lists."""
    unknown = [word for word in words if word not in LISTS]
    if unknown:
        raise Unparsable(f"{unknown[0][:20]!r} is not a step: the steps are {', '.join(LISTS)}")
    if len(words) > longest:
        raise Unparsable(f"a program has at most {longest} steps, got {len(words)}")
    return words


def python(steps: Mapping[str, Step], program: Sequence[str]) -> str:
    """Return a program as the Python function ``f``."""
    lines = [f"    x = {steps[name].python}" for name in program]
    return "\n".join(["def f(x):", *lines, "    return x"])


def behaviour(steps: Mapping[str, Step], program: Sequence[str]) -> tuple[Any, ...]:
    """Return what a program does to fixed values: equal for programs that are the same function on them."""
    return tuple([run(steps, program, value) for value in (PROBES_OF_TEXTS if steps is TEXTS else PROBES_OF_LISTS)])


@lru_cache
def all_functions(texts: bool) -> Mapping[tuple[Any, ...], Function]:
    """Return the functions of all programs by their behaviour, fewest steps first."""
    steps = TEXTS if texts else LISTS
    functions = {behaviour(steps, ()): Function((), 0, lambda value: value)}
    shorter = 0  # Number of the functions whose programs are shorter than the newest.
    for _ in range(MAX_STEPS):
        newest = list(functions.items())[shorter:]
        for parent, (outputs, function) in enumerate(newest, start=shorter):
            for name, step in steps.items():
                longer_outputs = tuple([step.run(output) for output in outputs])
                if longer_outputs not in functions:
                    functions[longer_outputs] = Function((*function.program, name), parent, step.run)
        shorter += len(newest)
    return MappingProxyType(functions)
