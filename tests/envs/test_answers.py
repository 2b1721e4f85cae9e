"""Answer sets: positions are kept, nothing outside tags counts, and no response is too odd or too long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpo_envs.text import answer_tags, format_answers, split_answers

MEGABYTE = 1_000_000
PIECES = [
    "<answer_1>",
    "</answer_1>",
    "<answer_2>",
    "</answer_2>",
    "<answer>",
    "</answer>",
    "U ",
    "<",
    ">",
    "\n",
    "é",
    "\0",
]


def split_by_regex(response: str, opening: str, closing: str) -> str | None:
    """The last stretch from an opening tag to the next closing one, with neither tag inside."""
    tags = f"{re.escape(opening)}|{re.escape(closing)}"
    blocks = re.findall(f"{re.escape(opening)}((?:(?!{tags}).)*){re.escape(closing)}", response, flags=re.DOTALL)
    return blocks[-1] if blocks else None


def test_one_answer_has_the_plain_tag() -> None:
    assert answer_tags(1) == (("<answer>", "</answer>"),)
    assert split_answers("so: <answer>U R</answer>.", 1) == ["U R"]


def test_positions_are_those_of_the_tags_whatever_their_order() -> None:
    response = "<answer_3>c</answer_3> <answer_1>a</answer_1>"
    assert split_answers(response, 3) == ["a", None, "c"]


@pytest.mark.parametrize(
    "response",
    [
        "",
        "UP, RIGHT",
        "<answer>UP</answer>",
        "<answer_1>UP",
        "UP</answer_1>",
        "</answer_1>UP<answer_1>",
        "<ANSWER_1>UP</ANSWER_1>",
        "<answer_1 >UP</answer_1>",
        "<answer_10>UP</answer_10>",
    ],
)
def test_text_without_a_complete_tag_holds_no_answer(response: str) -> None:
    assert split_answers(response, 2) == [None, None]


def test_the_last_complete_block_counts() -> None:
    response = "<answer_1>draft</answer_1> better: <answer_1>final</answer_1> <answer_1>unfinished"
    assert split_answers(response, 2) == ["final", None]


def test_nested_and_stray_tags_do_not_leak_into_an_answer() -> None:
    assert split_answers("<answer><answer>U</answer></answer>", 1) == ["U"]
    assert split_answers("<answer>U</answer></answer></answer>", 1) == ["U"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.integers(1, 3))
def test_any_mixture_of_tags_is_read_as_a_plain_search_reads_it(response: str, num_answers: int) -> None:
    expected = [split_by_regex(response, *tags) for tags in answer_tags(num_answers)]
    assert split_answers(response, num_answers) == expected


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="<>")), min_size=1, max_size=5))
def test_formatted_answers_are_read_back(answers: list[str | None]) -> None:
    assert split_answers(format_answers(answers), len(answers)) == answers


def test_fewer_answers_than_wanted_leave_the_rest_missing() -> None:
    text = format_answers(["a"], 3)
    assert text == "<answer_1>a</answer_1>"
    assert split_answers(text, 3) == ["a", None, None]


@pytest.mark.parametrize(
    "piece", ["<answer_1>", "</answer_1>", "</answer_1><answer_1>", "<answer_", "<", "</answer_1", "x"]
)
def test_a_megabyte_takes_linear_time(piece: str) -> None:
    response = piece * (MEGABYTE // len(piece))
    start = time.process_time()
    split_answers(response, 3)
    # Quadratic time would be minutes.
    assert time.process_time() - start < 1.0
