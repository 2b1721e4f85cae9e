"""Random, adversarial and huge responses for every task but programs in the sandbox."""

from __future__ import annotations

import random
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import toys
from hypothesis import given, settings
from hypothesis import strategies as st

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import Status
from vpo_envs.registration import env_type, text_env_ids

CASES = [
    (env_id, preset)
    for env_id in text_env_ids()
    for preset in env_type(env_id).presets
    if (env_id, preset) not in {("vpo/Code-v0", "paper"), ("vpo/Code-v0", "conflict"), ("vpo/Programs-v0", "paper")}
]
TAGS = (
    *("answer", "answer_1", "answer_2", "think", "tool_call", "response", "support", "final"),
    *(f"entity_{letter}" for letter in "ABCDEF"),
)
PIECES = [
    *(f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")),
    *("<", "</", "<answer_", "<entity_", "final>", "entity_A>", "{", "{}", "[[", "]", "}}", '"', "\\", "%s", "{0}"),
    *('{"name": "book", "parameters": {"venue": "Red Hall"}}', '{"name": ', '"parameters": {', '{"name": "", '),
    *('{"name": "send", "parameters": {"kg": 1e308, "to": ["Ann", {"a": null}]}}', "null", "true", '{"a":', "\\ud800"),
    *("UP", "right, ", "D", "L L", "U ", "Ra1 ", ",", "↑", "上", "2 + ", "3*", "( ", ")", "/ 0", "×", "(" * 400, "-1"),
    *("1", "3, 7", "[12]", "1e9", "1e999", "NaN", "-0", "9" * 30, "9" * 400, "²", "٣", "#### 4", "2 + 2 = 4", "%", "="),
    *("$1,000.50", ".", "...", "<eos>", "<pad>", "[user] ", "SCORE: 10", "the", "The The", "Tarvel", "red fox", "Oz"),
    *("_", "word ", "é", "e\u0301", "İ", "ß", "\0", "\ud800", "\udfff", "🙂", "\u202e", "\u2003", "\x1b[31m", "\n", ""),
]
RESPONSES = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(st.characters(exclude_categories=()))
AROUND = (
    *("{}", "<answer>{}</answer>", "<answer><support>{}</support><final>{} x</final></answer>"),
    *("<answer><entity_A>{}</entity_A></answer>", "<answer><think></think><tool_call>{}</response></answer>"),
    "<answer><think></think><response>{}</response></answer>",
)
HUGE = [
    *("U ", "U", ",", "<answer_1>", "</answer_1>", "<answer_1></answer_1>", "<", "\0", "🙂", "Z ", "\ud800", "word "),
    *("<think>", "</think> ", "<tool_call>", '{"a":', "[", '{"name": "book", "parameters": {}}\n', '"', "</response>"),
    *(
        "{}\n",
        "<support>",
        "</final>",
        "<final",
        "3, 7",
        "9",
        "²",
        "The The ",
        "<entity_A>",
        "entity_A>",
        "...",
        "(",
        "2+",
    ),
]


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def env(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    env_id, preset = request.param
    options: dict[str, Any] = {"preset": preset}
    if env_id == "vpo/RewardModels-v0":
        options["models"] = {"tiny": toys.save_reward_model(tmp_path_factory.mktemp("model"), labels=2)}
        options["heads"] = ["kind", "brief"]
    return gym.make(env_id, **options).unwrapped


@pytest.fixture(scope="module")
def tasks(env: Any) -> list[Any]:
    return [env.task(i) for i in range(8)]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), own=st.lists(RESPONSES, min_size=1, max_size=10))
def test_no_response_raises_and_scores_are_bounded_and_repeatable(
    env: Any, tasks: list[Any], seed: int, own: list[str]
) -> None:
    source = random.Random(seed)
    # Hypothesis' own responses, and fifty more from the same pieces.
    responses = own + ["".join(source.choices(PIECES, k=source.randint(0, 30))) for _ in range(50)]
    asked = source.choices(tasks, k=len(responses))
    first, again = (env.score_batch(asked, responses, num_answers=2) for _ in range(2))
    assert ((first.rewards >= 0) & (first.rewards <= 1)).all()
    np.testing.assert_array_equal(first.rewards, again.rewards)
    np.testing.assert_array_equal(first.status, again.status)
    assert (first.rewards[first.status != Status.OK] == 0).all()


def test_a_huge_response_is_scored_in_linear_time(env: Any, tasks: list[Any]) -> None:
    for piece in HUGE:
        body = piece * (100_000 // len(piece))
        start = time.process_time()
        for around in AROUND:
            env.score_batch([tasks[0]], [around.replace("{}", body)])
        # Quadratic time would be minutes.
        assert time.process_time() - start < 5.0, piece
