"""Deterministic checks of a text, of families as in IFEval and IFBench: counting, describing, contradictions."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from vpo_envs.core import Frozen

Family = Literal[
    "words",
    "sentences",
    "bullets",
    "mark",
    "digits",
    "letter",
    "capitals",
    "capital_words",
    "longest",
    "keyword",
    "opens",
    "closes",
]
"""What a check counts; see :data:`COUNTS`."""
WITH_VALUE: frozenset[Family] = frozenset({"mark", "letter", "keyword", "opens", "closes"})
"""Families that count something that the check names."""


class Check(Frozen):
    """One deterministic check: something in the text is counted, and the count must lie in a band."""

    family: Family
    value: str = ""
    """What is counted, in lower case: a word, a letter, a mark, the phrase that the text begins or ends with."""
    least: int = Field(0, ge=0)
    most: int | None = Field(None, ge=0)
    """``None`` for no upper bound."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.value != "") is not (self.family in WITH_VALUE):
            wanted = "a value" if self.family in WITH_VALUE else "no value"
            raise ValueError(f"a check of family {self.family!r} has {wanted}, got {self.value!r}")
        if self.value != self.value.lower():
            raise ValueError(f"the value of a check must be in lower case, got {self.value!r}")
        if self.most is not None and self.most < self.least:
            raise ValueError(f"a check needs least <= most, got {self.least} and {self.most}")
        return self


WORD = re.compile(r"[^\W_]+(?:(?:_*['\u2019]_*|_+)[^\W_]+)*")
"""Letters and digits, with apostrophes and underscores between them but not around them: those are quotation marks, or
Markdown's.
"""
_JOINING = "_'\u2019"
"""Characters other than letters and digits that may be inside a word."""
DIGITS = b"0123456789"
CAPITALS = bytes(range(ord("A"), ord("Z") + 1))
_SENTENCES = bytes.maketrans(b"!?\n", b".. ")
"""Each mark that ends a sentence as a full stop, and line breaks as blanks."""
_CLOSING = b"\"')]}>*_"
"""What may stand between the mark that ends a sentence and the blank after it; the last two are Markdown's."""
_CLOSING_CATEGORIES = frozenset({"Pe", "Pf", "Pi"})
"""Unicode's categories of closing brackets and of quotation marks; some languages close with what others open with."""
_ONLY_WORDS = bytes(ord(chr(code).lower()) if WORD.match(chr(code)) else ord(" ") for code in range(128)).ljust(256)
"""ASCII in lower case with blanks for all characters outside words; ``bytes.translate`` is faster than a pattern."""


class Text(NamedTuple):
    """A text in the forms that checks count in."""

    plain: str
    encoded: bytes
    """The text in UTF-8, in which ASCII characters are counted fastest."""
    lower: str
    words: list[str]
    """Words in lower case: runs of letters and digits, in any script; apostrophes and underscores may be in them."""


def read_text(text: str) -> Text:
    """Return a text in all its forms. An accent that is a character of its own is joined with its letter."""
    text = text if text.isascii() else unicodedata.normalize("NFC", text)
    encoded, lower = text.encode("utf-8", "surrogatepass"), text.lower()
    simple = text.isascii() and "'" not in text and "_" not in text
    words = encoded.translate(_ONLY_WORDS).decode().split() if simple else WORD.findall(lower)
    return Text(text, encoded, lower, words)


def _count_ascii(text: Text, characters: bytes) -> int:
    """Return how often ASCII characters occur in a text of any script."""
    return len(text.encoded) - len(text.encoded.translate(None, characters))


def _count_sentences(text: Text, _: str) -> int:
    """Return how many runs of full stops, exclamation and question marks stand before a blank or the end.

    Closing quotation marks and brackets may come between.
    """
    encoded = text.encoded
    if not text.plain.isascii():
        kept = [char for char in text.plain if char.isascii() or unicodedata.category(char) not in _CLOSING_CATEGORIES]
        encoded = "".join(kept).encode("utf-8", "surrogatepass")
    marked = encoded.translate(_SENTENCES, _CLOSING)
    return marked.count(b". ") + marked.endswith(b".")


def _count_capital_words(text: Text, _: str) -> int:
    """Return how many words of two letters or more are in capitals."""
    return sum(word.isupper() and sum(map(str.isalpha, word)) > 1 for word in WORD.findall(text.plain))


def _count_keyword(text: Text, value: str) -> int:
    if value.isalnum():
        return text.words.count(value) if value in text.lower else 0
    words = WORD.findall(value)
    if not words:
        return text.lower.count(value)
    # Twice the blank between words, so that one occurrence may follow another.
    return f" {'  '.join(text.words)} ".count(f" {'  '.join(words)} ")


def _count_words(text: Text, _: str) -> int:
    return len(text.words)


def _count_bullets(text: Text, _: str) -> int:
    return (b"\n" + text.encoded).count(b"\n* ")


# Most texts lack what a check forbids, and looking for it is faster than counting.
def _count_mark(text: Text, value: str) -> int:
    return value in text.plain and text.plain.count(value)


def _count_letter(text: Text, value: str) -> int:
    return value in text.lower and text.lower.count(value)


def _count_digits(text: Text, _: str) -> int:
    return _count_ascii(text, DIGITS)


def _count_capitals(text: Text, _: str) -> int:
    return _count_ascii(text, CAPITALS) if text.plain.isascii() else sum(map(str.isupper, text.plain))


