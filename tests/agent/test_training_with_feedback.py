"""Training and sampling where each attempt but the last is told what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vpo_agent.config import make_config
from vpo_agent.learning.warm_start import demonstrated
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.targets import load_policy
from vpo_agent.trainer import Trainer
from vpo_envs.text import bare_answer, calls_of, split_answers, split_turns

ENV: dict[str, Any] = {"preset": "compact", "difficulty": {"steps": [2, 2]}, "refine": True}


@pytest.fixture(scope="module")
def policy() -> LMPolicy:
    return load_policy("tiny-programs", device="cpu")


def test_rollouts_hold_a_reply_after_each_answer_but_the_last(tmp_path: Path) -> None:
    settings = {"steps": 1, "prompts_per_step": 8, "rollouts_per_prompt": 4, "max_new_tokens": 40, "eval_every": 0}
    given = {"env": "vpo/Programs-v0", "env_kwargs": ENV, "model": "tiny-programs", "num_answers": [1, 3]}
    trainer = Trainer(make_config({**settings, **given, "device": "cpu", "runs_dir": tmp_path, "name": "run"}))
    prepared = trainer.prepare()
    rollouts = prepared.rollouts
    env = make_text_env("vpo/Programs-v0", **ENV, num_answers=3)
    replied = {1: 0, 3: 0}
    for row, text in enumerate(rollouts.samples.texts):
        task, m = rollouts.tasks[row // 4], int(rollouts.num_answers[row // 4])
        calls = calls_of(text)
        # A model may give one twice.
        assert {call.tag for call in calls} <= {f"answer_{number}" for number in range(1, m)}
        assert len(calls) <= m
        for number, (_, reply) in enumerate(split_turns(text)[:-1]):
            assert reply == env.feedback(task, calls[number].text)
        answers = [None if answer is None else bare_answer(answer) for answer in split_answers(text, m)]
        plain = env.score_answers(task, answers)[0]
        np.testing.assert_allclose(rollouts.rewards[row // 4, row % 4, :m], plain, atol=1e-6)
        replied[m] += len(calls)
    assert replied[3] > replied[1] == 0
    replies = rollouts.samples.mask & ~rollouts.samples.trained
    assert replies.any()
    assert np.isfinite(trainer.learn(prepared).row["loss"])


def test_a_warm_start_reads_the_replies_and_learns_the_answers(policy: LMPolicy) -> None:
    env = make_text_env("vpo/Programs-v0", **ENV, num_answers=3)
    samples = demonstrated(policy, env, range(6), np.random.default_rng(0), [1, 3])
    rng = np.random.default_rng(0)
    for row, index in enumerate(range(6)):
        m = int(rng.choice([1, 3]))
        assert samples.texts[row] == env.demonstrated(env.task(index), rng, m)
        own = policy.tokenizer.decode(samples.ids[row][samples.trained[row]], skip_special_tokens=True)
        written = "".join(piece for piece, _ in split_turns(samples.texts[row]))
        assert own.replace(" ", "") == written.replace(" ", "").replace("\n", "")
        assert (samples.mask[row] & ~samples.trained[row]).any() == (m > 1)
