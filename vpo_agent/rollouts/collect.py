"""Collects rollouts: the prompts of tasks, sampled responses and their reward matrices.

The prompts of a step may ask for different numbers of answers. They are sampled together, each response until its own
last answer, and then scored by the number of answers, since a reward matrix has a row for each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_envs import Status, Task
from vpo_envs.core import AnyEnv, RewardBatch, score_batch
from vpo_envs.registration import make_text_env as make_text_env


@dataclass(frozen=True)
class Rollouts:
    """G responses of m answers to each of P tasks, with their scores."""

    tasks: list[Task]
    """The P tasks."""
    samples: Samples
    rewards: NDArray[np.float32]
    """Reward matrices, shape (P, G, m, d)."""
    status: NDArray[np.int8]
    """Status of each answer, shape (P, G, m)."""
    failure: str
    """Why the scorer failed on the first answer without a score; empty if there is none."""

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


@dataclass(frozen=True)
class Batch:
    """The rollouts of a step by their number of answers."""

    samples: Samples
    """Of all P tasks, in order."""
    places: list[NDArray[np.int64]]
    """Places among the P tasks that those of each part have."""
    parts: list[Rollouts]
    """Largest number of answers first; usually one."""
    generate_seconds: float
    score_seconds: float

    def in_order(self, parts: list[Tensor]) -> Tensor:
        """Join the values of each part, (P of the part, …), in the order of the P tasks: (P, …)."""
        return torch.cat(parts)[torch.from_numpy(np.concatenate(self.places).argsort())]


def collect(
    env: AnyEnv,
    sampler: Sampler,
    tasks: Sequence[Task],
    *,
    rollouts: int,
    max_new_tokens: int,
    temperature: float,
    seed: Sequence[int],
    num_answers: Sequence[int] | None = None,
    sample_batch: int = 512,
    scorer_threads: int = 0,
) -> Batch:
    """Sample ``rollouts`` responses to each task and score them.

    Args:
        env: The environment.
        sampler: A policy or another backend.
        tasks: P tasks.
        rollouts: G, responses to each task.
        max_new_tokens: Longest response, in tokens.
        temperature: Temperature of the sampling.
        seed: Numbers that key the random stream.
        num_answers: Answers in a response to each task, (P,); ``env.num_answers`` by default.
        sample_batch: Maximum number of responses sampled at the same time, but at least those of one prompt; halved
            permanently when they do not fit into the device's memory. Every response has its own random numbers, so
            the split does not change it.
        scorer_threads: Threads that score the responses; 0 for this one.

    Raises:
        OutOfMemory: The responses to one prompt do not fit into the device's memory.
    """
    start = time.perf_counter()
    asked = list(num_answers or [env.num_answers] * len(tasks))
    prompts = [env.prompt(task, m) for task, m in zip(tasks, asked, strict=True)]
    request = SampleRequest(prompts, rollouts, asked, max_new_tokens, temperature, seed, range(len(prompts)))
    samples = sampler.sample_in_parts(request, sample_batch)
    generated = time.perf_counter()
    places, parts = [], []
    for m in sorted(set(asked), reverse=True):
        places.append(np.flatnonzero(np.equal(asked, m)))
        some = [tasks[place] for place in places[-1].tolist()]
        own = samples if len(some) == len(tasks) else samples.subset(torch.from_numpy(places[-1]))
        batch = score(env, some, own.texts, rollouts=rollouts, num_answers=m, scorer_threads=scorer_threads)
        parts.append(Rollouts(some, own, *batch, batch.failure))
    return Batch(samples, places, parts, generated - start, time.perf_counter() - generated)


def score(
    env: AnyEnv,
    tasks: Sequence[Task],
    texts: Sequence[str],
    *,
    rollouts: int,
    num_answers: int | None = None,
    scorer_threads: int = 0,
) -> RewardBatch:
    """Score ``rollouts`` adjacent responses to each of P tasks: reward matrices (P, G, m, d) and statuses (P, G, m)."""
    asked = [task for task in tasks for _ in range(rollouts)]
    batch = score_batch(env, asked, texts, num_answers, threads=scorer_threads)
    shape = (len(tasks), rollouts, *batch.rewards.shape[1:])
    return RewardBatch(batch.rewards.reshape(shape), batch.status.reshape(shape[:-1]), batch.failure)
