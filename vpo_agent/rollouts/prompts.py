"""Prompts of tasks, and whether they fit into the model's context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.policy.language_model import LMPolicy
from vpo_envs import Task, VectorTextEnv


def make_prompts(
    env: VectorTextEnv[Any, Any, Any], tasks: Sequence[Task], stated_weights: NDArray[np.floating] | None = None
) -> list[str]:
    """Return the prompt of each of P tasks, with ``stated_weights``, (P, d) in whole per cent, stated if given."""
    prompts = [env.prompt(task, env.num_answers) for task in tasks]
    if stated_weights is None:
        return prompts
    return [
        env.condition(prompt, weights, env.active(task))
        for prompt, weights, task in zip(prompts, stated_weights, tasks, strict=True)
    ]


def check_prompts(
    policy: LMPolicy,
    env: VectorTextEnv[Any, Any, Any],
    tasks: Mapping[int, Task],
    max_new_tokens: int,
    stated_weights: NDArray[np.floating] | None = None,
) -> int:
    """Check that the prompts of tasks, and the responses to them, fit into the model's context.

    Returns:
        The tokens of the longest prompt.

    Raises:
        ValueError: One does not fit; the error names its index and length, and the way out.
    """
    _, mask = policy.encode_prompts(make_prompts(env, list(tasks.values()), stated_weights))
    lengths: list[int] = mask.sum(1).tolist()
    for index, tokens in zip(tasks, lengths, strict=True):
        try:
            policy.check_length(tokens, max_new_tokens)
        except ValueError as error:
            raise ValueError(f"task {index} of the split {env.split!r}: {error}") from None
    return max(lengths)
