"""Collects rollouts: the prompts of tasks, sampled responses and their reward matrices.

Axes: P prompts, G rollouts of each, M answers in a rollout, d objectives. The prompts of a step may ask for different
numbers of answers; M is then the largest of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.config import TrainConfig
from vpo_agent.policy.samples import MAX_RESPONSES, Sampler, Samples
from vpo_envs import Status, Task
from vpo_envs.core import AnyEnv, RewardBatch, score_batch, turns_of
from vpo_envs.registration import make_text_env as make_text_env

ANSWERS_STREAM = 3
"""Second number of the seed that orders the numbers of answers in a step; sampling has 0 and 1, shuffling 2."""


def environments_of(config: TrainConfig) -> tuple[AnyEnv, AnyEnv, AnyEnv]:
    """Return three environments: for training, for evaluation before and after it, and for validation during it."""
    evaluated, validation = (
        make_text_env(config.env, **config.env_kwargs, num_answers=config.max_answers, split=split)
        for split in (config.eval_split, "validation")
    )
    train = make_text_env(config.env, **config.train_kwargs, num_answers=config.max_answers, split="train")
    return train, evaluated, validation


def trainer_state(step: int, steps: int) -> Any:
    """Return the ``transformers.TrainerState`` of a training that has taken ``step`` of its ``steps``."""
    from transformers import TrainerState  # loads hundreds of modules, which few rewards need

    return TrainerState(global_step=step, max_steps=steps)


@dataclass(frozen=True)
class Rollouts:
    """G responses to each of P tasks, with their scores."""

    tasks: list[Task]
    """The P tasks."""
    num_answers: NDArray[np.int64]
    """Answers that each prompt asks for, (P,)."""
    samples: Samples
    rewards: NDArray[np.float32]
    """Reward matrices, (P, G, M, d); 0 for answers that a prompt does not ask for."""
    status: NDArray[np.int8]
    """Status of each answer, (P, G, M); ``MISSING`` for answers that a prompt does not ask for."""
    valid: NDArray[np.bool_]
    """Which rollouts have a score, because no answer's scorer failed, (P, G)."""
    answered: NDArray[np.bool_]
    """True for the answers that each prompt asks for, and False for the padding behind them, (P, M)."""
    failure: str = ""
    """Why the scorer failed on the first answer without a score; empty if there is none."""
    seconds_generate: float = 0.0
    seconds_score: float = 0.0


def collect(
    env: AnyEnv,
    sampler: Sampler,
    tasks: Sequence[Task],
    *,
    rollouts: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: Sequence[int] = (0,),
    num_answers: Sequence[int] | None = None,
    sample_batch: int = MAX_RESPONSES,
    scorer_threads: int = 0,
) -> Rollouts:
    """Sample ``rollouts`` responses to each task and score them.

    Args:
        env: The environment.
        sampler: A policy or another backend.
        tasks: P tasks.
        rollouts: G, responses to each task.
        max_new_tokens: Longest response, in tokens.
        temperature: Sampling temperature, above 0.
        seed: Numbers that key the random stream.
        num_answers: Answers in a response to each task, (P,); ``env.num_answers`` by default.
        sample_batch: Maximum number of responses sampled at the same time, but at least all responses to one prompt;
            halved permanently when they do not fit into the device's memory. Every response has its own random numbers,
            so the split does not change it.
        scorer_threads: Threads that score the responses; with 0, the calling thread scores them.

    Raises:
        ValueError: A prompt and its response do not fit into the model's context.
        BackendFailed: The sampling engine failed.
        OutOfMemory: The responses to one prompt do not fit into the device's memory.
    """
    start = time.perf_counter()
    counts = np.array(num_answers or [env.num_answers] * len(tasks))
    samples = sampler.sample(
        [env.chat_prompt(task, m) for task, m in zip(tasks, counts.tolist(), strict=True)],
        rollouts=rollouts,
        num_answers=counts.tolist(),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        sample_batch=sample_batch,
        turns=turns_of(env, tasks, counts.tolist()),
    )
    generated = time.perf_counter()
    scores = score(env, tasks, samples.texts, rollouts=rollouts, num_answers=counts, scorer_threads=scorer_threads)
    return Rollouts(
        tasks=list(tasks),
        num_answers=counts,
        samples=samples,
        rewards=scores.rewards,
        status=scores.status,
        valid=(scores.status != Status.INVALID).all(axis=-1),
        answered=np.arange(scores.rewards.shape[2]) < counts[:, None],
        failure=scores.failure,
        seconds_generate=generated - start,
        seconds_score=time.perf_counter() - generated,
    )


def numbers_of_answers(shares: Sequence[int], count: int, *, seed: int, step: int) -> list[int]:
    """Return the number of answers that each of the ``count`` prompts of a training step asks for, (P,).

    Each number in ``shares`` is asked for as often as it occurs there, exactly so over a run. The order within a step
    is random, so that no number stays with a task.
    """
    first = step * count
    num_answers = [shares[prompt % len(shares)] for prompt in range(first, first + count)]
    if len(shares) > 1:
        order = np.random.default_rng([seed, ANSWERS_STREAM, step]).permutation(count)
        num_answers = [num_answers[prompt] for prompt in order]
    return num_answers


def score(
    env: AnyEnv,
    tasks: Sequence[Task],
    texts: Sequence[str],
    *,
    rollouts: int,
    num_answers: NDArray[np.int64],
    scorer_threads: int = 0,
) -> RewardBatch:
    """Score ``rollouts`` adjacent responses to each of P tasks, of which each asks for ``num_answers``, (P,).

    Returns:
        Reward matrices (P, G, M, d) and statuses (P, G, M), padded with 0 and ``MISSING``.
    """
    shape = (len(tasks), rollouts, int(num_answers.max()))
    rewards = np.zeros((*shape, env.reward_dim), dtype=np.float32)
    status = np.full(shape, Status.MISSING, dtype=np.int8)
    failure = ""
    # The scorer takes responses with one number of answers at a time.
    for m in np.unique(num_answers)[::-1].tolist():
        prompts = np.flatnonzero(num_answers == m).tolist()
        responses = [texts[prompt * rollouts + rollout] for prompt in prompts for rollout in range(rollouts)]
        tasks_of_responses = [tasks[prompt] for prompt in prompts for _ in range(rollouts)]
        batch = score_batch(env, tasks_of_responses, responses, m, threads=scorer_threads)
        rewards[prompts, :, :m] = batch.rewards.reshape(len(prompts), rollouts, m, -1)
        status[prompts, :, :m] = batch.status.reshape(len(prompts), rollouts, m)
        failure = failure or batch.failure
    return RewardBatch(rewards, status, failure)
