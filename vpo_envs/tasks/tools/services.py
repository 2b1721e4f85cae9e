"""The services of the generated tools, listed in ``services.toml``, and random values for their parameters."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from vpo_envs.generation import invent_name

Kind = Literal["name", "town", "choice", "code", "date", "count", "amount", "flag", "names", "words", "range"]

JSON_TYPES: dict[Kind, str] = {
    **dict.fromkeys(("name", "town", "choice", "code", "date"), "string"),
    "count": "integer",
    "amount": "number",
    "flag": "boolean",
    "names": "list of strings",
    "words": "list of strings",
    "range": "object with the integers min and max",
}


class Parameter(NamedTuple):
    """One parameter of a service."""

    keys: list[str]
    """Names that a tool may give it, in snake case."""
    kind: Kind
    description: str
    phrase: str
    """How a request states the value, with ``{}`` for it; for a flag, the words for true, a bar, those for false."""
    choices: Sequence[str] = ()
    low: int = 1
    high: int = 9


class Service(NamedTuple):
    """Something that a tool does."""

    verb: str
    noun: str
    request: str
    """The request up to the first parameter."""
    description: str
    sibling: list[str]
    """Verb and description of a tool that takes the same parameters and does something else."""
    parameters: list[Parameter]


_TEXT = files("vpo_envs.tasks.tools").joinpath("services.toml").read_text(encoding="utf-8")
SERVICES = tuple(
    Service(**{**service, "parameters": [Parameter(**parameter) for parameter in service["parameters"]]})
    for service in tomllib.loads(_TEXT)["services"]
)

ONSETS = ("B", "Br", "D", "F", "G", "Gr", "H", "K", "L", "M", "N", "P", "R", "S", "T", "Tr", "V", "W")
MIDDLES = ("a", "e", "i", "o", "u", "ai", "eo")
CODAS = ("lan", "mir", "nok", "rell", "sen", "tova", "vik", "zar", "dun", "phi", "gost", "nem")
TOWN_ENDS = ("burg", "field", "ham", "mouth", "stead", "wick")


def draw_value(source: random.Random, parameter: Parameter) -> Any:
    """Draw a value for a parameter."""
    low, high = parameter.low, parameter.high
    match parameter.kind:
        case "name":
            return _name(source)
        case "town":
            return _name(source) + source.choice(TOWN_ENDS)
        case "choice":
            return source.choice(parameter.choices)
        case "code":
            return f"{_name(source)[:2].upper()}-{source.randrange(1000, 9999)}"
        case "date":
            return f"{source.randrange(2027, 2032)}-{source.randrange(1, 13):02}-{source.randrange(1, 29):02}"
        case "count":
            return source.randint(low, high)
        case "amount":
            return source.randint(10 * low, 10 * high) / 10
        case "flag":
            return source.random() < 0.5
        case "names":
            return [_name(source) for _ in range(source.randint(2, 3))]
        case "words":
            return source.sample(parameter.choices, source.randint(2, 4))
        case "range":
            first, second = sorted(source.sample(range(low, high + 1), 2))
            return {"min": first, "max": second}


def say(parameter: Parameter, value: Any) -> str:
    """Return how a request states a value."""
    if parameter.kind == "flag":
        return parameter.phrase.split("|")[0 if value else 1]
    if isinstance(value, list):
        value = ", ".join(value[:-1]) + " and " + value[-1]
    elif isinstance(value, dict):
        value = f"{value['min']} to {value['max']}"
    return parameter.phrase.format(value)


def _name(source: random.Random) -> str:
    return invent_name(source, ONSETS, MIDDLES, CODAS)
