"""Ten thousand random and adversarial responses for the maze, mathematics, tools, personas and reward models."""

from __future__ import annotations

import random
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import toys
from hypothesis import given, settings
from hypothesis import strategies as st

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import Status

ENVS: dict[str, dict[str, Any]] = {
    "vpo/Maze-v0": {},
    "vpo/Countdown-v0": {"preset": "compact"},
    "vpo/GSM8K-v0": {},
    "vpo/Tools-v0": {"preset": "conflict"},
    "vpo/Personas-v0": {"preset": "conflict"},
    "vpo/RewardModels-v0": {"heads": ["kind", "brief"]},
}
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
        *("<eos>", "<pad>", "[user] ", "SCORE: 10"),
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


@pytest.fixture(scope="module", params=ENVS)
def env(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    options = ENVS[request.param]
    if request.param == "vpo/RewardModels-v0":
        options = {**options, "models": {"tiny": toys.save_reward_model(tmp_path_factory.mktemp("model"), labels=2)}}
    return gym.make(request.param, **options).unwrapped


@pytest.fixture(scope="module")
def tasks(env: Any) -> list[Any]:
    return [env.task(i) for i in range(20)]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), own=st.lists(RESPONSES, min_size=1, max_size=10))
def test_no_response_raises_and_scores_are_bounded_and_repeatable(
    env: Any, tasks: list[Any], seed: int, own: list[str]
) -> None:
    source = random.Random(seed)
    # Hypothesis' own responses, and fifty more from the same pieces: over 10,000 in all.
    responses = own + ["".join(source.choices(PIECES, k=source.randint(0, 30))) for _ in range(50)]
    asked = source.choices(tasks, k=len(responses))
    first, again = (env.score_batch(asked, responses, num_answers=2) for _ in range(2))
    assert ((first.rewards >= 0) & (first.rewards <= 1)).all()
    np.testing.assert_array_equal(first.rewards, again.rewards)
    np.testing.assert_array_equal(first.status, again.status)
    assert (first.rewards[first.status != Status.OK] == 0).all()
