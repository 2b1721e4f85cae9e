"""Numbers and equations of word problems, read as exact fractions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from vpo_envs.core import Unparsable
from vpo_envs.tasks.countdown.task import read_expression

SHOWN_CHARS = 40
LONGEST_NUMBER = 20
"""Most characters of a number."""
LONGEST_UNIT = 30
"""Most characters of a unit after a number."""
DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}(?![0-9])|[0-9]+)?(?:\.[0-9]+|(?<=[0-9])\.(?![0-9]))?(?:\s*%)?"
"""A number. Commas stand before each group of three digits, or of two as in India."""
TOKEN = re.compile(rf"(?=\.?[0-9]){DIGITS}|\S", re.ASCII)
RESULT = re.compile(
    rf"([+-]?)\s*((?=\.?[0-9]){DIGITS})\s*(?:/\s*((?=\.?[0-9]){DIGITS}))?(?:\s*([^0-9\s].{{0,{LONGEST_UNIT}}}))?",
    re.ASCII,
)
"""A sign, a number, one that it is divided by, and a unit."""
GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?:[ \u00a0\u2009\u202f'’_][0-9]{3})+(?![0-9])")
"""A number with other signs between its thousands than commas."""
NOT_DIGIT = re.compile(r"[^0-9]")
TIMES = re.compile(r"(?<=[0-9)%])\s*[xX]\s*(?=[0-9(.+-])")
PERCENT = re.compile(r"\bper ?cent\b", re.IGNORECASE)
SCALE = re.compile(r"(?:(?:hundred|thousand|million|billion|trillion|dozen)s?|k|bn)\b", re.IGNORECASE)
"""Words after a number that multiply it, and so are no units."""
UNIT_SIGNS = frozenset(" .-/'’°²³")
"""What a unit may hold besides letters."""
SIGNS = str.maketrans(
    {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # the wide forms of ASCII
    | dict.fromkeys(map(ord, "×·\N{BULLET OPERATOR}\N{DOT OPERATOR}\N{ASTERISK OPERATOR}"), "*")
    | dict.fromkeys(map(ord, "÷\N{DIVISION SLASH}\N{FRACTION SLASH}"), "/")
    | dict.fromkeys(map(ord, "−–\N{NON-BREAKING HYPHEN}"), "-")
    | dict.fromkeys(map(ord, "$€£¥₹₩₽¢"), " ")
)
"""Typographic signs become those of a keyboard, and currency signs blanks."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An expression and the result that is stated for it."""

    operands: tuple[Fraction, ...]
    """The numbers of the expression, in ascending order."""
    result: Fraction
    """The stated result."""
    right: bool
    """Whether the expression joins two numbers or more, and its exact value is the stated result."""
    others: tuple[Fraction, ...] = field(default=(), compare=False)
    """Other numbers that the stated result may mean: with a percent sign 60% is 60 as well as 0.6."""


def plain(text: str) -> str:
    """Return a text with the signs of a keyboard, without currency signs and without blanks between thousands."""
    text = PERCENT.sub("%", text.translate(SIGNS))
    return GROUPED.sub(lambda number: NOT_DIGIT.sub("", number[0]), text)


def tokens(left: str) -> list[str]:
    """Return the numbers, operators and parentheses on the left side of an equation."""
    return TOKEN.findall(TIMES.sub("*", plain(left)).replace("//", "/"))


@lru_cache(maxsize=1 << 12)  # The answers to a task share many lines.
def read_equation(text: str) -> Equation:
    """Read an equation: numbers, ``+ - * /`` and parentheses on the left side, and one number on the right side.

    Numbers are as in :func:`read_number`. ``//`` divides like ``/``, so it holds where nothing remains. The text is
    never executed, and reading it takes no recursion.
    """
    left, *results = text.split("=")
    if len(results) != 1:
        raise Unparsable(f"an equation has one equals sign: {text[:SHOWN_CHARS]!r}")
    parts: list[str] = []
    operands: list[Fraction] = []
    negative = False
    for token in tokens(left):
        if token[0] in "0123456789.":
            number = read_digits(token)
            operands.append(-number if negative else number)
            parts.append(_written(operands[-1]))
            negative = False
        elif negative:
            raise Unparsable(f"a number is missing after -: {text[:SHOWN_CHARS]!r}")
        elif token in "+-" and (not parts or parts[-1] in "(+-*/"):
            negative = token == "-"
        else:
            parts.append(token)
    value = read_expression(" ".join([*parts, *["-"] * negative]))
    exact = Fraction(value.numerator, value.denominator)
    stated = readings(results[0])
    result = exact if exact in stated else stated[-1]
    return Equation(
        tuple(sorted(operands)),
        result,
        len(operands) > 1 and exact == result,
        tuple([number for number in stated if number != result]),
    )


def read_number(text: str) -> Fraction:
    """Read one number: ``1,150.00``, ``-3``, ``$4``, ``20%``, ``10/3``, ``60 miles``, or one before a full stop."""
    return readings(text)[-1]


def readings(text: str) -> tuple[Fraction, ...]:
    """Return what a number may mean: itself, or with a percent sign the number before it and a hundredth of that."""
    match = RESULT.fullmatch(plain(text.strip(" \t*_`")).strip())
    sign, over, under, unit = match.groups() if match else ("", "", None, None)
    if match is None or not _is_unit(unit or ""):
        raise Unparsable(f"{text.strip()[:SHOWN_CHARS]!r} is not a number")
    divisor = read_digits(under or "1")
    if not divisor:
        raise Unparsable(f"{text.strip()[:SHOWN_CHARS]!r} divides by zero")
    number = read_digits(over) / divisor * (-1 if sign == "-" else 1)
    return (100 * number, number) if over.endswith("%") and not under else (number,)


def _is_unit(text: str) -> bool:
    """Return whether a text after a number only says what it counts; an empty one does as well."""
    unit = text.rstrip(" .")
    return not unit or (
        (unit[0].isalpha() or unit[0] == "°")
        and all(letter.isalpha() or letter in UNIT_SIGNS for letter in unit)
        and not SCALE.match(unit)
    )


@lru_cache(maxsize=1 << 12)
def read_digits(text: str) -> Fraction:
    """Return the number that matched ``DIGITS``."""
    digits = text.replace(",", "").removesuffix("%").rstrip().removesuffix(".")
    if not digits or len(text) > LONGEST_NUMBER:
        raise Unparsable(f"a number has digits, and at most {LONGEST_NUMBER} characters: {text[:SHOWN_CHARS]!r}")
    return Fraction(digits) / (100 if text.endswith("%") else 1)


def _written(number: Fraction) -> str:
    """Return a number as an expression of whole numbers without a sign."""
    size = f"{abs(number.numerator)}" if number.denominator == 1 else f"({abs(number.numerator)}/{number.denominator})"
    return f"(0-{size})" if number < 0 else size
