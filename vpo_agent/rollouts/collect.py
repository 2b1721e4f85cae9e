"""From tasks to reward matrices: prompts, responses, scores."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

import vpo_envs  # noqa: F401 - registers the environments
from vpo_agent.errors import memory_for
from vpo_agent.policy.samples import Samples, concatenate_samples
from vpo_agent.rollouts.backends import Sampler
from vpo_agent.rollouts.prompts import make_prompts
from vpo_envs import Status, Task, VectorTextEnv
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
        """Which rollouts have a score at all: no answer's scorer failed. Shape (P, G)."""
        return np.asarray((self.status != Status.INVALID).all(axis=-1))


def make_text_env(env_id: str, **kwargs: Any) -> VectorTextEnv[Any, Any, Any]:
    """The bare environment behind ``env_id``.

    Raises:
        ValueError: Unknown id, unknown or bad arguments, or an environment that is not a text environment.
    """
    try:
        env = gym.make(env_id, **kwargs).unwrapped
    except gym.error.Error as error:
        known = ", ".join(sorted(name for name in gym.registry if name.startswith("vpo/")))
        raise ValueError(
            f"unknown environment {env_id!r}: {str(error).rstrip('.')}. The suite has {known}; "
            "an environment of your own must be registered first"
        ) from None
    except ImportError as error:
        raise ValueError(f"unknown environment {env_id!r}: {error}") from None
    except TypeError as error:
        raise ValueError(f"bad arguments for {env_id}: {error}") from None
    if not isinstance(env, VectorTextEnv):
        raise ValueError(
            f"{env_id} is a {type(env).__name__}, not a text environment: a language model needs a VectorTextEnv"
        )
    return env


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
        env: The environment, whose ``num_answers`` says how many answers a response holds.
        sampler: What samples, a policy or another backend.
        tasks: P tasks.
        rollouts: G.
        max_new_tokens: Longest response, in tokens.
        temperature: Of the sampling.
        seed: Numbers that key the random stream.
        sample_batch: Most responses in flight at one time, but at least those of one prompt. Every response has its
            own random numbers, so how the batch is split does not matter to them; the backend ``continuous`` has one
            stream for a call, and there it does. Prompts of like length are sampled together.
        stated_weights: Weightings of the objectives to state in the prompts, (P, d), in whole per cent.
        scorer: Scores the responses with ``env``, which it must know; by default this process does.

    Raises:
        OutOfMemory: The device's memory does not hold the responses in flight.
    """
    start = time.perf_counter()
    prompts = make_prompts(env, tasks, stated_weights)
    parts = _by_length(prompts, max(1, sample_batch // rollouts))
    most = max(map(len, parts), default=0)
    fewer = f"lower --sample-batch below {most * rollouts}" if most > 1 else "lower --max-new-tokens or the rollouts"
    with memory_for(f"sampling {most * rollouts} responses at a time", fewer):
        samples = concatenate_samples(
            [
                sampler.sample(
                    [prompts[index] for index in part],
                    rollouts=rollouts,
                    num_answers=env.num_answers,
                    max_new_tokens=max_new_tokens,
                    temperature=temperature,
                    seed=seed,
                    places=part,
                )
                for part in parts
            ]
        )
    if len(parts) > 1:
        samples = samples.subset(torch.tensor([index for part in parts for index in part]).argsort())
    generated = time.perf_counter()
    asked = [task for task in tasks for _ in range(rollouts)]
    batch = env.score_batch(asked, samples.texts) if scorer is None else scorer.score_batch(asked, samples.texts, env)
    scored = time.perf_counter()
    _, m, d = batch.rewards.shape
    return Rollouts(
        list(tasks),
        samples,
        batch.rewards.reshape(len(tasks), rollouts, m, d),
        batch.status.reshape(len(tasks), rollouts, m),
        generated - start,
        scored - generated,
    )


def _by_length(prompts: Sequence[str], most: int) -> list[list[int]]:
    """Indices of the prompts, at most ``most`` in a part; where there are several parts, by length, to save padding."""
    order = list(range(len(prompts)))
    if len(order) > most:
        order.sort(key=lambda index: len(prompts[index]))
    return [order[first : first + most] for first in range(0, len(order), most)]
