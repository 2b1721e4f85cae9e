"""Ten thousand random and adversarial responses for the maze, mathematics, and conflicts of tools and personas."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import Status

ENVS = {
    "vpo/Maze-v0": gym.make("vpo/Maze-v0").unwrapped,
    "vpo/Countdown-v0": gym.make("vpo/Countdown-v0", preset="embedded").unwrapped,
    "vpo/Derivation-v0": gym.make("vpo/Derivation-v0").unwrapped,
    "vpo/GSM8K-v0": gym.make("vpo/GSM8K-v0").unwrapped,
    "vpo/Tools-v0": gym.make("vpo/Tools-v0", mode="conflict").unwrapped,
    "vpo/Personas-v0": gym.make("vpo/Personas-v0", mode="conflict").unwrapped,
}
TASKS = {env_id: [env.task(i) for i in range(20)] for env_id, env in ENVS.items()}  # type: ignore[attr-defined]
PIECES = [
    *("<answer>", "</answer>", "<answer_1>", "</answer_1>", "<answer_2>", "</answer_2>", "<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<response>", "</response>", '{"name": "a", "parameters": {}}', "{", "[[", '"'),
    *(
        "UP",
        "right, ",
        "D",
        "L L",
        ",",
        "↑",
        "²",
        "٣",
        "NaN",
        "-1",
        *("eliminate 1 2 : ", "isolate 1 :", "substitute 4 1 : x", " x = ", "- 1/0 y ", ";"),
        *("#### 4", "2 + 2 = 4", "$1,000.50", "%", ".", "="),
        *("1", "2 + ", "3*", "( ", ")", "/ 0", "×", "9" * 400, "(" * 400),
        "\0",
        "\ud800",
        "🙂",
        "e\u0301",
        "\u202e",
        "\n",
        "",
    ),
]
RESPONSES = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize("env_id", list(ENVS))
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), own=st.lists(RESPONSES, min_size=1, max_size=10))
def test_no_response_raises_and_scores_are_bounded_and_repeatable(env_id: str, seed: int, own: list[str]) -> None:
    source = random.Random(seed)
    # Hypothesis' own responses, and fifty more from the same pieces: over 10,000 in all.
    responses = own + ["".join(source.choices(PIECES, k=source.randint(0, 30))) for _ in range(50)]
    env, tasks = ENVS[env_id], source.choices(TASKS[env_id], k=len(responses))
    first = env.score_batch(tasks, responses, num_answers=2)  # type: ignore[attr-defined]  # a VectorTextEnv
    again = env.score_batch(tasks, responses, num_answers=2)  # type: ignore[attr-defined]
    assert ((first.rewards >= 0) & (first.rewards <= 1)).all()
    np.testing.assert_array_equal(first.rewards, again.rewards)
    np.testing.assert_array_equal(first.status, again.status)
    assert (first.rewards[first.status != Status.OK] == 0).all()
