"""Collects rollouts: the prompts of tasks, sampled responses and their reward matrices."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from vpo_agent.errors import OutOfMemory
from vpo_agent.policy.samples import Sampler, Samples, concatenate_samples
from vpo_agent.rollouts.prompts import make_prompts
from vpo_envs import Status, Task, VectorTextEnv
from vpo_envs.registration import make_text_env as make_text_env
from vpo_envs.scoring.scorers import Scorer


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
    generate_seconds: float
    score_seconds: float

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which rollouts have a score, because no answer's scorer failed; shape (P, G)."""
        return np.asarray((self.status != Status.INVALID).all(axis=-1))


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
            the split does not change it; only the backend ``continuous`` has one stream per call, which it does change.
        stated_weights: Weightings of the objectives to state in the prompts, (P, d), in whole per cent.
        scorer: Scores the responses; it must know ``env``. By default they are scored in this process.

    Raises:
        OutOfMemory: The responses to one prompt do not fit into the device's memory.
    """
    start = time.perf_counter()
    prompts = make_prompts(env, tasks, stated_weights)

    def sample(places: Sequence[int]) -> Samples:
        return sampler.sample(
            [prompts[place] for place in places],
            rollouts=rollouts,
            num_answers=env.num_answers,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            places=places,
        )

    most = max(1, min(sample_batch, sampler.most_responses or sample_batch) // rollouts)
    samples, held = _sample_in_parts(sample, [len(prompt) for prompt in prompts], most, rollouts)
    if held < most:
        sampler.most_responses = held * rollouts
    generated = time.perf_counter()
    asked = [task for task in tasks for _ in range(rollouts)]
    batch = env.score_batch(asked, samples.texts) if scorer is None else scorer.score_batch(asked, samples.texts, env)
    scored = time.perf_counter()
    shape = (len(tasks), rollouts, *batch.rewards.shape[1:])
    rewards, status = batch.rewards.reshape(shape), batch.status.reshape(shape[:-1])
    return Rollouts(list(tasks), samples, rewards, status, generated - start, scored - generated)


def _sample_in_parts(
    sample: Callable[[Sequence[int]], Samples], lengths: Sequence[int], most: int, rollouts: int
) -> tuple[Samples, int]:
    """Sample the prompts of these lengths, at most ``most`` at a time, and fewer where memory does not hold them.

    Returns:
        The samples in the order of the prompts, and the number of prompts that fit into memory at a time.
    """
    size = most
    order = list(range(len(lengths)))
    parts: list[Samples] = []
    done = 0
    while done < len(order):
        if len(order) > size and not parts:
            # Prompts of like length are sampled together, which saves padding.
            order.sort(key=lambda place: lengths[place])
        places = order[done : done + size]
        with suppress(torch.OutOfMemoryError):
            parts.append(sample(places))
            done += len(places)
            continue
        # What the failed attempt held is free only here, where its error is gone.
        if len(places) == 1:
            raise OutOfMemory(
                f"out of memory for sampling {rollouts} responses at a time: lower --max-new-tokens or the rollouts"
            )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        size = len(places) // 2
    if size < most:
        tqdm.write(
            f"out of memory for sampling {min(most, len(order)) * rollouts} responses at a time: the batch is "
            f"repeated, and the run goes on, with --sample-batch {size * rollouts}",
            file=sys.stderr,
        )
    samples = concatenate_samples(parts)
    return samples.subset(torch.tensor(order).argsort()) if len(parts) > 1 else samples, size
