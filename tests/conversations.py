"""Conversations with the compact archive, and what its own steps make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_envs.text import REPLY_START

COMPACT = {"preset": "compact"}
CASES = ("two answers", "what follows a call", "one call too many", "no answer")


def conversation(task: Any, case: str) -> list[str]:
    """What a model writes in each turn, two answers in all."""
    first, second = (f"<open>{title}</open>" for title in task.way[:2])
    answers = f"<answer_1>{task.kind}</answer_1>", f"<answer_2>{task.near}</answer_2>"
    if case == "two answers":
        return [f"I open {first}", f"{answers[0]} {second}", answers[1]]
    if case == "what follows a call":
        return [f"{first} It says so. {answers[1]}", *answers]
    if case == "one call too many":
        return [first] * 9
    return [first, "I give up."]


def stepped(env: Any, task: Any, written: Sequence[str]) -> tuple[str, list[tuple[str, ...]], NDArray[np.float32]]:
    """The prompt, what was read of each turn with the reply to it, and the reward matrix, by ``step``."""
    prompt, _ = env.reset(options={"task": task})
    read: list[tuple[str, ...]] = []
    for text in written:
        before = env.episode.response
        observation, _, terminated, truncated, info = env.step(text)
        if terminated or truncated:
            return prompt, [*read, (text,)], info["reward_matrix"]
        turn = env.episode.response.removeprefix(before)
        read.append((turn.partition(REPLY_START)[0], observation))
    raise AssertionError("the conversation does not end")
