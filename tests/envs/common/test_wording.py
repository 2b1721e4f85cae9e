"""Parts of messages."""

from __future__ import annotations

import pytest

from vpo_envs.common.wording import counted, did_you_mean


@pytest.mark.parametrize(("count", "text"), [(0, "0 answers"), (1, "1 answer"), (2, "2 answers")])
def test_a_noun_follows_its_number(count: int, text: str) -> None:
    assert counted(count, "answer") == text


@pytest.mark.parametrize(
    ("name", "meant"),
    [("vop", "did you mean vpo? "), ("GPRO", "did you mean grpo? "), ("maze", "did you mean Maze? "), ("tree", "")],
)
def test_the_most_similar_name_is_suggested_whatever_the_case(name: str, meant: str) -> None:
    assert did_you_mean(name, ["grpo", "vpo", "Maze"]) == meant
