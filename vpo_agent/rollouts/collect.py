"""Collects rollouts: the prompts of tasks, sampled responses and their reward matrices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_agent.rollouts.prompts import make_prompts
from vpo_envs import Status, Task, VectorTextEnv
from vpo_envs.core import RewardBatch
from vpo_envs.registration import make_text_env as make_text_env
from vpo_envs.scoring import Scorer


@dataclass(frozen=True)
class Rollouts:
    """G responses to each of P tasks, with their scores."""

    tasks: list[Task]
    """The P tasks."""
    samples: Samples
    rewards: NDArray[np.float32]
    """Reward matrices, shape (P, G, m, d)."""
    status: NDArray[np.int8]
    """Status of each answer, shape (P, G, m)."""
    failure: str
    """Why the scorer failed on the first answer without a score; empty if there is none."""
    generate_seconds: float
    score_seconds: float

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which rollouts have a score, because no answer's scorer failed; shape (P, G)."""
        return np.asarray((self.status != Status.INVALID).all(axis=-1))

    def outside(self, names: Sequence[str]) -> str:
        """Return the ranges of the objectives, called ``names``, that leave [0, 1]; empty if there are none."""
        found = self.rewards[self.status != Status.INVALID]
        ranges = zip(names, *(end(axis=0, initial=0) for end in (found.min, found.max)), strict=True)
        return ", ".join(
            f"{name} {low:.3g} to {high:.3g}" for name, low, high in ranges if low < -1e-6 or high > 1 + 1e-6
        )


def collect(
    env: VectorTextEnv[Any, Any, Any],
    sampler: Sampler,
    tasks: Sequence[Task],
    *,
    rollouts: int,
    max_new_tokens: int,
    temperature: float,
    seed: Sequence[int],
    sample_batch: int = 512,
    stated_weights: NDArray[np.floating] | None = None,
    scorer: Scorer | None = None,
) -> Rollouts:
    """Sample ``rollouts`` responses to each task and score them.

    Args:
        env: The environment; a response holds ``env.num_answers`` answers.
        sampler: A policy or another backend.
        tasks: P tasks.
        rollouts: G, responses to each task.
        max_new_tokens: Longest response, in tokens.
        temperature: Temperature of the sampling.
        seed: Numbers that key the random stream.
        sample_batch: Maximum number of responses sampled at the same time, but at least those of one prompt; halved
            permanently when they do not fit into the device's memory. Every response has its own random numbers, so
            the split does not change it.
        stated_weights: Weightings of the objectives to state in the prompts, (P, d), in whole per cent.
        scorer: Scores the responses; it must know ``env``. By default they are scored in this process.

    Raises:
        OutOfMemory: The responses to one prompt do not fit into the device's memory.
    """
    start = time.perf_counter()
    prompts = make_prompts(env, tasks, stated_weights)
    where = range(len(prompts))
    request = SampleRequest(prompts, rollouts, env.num_answers, max_new_tokens, temperature, seed, where)
    samples = sampler.sample_in_parts(request, sample_batch)
    generated = time.perf_counter()
    batch = score(env, tasks, samples.texts, rollouts=rollouts, scorer=scorer)
    scored = time.perf_counter()
    return Rollouts(list(tasks), samples, *batch, batch.failure, generated - start, scored - generated)


def score(
    env: VectorTextEnv[Any, Any, Any],
    tasks: Sequence[Task],
    texts: Sequence[str],
    *,
    rollouts: int,
    scorer: Scorer | None = None,
) -> RewardBatch:
    """Score ``rollouts`` adjacent responses to each of P tasks: reward matrices (P, G, m, d) and statuses (P, G, m)."""
    asked = [task for task in tasks for _ in range(rollouts)]
    batch = env.score_batch(asked, texts) if scorer is None else scorer.score_batch(asked, texts, env)
    shape = (len(tasks), rollouts, *batch.rewards.shape[1:])
    return RewardBatch(batch.rewards.reshape(shape), batch.status.reshape(shape[:-1]), batch.failure)
