"""Compares calls: values by type, arguments by key, calls by optimal assignment."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from vpo_envs.text import count_tokens, runs, token_f1

Arguments = Mapping[str, Any]

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?", re.ASCII)
TOKEN = re.compile(r"(?:(?<!\w)-?\.?(?=\d))?\w+(?:[-./:@'’+&]\w+)*|[^\w\s.,:;!?'\"()-]")
"""A word, a number with its sign and decimal point, a date, a code or an address; or a symbol, not punctuation."""
RUN = 5
"""Number of consecutive shared words from which a text counts as copied."""
DIGITS = frozenset("0123456789")
ALL_WAYS = 3
"""Number of calls up to which trying every assignment is faster than the solver."""


def value_match(gold: Any, given: Any, exact: bool = False) -> float:
    """Return how far two JSON values agree, in [0, 1].

    Booleans and null agree only with themselves. Numbers are compared by value, and so are a number and a string that
    is nothing but one, without leading zeros. Strings earn 1 if they are equal; if not, :func:`text_match`, or 0 if
    ``exact``. So version 3.10 is not 3.1, but 2023.0 is 2023, since data sets write whole numbers either way. Lists
    earn the mean over positions, objects the mean over the keys of both; what only one side has counts 0. Values of
    different types do not agree.
    """
    if isinstance(gold, str) and isinstance(given, str):
        if gold == given or _whole(gold) == _whole(given):
            return 1.0
        return 0.0 if exact else text_match(gold, given)
    if isinstance(gold, bool) or isinstance(given, bool) or gold is None or given is None:
        return float(type(gold) is type(given) and gold == given)
    gold_number, given_number = _number(gold), _number(given)
    if gold_number is not None and given_number is not None:
        return float(_equal(gold_number, given_number))
    if isinstance(gold, list) and isinstance(given, list):
        longer = max(len(gold), len(given))
        return sum([value_match(*pair, exact) for pair in zip(gold, given, strict=False)]) / longer if longer else 1.0
    if isinstance(gold, dict) and isinstance(given, dict):
        keys = gold.keys() | given.keys()
        # Sum in the order of the gold keys: the order of a set of strings varies between processes.
        agreed = [value_match(gold[key], given[key], exact) for key in gold if key in given]
        return sum(agreed) / len(keys) if keys else 1.0
    return 0.0


def text_match(gold: str, given: str) -> float:
    """Return how far the :data:`TOKEN` of two texts agree, in [0, 1], regardless of case.

    If either text contains a digit, the order counts as well: 1 for the same tokens in the same order, else 0, because
    the parts of a date, a code or a range mean something else in another order. Other texts earn the F1 of their
    tokens as multisets. Texts without tokens agree only if they are equal.
    """
    gold_tokens, given_tokens = tokens(gold), tokens(given)
    if not gold_tokens or not given_tokens:
        return float(gold.strip() == given.strip())
    if gold_tokens == given_tokens:
        return 1.0
    return 0.0 if any(map(str.isdigit, gold + given)) else token_f1(given_tokens, count_tokens(gold_tokens))


def tokens(text: str) -> list[str]:
    """Return the tokens of a text, folded so that case and compatibility forms do not matter."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return TOKEN.findall(text.casefold())


def passages(text: str) -> frozenset[tuple[str, ...]]:
    """Return the different runs of ``RUN`` words of a text."""
    return frozenset(runs(tokens(text), RUN))


def key_f1(gold: Arguments, given: Arguments) -> float:
    """Return the F1 of two sets of keys; 1 if both are empty."""
    total = len(gold) + len(given)
    return 2 * len(gold.keys() & given.keys()) / total if total else 1.0


def argument_match(gold: Arguments, given: Arguments, exact: bool = False) -> float:
    """Return the mean agreement of the values over the gold keys, where a missing one counts 0.

    Without gold keys there is nothing to agree with: 1 if the call has no arguments either.
    """
    if not gold:
        return float(not given)
    return sum([value_match(value, given[key], exact) for key, value in gold.items() if key in given]) / len(gold)


def match_calls(gold: Sequence[Arguments], given: Sequence[Arguments], exact: bool = False) -> tuple[float, float]:
    """Return the sums of :func:`key_f1` and :func:`argument_match` over the best pairing of calls to one tool.

    Each call is paired with at most one call of the other side; the best pairing has the highest sum of both.
    """
    if len(gold) == 1 and len(given) == 1:
        return key_f1(gold[0], given[0]), argument_match(gold[0], given[0], exact)
    pairs = [[(key_f1(a, b), argument_match(a, b, exact)) for b in given] for a in gold]
    chosen = _assign([[keys + values for keys, values in row] for row in pairs])
    return sum([pairs[i][j][0] for i, j in chosen]), sum([pairs[i][j][1] for i, j in chosen])


def _assign(scores: list[list[float]]) -> list[tuple[int, int]]:
    """Return rows and columns of an assignment with the highest sum."""
    rows, columns = len(scores), len(scores[0])
    if rows <= ALL_WAYS and columns <= ALL_WAYS:
        if rows > columns:
            return [(i, j) for j, i in _assign([list(column) for column in zip(*scores, strict=True)])]
        ways = [list(enumerate(way)) for way in permutations(range(columns), rows)]
        return max(ways, key=lambda way: sum([scores[i][j] for i, j in way]))
    from scipy.optimize import linear_sum_assignment

    chosen_rows, chosen_columns = linear_sum_assignment(scores, maximize=True)
    return list(zip(chosen_rows.tolist(), chosen_columns.tolist(), strict=True))


def _number(value: Any) -> int | float | None:
    """Return the number that a value is or spells; ``None`` for others and for booleans."""
    if isinstance(value, str):
        # The last character rules out nearly every string that is not a number.
        if value[-1:] not in DIGITS or not NUMBER.fullmatch(value):
            return None
        return float(value) if "." in value else int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(text: str) -> str:
    """Return a text without the ``.0`` of a whole number."""
    return text.removesuffix(".0") if _number(text) is not None else text


def _equal(first: int | float, second: int | float) -> bool:
    """Return whether numbers are equal, floats up to their last bit."""
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) <= math.ulp(max(abs(first), abs(second)))
    return first == second
