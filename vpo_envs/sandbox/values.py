"""Compare what a sandbox claims with what a test expects, on plain built-in types.

A value travels as JSON in which tagged arrays keep Python's types apart: ``["l", …]`` a list, ``["t", …]`` a tuple,
``["s", …]`` a set, ``["d", [key, value], …]`` a dictionary, ``["f", hex]`` a float, ``["c", hex, hex]`` a complex
number, ``["b", hex]`` bytes; the rest is plain JSON. The other side may write anything, so none of it is evaluated,
hashed or sorted beyond the size of the expected value, and no method of a foreign class is ever called.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

TOLERANCE = 1e-6
"""Two floats are equal if their relative or absolute difference is below this."""
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
"""A number on standard output."""


@dataclass(frozen=True)
class Close:
    """An expected number with the tolerances of :func:`math.isclose`."""

    number: float
    rel_tol: float = 1e-9
    abs_tol: float = 0.0

    def __post_init__(self) -> None:
        math.isclose(self.number, self.number, rel_tol=self.rel_tol, abs_tol=self.abs_tol)  # raises if one is no number


class Claim:
    """A result that a sandbox wrote; ValueError if its bytes do not encode a value."""

    def __init__(self, data: bytes) -> None:
        try:
            self.tree = json.loads(data.decode("ascii"), parse_constant=_refuse)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def equals(self, expected: object, *, as_json: bool) -> bool:
        """Return whether the value is what a test expects.

        Args:
            expected: Plain data, or a number with its tolerances.
            as_json: Compare as JSON: a tuple is a list, keys of dictionaries are strings, a boolean is not a number.
                Otherwise compare as Python's ``==``. Floats are equal within :data:`TOLERANCE` either way.
        """
        return _equal(self.tree, expected, as_json)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _equal(tree: Any, expected: object, as_json: bool) -> bool:
    if isinstance(expected, Close):
        value = _number(tree)
        return value is not None and _is_close(value, expected.number, expected.rel_tol, expected.abs_tol)
    if isinstance(expected, (list, tuple)):
        letters = ("l", "t") if as_json else ("l",) if isinstance(expected, list) else ("t",)
        items = _items(tree, letters, len(expected))
        return items is not None and all(
            _equal(item, wanted, as_json) for item, wanted in zip(items, expected, strict=True)
        )
    if isinstance(expected, (set, frozenset)):
        items = _items(tree, ("s",), len(expected))
        return items is not None and _same_elements(items, list(expected), as_json)
    if isinstance(expected, dict):
        items = _items(tree, ("d",), len(expected))
        return items is not None and _same_entries(items, expected, as_json)
    return _equal_scalar(tree, expected, as_json)


def _items(tree: Any, letters: tuple[str, ...], count: int) -> list[Any] | None:
    """Return the items of an encoded container that has one of these tags and this many items."""
    if type(tree) is list and len(tree) == count + 1 and type(tree[0]) is str and tree[0] in letters:
        return tree[1:]
    return None


def _same_elements(items: list[Any], expected: list[object], as_json: bool) -> bool:
    """Return whether the elements can be paired; quadratic in the size of the expected value."""
    left = list(expected)
    for item in items:
        match = next((i for i, wanted in enumerate(left) if _equal(item, wanted, as_json)), None)
        if match is None:
            return False
        del left[match]
    return True


def _same_entries(items: list[Any], expected: dict[Any, Any], as_json: bool) -> bool:
    left = list(expected.items())
    for item in items:
        if type(item) is not list or len(item) != 2:
            return False
        # JSON writes an integer key as its digits.
        key = str(item[0]) if as_json and type(item[0]) is int else item[0]
        match = next((i for i, (wanted, _) in enumerate(left) if _equal(key, wanted, as_json)), None)
        if match is None or not _equal(item[1], left[match][1], as_json):
            return False
        del left[match]
    return True


def _equal_scalar(tree: Any, expected: object, as_json: bool) -> bool:
    if expected is None:
        return tree is None
    if isinstance(expected, str):
        return type(tree) is str and tree == expected
    if isinstance(expected, bytes):
        return type(tree) is list and tree == ["b", expected.hex()]
    if isinstance(expected, complex):
        parts = _items(tree, ("c",), 2)
        return parts is not None and all(
            _close(_unhex(part), wanted) for part, wanted in zip(parts, (expected.real, expected.imag), strict=True)
        )
    if as_json and (isinstance(expected, bool) or type(tree) is bool):
        return tree is expected
    value = _number(tree)
    if value is None or not isinstance(expected, (int, float)):
        return False
    if isinstance(value, float) or isinstance(expected, float):
        return _close(value, expected)
    return value == expected


def _number(tree: Any) -> float | int | None:
    """Return the number that a tree encodes; ``None`` for anything else. A boolean is a number, as in Python."""
    if type(tree) in (int, bool):
        return int(tree)
    part = _items(tree, ("f",), 1)
    return None if part is None else _unhex(part[0])


def _unhex(part: Any) -> float | None:
    try:
        return float.fromhex(part) if type(part) is str else None
    except (ValueError, OverflowError):
        return None


def _close(value: float | int | None, expected: float | int) -> bool:
    if value is None:
        return False
    if isinstance(value, float) and isinstance(expected, float) and math.isnan(value) and math.isnan(expected):
        return True
    return _is_close(value, expected, TOLERANCE, TOLERANCE)


def _is_close(value: float | int, expected: float | int, rel_tol: float, abs_tol: float) -> bool:
    try:
        return math.isclose(value, expected, rel_tol=rel_tol, abs_tol=abs_tol)
    except OverflowError:
        return False


def same_output(written: bytes, expected: str) -> bool:
    """Return whether a program's output is what a test expects, line by line, as LiveCodeBench's judge compares them.

    Blanks at both ends of a line and empty lines at both ends of the output are ignored. Lines that hold nothing but
    numbers are compared number by number. A number that the test writes with a decimal point or an exponent may differ
    by :data:`TOLERANCE`, as in contests; the judge itself does not allow that. A whole number must have exactly the
    expected value.
    """
    lines, wanted = _lines(written.decode("utf-8", "replace")), _lines(expected)
    return len(lines) == len(wanted) and all(map(_same_line, lines, wanted))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_line(written: str, expected: str) -> bool:
    if written == expected:
        return True
    words, wanted = written.split(), expected.split()
    return len(words) == len(wanted) and all(
        NUMBER.fullmatch(word) and NUMBER.fullmatch(number) and _same_number(word, number)
        for word, number in zip(words, wanted, strict=True)
    )


def _same_number(written: str, expected: str) -> bool:
    if expected.lstrip("+-").isdigit():
        return Decimal(written) == Decimal(expected)
    return _close(float(written), float(expected))
