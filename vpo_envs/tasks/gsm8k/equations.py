"""Reads equations such as ``$1,150 * .40 = 460``, in exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from vpo_envs.core import Unparsable
from vpo_envs.tasks.countdown.text import read_expression

SHOWN_CHARS = 40
LONGEST_NUMBER = 20
"""Most characters of a number."""
DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)?(?:\.[0-9]+|(?<=[0-9])\.(?![0-9]))?%?"
TOKEN = re.compile(rf"(?=\.?[0-9]){DIGITS}|\S", re.ASCII)
RESULT = re.compile(rf"(-?)\s*((?=\.?[0-9]){DIGITS})\s*(?:/\s*((?=\.?[0-9]){DIGITS}))?", re.ASCII)
SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "$": " ", "€": " ", "£": " "})
"""Typographic signs become those of a keyboard, and currency signs blanks."""


class Equation(NamedTuple):
    """An expression and the result that is stated for it."""

    operands: tuple[Fraction, ...]
    """The numbers of the expression, in ascending order."""
    result: Fraction
    """The stated result."""
    right: bool
    """Whether the expression joins two numbers or more, and its exact value is the stated result."""


def read_equation(text: str) -> Equation:
    """Read an equation: numbers, ``+ - * /`` and parentheses on the left side, and one number on the right side.

    Numbers may have a decimal point, commas between thousands, a currency sign or ``%``. The text is never executed,
    and reading it takes no recursion.

    Raises:
        Unparsable: The text is not an equation, is too long, or divides by zero.
    """
    left, *results = text.split("=")
    if len(results) != 1:
        raise Unparsable(f"an equation has one equals sign: {text[:SHOWN_CHARS]!r}")
    plain: list[str] = []
    operands: list[Fraction] = []
    negative = False
    for token in TOKEN.findall(left.translate(SIGNS)):
        if token[0] in "0123456789.":
            number = _read_digits(token)
            operands.append(-number if negative else number)
            plain.append(_plain(operands[-1]))
            negative = False
        elif negative:
            raise Unparsable(f"a number is missing after -: {text[:SHOWN_CHARS]!r}")
        elif token == "-" and (not plain or plain[-1] in "(+-*/"):
            negative = True
        else:
            plain.append(token)
    value = read_expression(" ".join([*plain, *["-"] * negative]))
    result = read_number(results[0])
    right = len(operands) > 1 and value.numerator == result * value.denominator
    return Equation(tuple(sorted(operands)), result, right)


def read_number(text: str) -> Fraction:
    """Read one number: ``1,150.00``, ``-3``, ``$4``, ``20%``, ``10/3``, or with a full stop at the end.

    Raises:
        Unparsable: The text is not a number, or one that is too long.
    """
    match = RESULT.fullmatch(text.translate(SIGNS).strip())
    if match is None:
        raise Unparsable(f"{text.strip()[:SHOWN_CHARS]!r} is not a number")
    sign, over, under = match.groups()
    divisor = _read_digits(under or "1")
    if not divisor:
        raise Unparsable(f"{text.strip()[:SHOWN_CHARS]!r} divides by zero")
    return _read_digits(over) / divisor * (-1 if sign else 1)


def _read_digits(text: str) -> Fraction:
    """Return the number that matched ``DIGITS``."""
    digits = text.replace(",", "").removesuffix("%").removesuffix(".")
    if not digits or len(text) > LONGEST_NUMBER:
        raise Unparsable(f"a number has digits, and at most {LONGEST_NUMBER} characters: {text[:SHOWN_CHARS]!r}")
    return Fraction(digits) / (100 if text.endswith("%") else 1)


def _plain(number: Fraction) -> str:
    """Return a number as an expression of whole numbers without a sign."""
    size = f"{abs(number.numerator)}" if number.denominator == 1 else f"({abs(number.numerator)}/{number.denominator})"
    return f"(0-{size})" if number < 0 else size
