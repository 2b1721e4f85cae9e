"""Sampling a pool with a policy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys

from vpo_agent.measure.measures import measures
from vpo_agent.measure.sampling import sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env


def test_a_sampled_pool_knows_how_to_make_its_environment_again(letters_model: Path) -> None:
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    env = make_text_env(toys.LETTERS_ID, split="validation", num_answers=2, data_seed=5)
    more = {"method": "vpo", "step": 7}
    pool = sample_pool(env, policy, [4], rollouts=1, max_new_tokens=9, temperature=0.5, seed=[1], source=more)
    assert pool.source["env"] == toys.LETTERS_ID
    assert pool.source["env_kwargs"] == {"data_seed": 5}
    assert {name: pool.source[name] for name in ("split", "num_answers", "temperature", "method", "step")} == {
        "split": "validation",
        "num_answers": 2,
        "temperature": 0.5,
        "method": "vpo",
        "step": 7,
    }


def test_a_sampled_pool_holds_the_environments_own_view(letters_model: Path) -> None:
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    env = toys.LettersEnv(split="test", num_answers=3)
    settings: dict[str, Any] = {"rollouts": 3, "max_new_tokens": 14, "temperature": 1.0, "seed": [1]}
    pool = sample_pool(env, policy, range(2, 6), **settings)
    assert pool.rewards.shape == (4, 3, 3, 2)
    assert pool.indices.tolist() == [2, 3, 4, 5]
    assert pool.objectives == ("left", "right")
    np.testing.assert_allclose(pool.scalar_weights, 0.5)
    assert pool.fronts is not None
    assert sorted(pool.fronts[0].tolist()) == sorted(map(list, (toys.LETTERS[letter] for letter in "abce")))
    assert pool.optimum() == pytest.approx([0.5] * 4)
    known = dict(pool.source)
    other = sample_pool(env, policy, range(3, 7), **settings)
    assert known.pop("tasks") != other.source["tasks"]
    repeated = sample_pool(env, policy, [2, 3, 2], **settings)
    assert repeated.prompts_in_words("test") == "3 test prompts, 2 distinct tasks"
    assert known == {"split": "test", "num_answers": 3, "max_new_tokens": 14, "temperature": 1.0}
    weighted = sample_pool(env, policy, range(2, 6), **settings, scalar_weights=[3.0, 1.0], sample_batch=3)
    np.testing.assert_array_equal(weighted.rewards, pool.rewards)
    np.testing.assert_allclose(weighted.scalar_weights, [[0.75, 0.25]] * 4)
    assert weighted.optimum() == pytest.approx([0.75] * 4)
    assert pool.responses is not None
    assert pool.tokens is not None
    for texts, tokens in zip(pool.responses, pool.tokens, strict=True):
        # An end-of-sequence token is generated too, but is no text.
        lengths = np.array([len(policy.tokenizer(text)["input_ids"]) for text in texts])
        assert ((tokens == lengths) | (tokens == lengths + 1)).all()
        assert tokens.max() <= 14
    tasks = [env.task(index) for index in range(2, 6) for _ in range(3)]
    again = env.score_batch(tasks, [text for row in pool.responses for text in row])
    np.testing.assert_array_equal(again.rewards.reshape(pool.rewards.shape), pool.rewards)
    assert all(math.isfinite(value) for one in measures(weighted) for value in one.values)
