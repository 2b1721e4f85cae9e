"""Parts of messages."""

from __future__ import annotations

import unicodedata

import pytest

from vpo_envs.common.wording import counted, did_you_mean, visible


@pytest.mark.parametrize(("count", "text"), [(0, "0 answers"), (1, "1 answer"), (2, "2 answers")])
def test_a_noun_follows_its_number(count: int, text: str) -> None:
    assert counted(count, "answer") == text


@pytest.mark.parametrize(
    ("name", "meant"),
    [("vop", "did you mean vpo? "), ("GPRO", "did you mean grpo? "), ("maze", "did you mean Maze? "), ("tree", "")],
)
def test_the_most_similar_name_is_suggested_whatever_the_case(name: str, meant: str) -> None:
    assert did_you_mean(name, ["grpo", "vpo", "Maze"]) == meant


HIDDEN_KINDS = ("Cc", "Cf", "Cs", "Zl", "Zp")
SEEN = "\t\n" + "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Characters that Unicode counts among controls and formats, and that are seen: signs of numbers and the like."""


def test_every_character_that_commands_or_hides_is_shown_as_its_code() -> None:
    letters = [chr(code) for code in range(0x110000) if not 0x13430 <= code <= 0x1343F]  # these join hieroglyphs
    kinds = {letter: unicodedata.category(letter) for letter in letters}
    hidden = {letter for letter in letters if kinds[letter] in HIDDEN_KINDS and letter not in SEEN}
    codes = [letter.encode("unicode_escape").decode() for letter in hidden]
    assert visible("-".join(hidden)) == "-".join(codes)
    others = "".join(letter for letter in letters if letter not in hidden and kinds[letter] != "Cn")
    assert visible(others) == others


def test_line_breaks_and_tabs_stay() -> None:
    assert visible("a\tb\r\nc\n") == "a\tb\nc\n"
    assert visible("over\rwritten") == "over\\rwritten"
