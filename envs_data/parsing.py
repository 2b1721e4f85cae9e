"""JSON and TOML, read strictly: every file and text that may come from somebody else is read with these functions.

What they return is plain data that later code can walk, compare and write again: at most :data:`MOST_LEVELS` deep,
without NaN, infinities and, unless they are asked for, whole numbers beyond a float. Every error is a ValueError of one
sentence.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:  # slow to import
    from pydantic import ValidationError

MOST_LEVELS = 100
"""Deepest nesting."""
MOST_VALUES = 1 << 22
"""Most values of a text; names of fields count too. Python turns three bytes, such as ``[],``, into 64, so an untrusted
file could fill the memory."""
_SHORT = 1 << 22
"""Shorter texts cannot hold too many values."""
_BEFORE_VALUES = "[{,:"
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A string of JSON; one that does not end reaches to the end of the text, so that no position is read twice."""


def parse_json(
    text: str | bytes,
    *,
    any_length: bool = False,
    any_float: bool = False,
    unique: bool = False,
    most_values: int | None = MOST_VALUES,
) -> Any:
    """Parse strict JSON.

    Args:
        text: The text, or its bytes in UTF-8.
        any_length: Whether whole numbers may be larger than a float, up to Python's limit on their digits.
        any_float: Whether NaN and infinities are read, which some configurations of models hold.
        unique: Whether a name that an object gives twice is an error.
        most_values: Most values of the text; ``None`` for a text that the user vouches for.

    Raises:
        ValueError: The text is not JSON, is nested too deeply, or holds too many values or a number that is too large.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8 text ({error.reason} at byte {error.start})") from None
    if most_values is not None and len(text) > _SHORT:
        _check_count(text, most_values)
    try:
        value = json.loads(
            text,
            parse_constant=float if any_float else _no_constant,
            parse_float=float if any_float else finite_number,
            parse_int=_digits if any_length else _whole_number,
            object_pairs_hook=without_repeats if unique else None,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_levels(value)
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML whose values are those of strict JSON, without dates and times.

    Raises:
        ValueError: As for :func:`parse_json`.
    """
    try:
        value = tomllib.loads(text, parse_float=finite_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_levels(value, _check_toml)
    return value


def read_json(path: Path, *, any_float: bool = False, unique: bool = False) -> Any:
    """Read a JSON file; arguments as for :func:`parse_json`.

    Raises:
        ValueError: The file cannot be read, or its text is as for :func:`parse_json`; the message names the file.
    """
    text = read_text(path)
    try:
        return parse_json(text, any_float=any_float, unique=unique)
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not valid json: {one_line(error)}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, with errors as for :func:`read_json`."""
    text = read_text(path)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not valid toml: {one_line(error)}") from None


def read_object(path: Path, *, any_float: bool = False) -> dict[str, Any]:
    """Read a JSON file that holds an object, with errors as for :func:`read_json`."""
    value = read_json(path, any_float=any_float)
    if not isinstance(value, dict):
        raise ValueError(f"{str(path)!r} must hold a JSON object, not a {type(value).__name__}")
    return value


def read_text(path: Path) -> str:
    """Read a file in UTF-8; ValueError if that is impossible."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot read {str(path)!r}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise ValueError(f"cannot read {str(path)!r}: {error.strerror or one_line(error)}") from None


def reason_of(error: ValidationError) -> str:
    """Return the first reason why data do not fit a schema, with the place in them."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message[0].lower()}{message[1:]}" if place else message


def one_line(error: Exception) -> str:
    """Return what an error says on one line."""
    return " ".join(str(error).split())


def _check_count(text: str, most_values: int) -> None:
    """Raise ValueError if a JSON text holds too many values, before it is parsed."""
    if sum(map(text.count, _BEFORE_VALUES)) <= most_values:
        return
    count = end = 0
    for string in _STRING.finditer(text):
        count += 1 + sum(text.count(mark, end, string.start()) for mark in _BEFORE_VALUES)
        end = string.end()
        if count > most_values:
            break
    else:
        count += sum(text.count(mark, end) for mark in _BEFORE_VALUES)
    if count > most_values:
        raise ValueError(f"it holds more than {most_values:,} values")


def _check_levels(value: Any, check: Callable[[Any], None] | None = None) -> None:
    """Raise ValueError if containers lie too deep in each other, or a value that is not a container fails a check."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        if check is not None:
            for inner in level:
                check(inner)
        containers = [inner for inner in level if isinstance(inner, dict | list)]
        if not containers:
            return
        level = [
            inner
            for container in containers
            for inner in (container.values() if isinstance(container, dict) else container)
        ]
    raise ValueError(f"nested more than {MOST_LEVELS} levels deep")


def _check_toml(value: Any) -> None:
    if isinstance(value, int):
        _in_range(value)
    elif not isinstance(value, str | float | list | dict):
        raise ValueError(f"{value} is a {type(value).__name__}: write it as text, in quotation marks")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def finite_number(text: str) -> float:
    """Read a number; ValueError if it is too large for a float, infinite or NaN."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {_shown(text)} is too large or not finite")
    return number


def _digits(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"the number {_shown(text)} is too large") from None


def _whole_number(text: str) -> int:
    return _in_range(_digits(text), text)


def _in_range(number: int, text: str = "") -> int:
    try:
        float(number)
    except OverflowError:
        raise ValueError(f"the number {_shown(text or hex(number))} is too large") from None
    return number


def _shown(number: str) -> str:
    return number if len(number) <= 20 else f"{number[:20]}…, of {len(number)} characters,"


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object with these names and values; ValueError if a name is given twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return values
