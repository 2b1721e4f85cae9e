"""Thoughts: what a response says in them is no answer, closed or not, and inside an answer their marks are text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpo_envs.common.thoughts import CLOSING, HINTS, MARKS, MASK, OWN_CLOSING, find_thoughts
from vpo_envs.text import answer_tags, split_answers

DRAFT, FINAL = "<answer>41</answer>", "<answer>42</answer>"


@pytest.mark.parametrize("opening", CLOSING)
def test_a_draft_in_thoughts_is_no_answer(opening: str) -> None:
    thoughts = f"{opening}Perhaps {DRAFT}? No.{CLOSING[opening]}"
    assert split_answers(thoughts + FINAL, 1) == ["42"]
    assert split_answers(FINAL + thoughts, 1) == ["42"]
    assert split_answers(thoughts, 1) == [None]
    assert not find_thoughts(thoughts + FINAL).unclosed


@pytest.mark.parametrize("opening", CLOSING)
def test_thoughts_that_are_not_closed_last_to_the_end(opening: str) -> None:
    masked, unclosed = find_thoughts(f"so {opening}Perhaps {DRAFT}")
    assert masked.rstrip(MASK) == "so "
    assert unclosed
    assert split_answers(f"so {opening}Perhaps {DRAFT}", 1) == [None]


@pytest.mark.parametrize("opening", OWN_CLOSING)
def test_what_stands_before_a_closing_mark_alone_is_thoughts(opening: str) -> None:
    assert split_answers(f"Perhaps {DRAFT}? No.{CLOSING[opening]}{FINAL}", 1) == ["42"]
    assert split_answers(f"Perhaps {DRAFT}? No.{CLOSING[opening]}", 1) == [None]


def test_the_end_of_a_turn_alone_closes_no_thoughts() -> None:
    assert split_answers(f"{FINAL}<|end|>", 1) == ["42"]


@pytest.mark.parametrize(
    "content",
    ["<think>I call.</think><tool_call>{}</tool_call>", "print('<think>')", "a</think>b", "[THINK]", "x <thinking> y"],
)
def test_marks_inside_an_answer_are_text(content: str) -> None:
    assert split_answers(f"so: <answer>{content}</answer> done", 1) == [content]
    assert split_answers(f"<think>{DRAFT}</think><answer_2>{content}</answer_2>", 2) == [None, content]


def test_a_tag_that_is_only_mentioned_begins_no_answer() -> None:
    assert split_answers(f"I use <answer> tags. <think>Perhaps {DRAFT}", 1) == [None]
    assert split_answers(f"I use <answer> tags. <think>Hm.</think>{FINAL}", 1) == ["42"]


@given(st.lists(st.sampled_from([*MARKS, *answer_tags(1)[0], *answer_tags(2)[1], "x", "\n"]), max_size=20).map("".join))
def test_a_masked_text_is_the_text_but_for_its_thoughts(text: str) -> None:
    masked, unclosed = find_thoughts(text)
    assert len(masked) == len(text)
    assert all(letter in (MASK, own) for letter, own in zip(masked, text, strict=True))
    assert find_thoughts(masked) == (masked, False)
    assert not unclosed or masked.endswith(MASK)


def test_every_mark_has_a_hint() -> None:
    assert all(any(hint in mark for hint in HINTS) for mark in MARKS if mark != "<|end|>")


@pytest.mark.parametrize("piece", ["<think>", "</think>", "<answer><think>", "</answer><think></think>", "[THINK]"])
def test_a_megabyte_takes_linear_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    find_thoughts(text)
    assert time.process_time() - start < 2.0
