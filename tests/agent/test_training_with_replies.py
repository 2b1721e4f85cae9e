"""Training where the environment replies: what is trained, counted and compared, and a resumed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vpo_agent.config import TrainConfig, make_config
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import sample_pool
from vpo_agent.presets import TASKS
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.runs.rows import read_rows
from vpo_agent.trainer import Trainer
from vpo_envs.text import calls_of, split_turns

SMALL = {
    **TASKS["archive"]["compact"],
    "steps": 2,
    "prompts_per_step": 4,
    "rollouts_per_prompt": 4,
    "device": "cpu",
    "eval_every": 0,
    "eval_prompts": 4,
    "checkpoint_every": 1,
    "kl_coef": 0.01,
}


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    return make_config({**SMALL, "runs_dir": tmp_path, "name": "whole"})


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in trainer.policy.model.parameters()])


def test_a_step_learns_from_what_the_policy_wrote(config: TrainConfig) -> None:
    trainer = Trainer(config)
    prepared = trainer.prepare()
    samples = prepared.rollouts.samples
    assert sum(len(calls_of(text)) for text in samples.texts) > len(samples.texts)
    # A reply is neither sampled nor learnt from: whatever its log-probabilities are said to be, nothing changes.
    replies = samples.mask & ~samples.trained
    assert replies.any()
    before = weights(trainer)
    row = trainer.learn(prepared).row
    assert row["response_tokens"] == pytest.approx(float(samples.trained.sum(1).float().mean()))
    assert row["log_prob_gap_max"] < 1e-5
    assert not torch.equal(before, weights(trainer))

    other = Trainer(config.model_copy(update={"name": "other"}))
    again = other.prepare()
    again.rollouts.samples.log_probs[replies] = 7.0
    other.learn(again)
    assert torch.equal(weights(trainer), weights(other))


def test_sampler_and_trainer_agree_after_an_update(config: TrainConfig) -> None:
    trainer = Trainer(config)
    trainer.train()
    rows = read_rows(trainer.folder.metrics)
    assert [row["log_prob_gap_max"] < 1e-5 for row in rows if row["kind"] == "train"] == [True, True]


def test_a_resumed_run_ends_with_the_same_weights(config: TrainConfig) -> None:
    whole = Trainer(config)
    whole.train()
    first = Trainer(config.model_copy(update={"name": "parts", "steps": 1}))
    first.train()
    second = Trainer(config.model_copy(update={"name": "parts"}), resume=True)
    second.train()
    assert torch.equal(weights(whole), weights(second))
    texts = [
        [row["responses"] for row in read_rows(trainer.folder.path / "transcripts.jsonl")]
        for trainer in (whole, second)
    ]
    assert texts[0] == texts[1]


def test_a_pool_keeps_the_replies(config: TrainConfig, tmp_path: Path) -> None:
    trainer = Trainer(config)
    env: Any = make_text_env("vpo/Archive-v0", preset="compact", num_answers=3, split="test")
    settings = {"rollouts": 4, "max_new_tokens": 30, "temperature": 1.0, "seed": (0,)}
    pool = sample_pool(env, trainer.policy, range(3), **settings)
    pool.save(tmp_path / "pool.npz")
    loaded = Pool.load(tmp_path / "pool.npz")
    assert loaded.responses is not None
    assert loaded.responses == pool.responses
    for number, index in enumerate(loaded.indices.tolist()):
        task = env.task(index)
        for text, rewards in zip(loaded.responses[number], loaded.rewards[number], strict=True):
            assert np.allclose(env.score_batch([task], [text], 3).rewards[0], rewards)
            turns = split_turns(text)
            for position, call in enumerate(calls_of(text)):
                assert turns[position][1] == env.respond(task, [call])
