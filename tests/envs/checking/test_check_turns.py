"""The checker on environments that reply: the example of `vpo new --turns`, and what is wrong with changed ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from vpo_agent.command.template_turns import Desk, DeskEnv, Named
from vpo_envs import Call, CheckFailed, VectorTextEnv, check_vector_env
from vpo_envs.core import Step


class Fickle(DeskEnv):
    namespace = 901

    def respond(self, task: Desk, calls: Sequence[Call]) -> str | None:
        reply = super().respond(task, calls)
        return reply and f"{reply} {random.random()}"


class Telling(DeskEnv):
    namespace = 902

    def respond(self, task: Desk, calls: Sequence[Call]) -> str | None:
        return super().respond(task, calls) or f"try {' '.join(task.words)}"

    def evaluate_after(self, task: Desk, answer: frozenset[str], calls: Sequence[Call]) -> object:
        return Named(len(answer.intersection(task.words)), 0)


class Numbering(DeskEnv):
    namespace = 903

    def respond(self, task: Desk, calls: Sequence[Call]) -> str | None:
        return len(calls)  # type: ignore[return-value]


class Endless(DeskEnv):
    namespace = 904

    def step(self, action: str) -> Step:
        self.episode.response = ""
        return super().step(action)


class Unlimited(DeskEnv):
    namespace = 906
    max_calls = 10**9


class BadTag(DeskEnv):
    namespace = 905
    turn_tags = ("look", "Open It")


def test_the_example_of_vpo_new_keeps_the_contract() -> None:
    report = check_vector_env(DeskEnv(num_answers=3))
    assert "replies stay the same, give no answer away, and end" in report.passed


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Fickle, "determinism: the demonstrations of"),
        (Telling, r"the reply to Call\(tag='look', text=''\) in task\(0\), which asks for nothing, holds the answer"),
        (Numbering, r"Numbering\.respond returned 1: return a text or None"),
        (Endless, r"an episode of task\(0\) goes on after 9 calls: max_calls must end it"),
        (Unlimited, "max_calls is 1000000000: no episode may go on for more than 1,000 calls"),
        (BadTag, "the turn tag 'Open It' is no name of small letters"),
    ],
)
def test_what_is_wrong_with_replies_is_named(broken: type[VectorTextEnv], message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_vector_env(broken(num_answers=3))