def _longest_word(text: Text, _: str) -> int:
    return max([sum(map(str.isalnum, word)) for word in text.words], default=0)


def _opens(text: Text, value: str) -> bool:
    return text.lower.startswith(value) and not text.lower[len(value) :].lstrip(_JOINING)[:1].isalnum()


def _closes(text: Text, value: str) -> bool:
    return text.lower.endswith(value) and not text.lower[: -len(value)].rstrip(_JOINING)[-1:].isalnum()


# Tasks hold these functions, and functions without a name cannot be pickled.
COUNTS: dict[Family, Callable[[Text, str], int]] = {
    "words": _count_words,
    "sentences": _count_sentences,
    "bullets": _count_bullets,
    "mark": _count_mark,
    "digits": _count_digits,
    "letter": _count_letter,
    "capitals": _count_capitals,
    "capital_words": _count_capital_words,
    "longest": _longest_word,
    "keyword": _count_keyword,
    "opens": _opens,
    "closes": _closes,
}
"""What each family counts in a text, given the check's value."""
Counted = tuple[Callable[[Text, str], int], str]
"""What is counted: a function of a text and a check's value, and that value."""


def compiled(check: Check) -> tuple[Counted, int, int]:
    """Return what a check counts, and its band."""
    return (COUNTS[check.family], check.value), check.least, sys.maxsize if check.most is None else check.most


def holds(check: Check, text: Text) -> bool:
    """Return whether a text passes a check."""
    (count, value), least, most = compiled(check)
    return least <= count(text, value) <= most


# Contradictions ------------------------------------------------------------------------------------------------------

FORCING: frozenset[Family] = frozenset({"opens", "closes", "keyword"})
"""Families that make a text contain the check's value as whole words."""
GROWING: frozenset[Family] = frozenset({"mark", "digits", "letter", "keyword", "longest"})
"""Families whose count in a text is at least their count in whole words that the text contains."""


def exclude(first: Check, second: Check) -> bool:
    """Return whether two checks certainly contradict each other, so that no text passes both.

    They do if they count the same thing and their bands are disjoint, if a text cannot begin or end with both phrases,
    or if a phrase or word that one demands breaks the other's upper bound.
    """
    if first.family == second.family and first.value == second.value:
        return _below(first, second) or _below(second, first)
    if first.family == second.family and first.least and second.least:
        if first.family == "opens":
            return not (first.value.startswith(second.value) or second.value.startswith(first.value))
        if first.family == "closes":
            return not (first.value.endswith(second.value) or second.value.endswith(first.value))
    return _breaks(first, second) or _breaks(second, first)


def _below(first: Check, second: Check) -> bool:
    return first.most is not None and first.most < second.least


def _breaks(first: Check, second: Check) -> bool:
    """Return whether what ``first`` demands is more than ``second`` allows."""
    if first.family not in FORCING or not first.least or second.family not in GROWING or second.most is None:
        return False
    return COUNTS[second.family](_read_phrase(first.value), second.value) > second.most


_read_phrase = functools.lru_cache(maxsize=1 << 12)(read_text)
"""What checks demand is asked for again and again."""


# Words ---------------------------------------------------------------------------------------------------------------

MARKS = {
    **{",": "comma", "!": "exclamation mark", "?": "question mark", ";": "semicolon", ":": "colon", "-": "hyphen"},
    **{"(": "opening parenthesis", '"': "quotation mark"},
}
NOUNS: dict[str, tuple[str, str]] = {
    "words": ("word", "words"),
    "sentences": ("sentence", "sentences"),
    "bullets": ('line that begins with "* "', 'lines that begin with "* "'),
    "digits": ("digit", "digits"),
    "capitals": ("capital letter", "capital letters"),
    "capital_words": ("word in capitals", "words in capitals"),
}
MEANINGS: dict[Family, str] = {
    "words": 'An apostrophe belongs to its word, and a hyphen parts words: "isn\'t" is one word and "well-known" two.',
    "sentences": 'A sentence ends with ".", "!" or "?" before a blank or the end of the text, perhaps with closing '
    "quotation marks or brackets between them.",
    "capital_words": "A word in capitals has two letters or more.",
}
"""What a check means, where its words alone do not say it."""


def describe(check: Check) -> str:
    """Return a check in words, such as ``has at most 20 words``."""
    value, least, most = check.value, check.least, check.most
    if check.family in ("opens", "closes"):
        return f'{"begins" if check.family == "opens" else "ends"} with "{value}"'
    if check.family == "longest":
        return f"has no word of more than {most} letters or digits"
    if check.family == "keyword":
        if most == 0:
            return f'does not use the word "{value}"'
        return f'uses the word "{value}"' + ("" if (least, most) == (1, None) else f" {_band(least, most)} times")
    nouns = {
        "letter": (f'letter "{value}"', f'letters "{value}"'),
        "mark": (MARKS.get(value, f'"{value}"'), f"{MARKS.get(value, value)}s"),
    }
    singular, plural = nouns.get(check.family) or NOUNS[check.family]
    if most == 0:
        return f"has no {singular}"
    return f"has {_band(least, most)} {singular if (most or least) == 1 else plural}"


def _band(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least}"
    if least == 0:
        return f"at most {most}"
    return f"exactly {most}" if least == most else f"{least} to {most}"
