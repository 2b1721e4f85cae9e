"""Whether the prompts of tasks fit into the model's context."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vpo_agent.policy.language_model import LMPolicy
from vpo_envs.core import AnyEnv

AT_A_TIME = 1024
"""Prompts tokenized at a time."""
SPREAD = 2
"""Assumed limit on a generator's longest prompt, as a multiple of the longest prompt among its first tasks."""


def check_prompts(
    policy: LMPolicy, env: AnyEnv, indices: Sequence[int], max_new_tokens: int, num_answers: Collection[int] = ()
) -> int:
    """Check that the prompts of tasks, and the responses to them, fit into the model's context.

    Each task is checked with each of ``num_answers``, by default the environment's.

    Returns:
        The length of the longest prompt, in tokens.

    Raises:
        ValueError: The longest prompt and a response of ``max_new_tokens`` tokens do not fit.
    """
    longest, longest_index = 0, 0
    for first in range(0, len(indices), AT_A_TIME):
        part = indices[first : first + AT_A_TIME]
        tasks = [env.task(index) for index in part]
        for m in num_answers or [env.num_answers]:
            _, mask = policy.encode_prompts([env.chat_prompt(task, m) for task in tasks])
            lengths = mask.sum(1)
            if int(lengths.max()) > longest:
                longest, longest_index = int(lengths.max()), part[int(lengths.argmax())]
    check_longest(policy, env, longest_index, longest, max_new_tokens)
    return longest


def check_longest(policy: LMPolicy, env: AnyEnv, index: int, prompt_tokens: int, max_new_tokens: int) -> None:
    """Raise ValueError, with the name of the task that has the longest prompt, unless it fits with its response."""
    try:
        policy.check_length(prompt_tokens, max_new_tokens)
    except ValueError as error:
        raise ValueError(f"task {index} of the split {env.split!r} has the longest prompt: {error}") from None


def check_all_prompts(
    policy: LMPolicy, env: AnyEnv, count: int, max_new_tokens: int, num_answers: Collection[int] = (), *, sample: int
) -> int:
    """Check the prompts of the first ``count`` tasks before a run, like :func:`check_prompts`.

    Rows of a data set are all checked. Generated tasks take time to make and differ little in length, so the first
    ``sample`` are checked, and the others only if a prompt of :data:`SPREAD` times the longest length would not fit.
    What is not checked here is checked in each step, before anything is sampled from it.
    """
    if rows := getattr(env, "rows", ()):
        return check_prompts(policy, env, range(min(count, len(rows))), max_new_tokens, num_answers)
    longest = check_prompts(policy, env, range(min(count, sample)), max_new_tokens, num_answers)
    try:
        policy.check_length(SPREAD * longest, max_new_tokens)
    except ValueError:
        return check_prompts(policy, env, range(count), max_new_tokens, num_answers)
    return longest
