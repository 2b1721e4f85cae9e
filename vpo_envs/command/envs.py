"""``vpo envs``: which environments there are, and what a task of one looks like."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from vpo_envs.command.show import (
    AnyTextEnv,
    CommandError,
    Example,
    cut,
    env_ids,
    good_example,
    make_text_env,
    poor_example,
    show_objectives,
    show_vector,
    text_env_ids,
    unparsable_reason,
)
from vpo_envs.core import Status


def list_envs() -> None:
    """Print the id and the objectives of each environment, one a line; those that take no text say so."""
    in_text = text_env_ids()
    ids = env_ids()
    width = max(map(len, ids))
    for env_id in ids:
        if env_id in in_text:
            print(f"{env_id:<{width}}  {show_objectives(make_text_env(env_id).objective_names)}")
        else:
            _, info = gym.make(env_id).reset(seed=0)
            print(f"{env_id:<{width}}  {show_objectives(info['objectives'])} (one action a step, not text)")


def show_env(env_id: str, index: int, env_kwargs: dict[str, Any]) -> None:
    """Print one prompt, a good answer and a poor one with their statuses and vectors.

    Raises:
        CommandError: An id, an index or arguments that do not work.
    """
    env = make_text_env(env_id, **env_kwargs)
    try:
        task = env.task(index)
    except (ValueError, RuntimeError) as error:
        raise CommandError(str(error)) from None
    print(f"{env_id}, task {index} of split {env.split}\n")
    print(cut(env.prompt(task, env.num_answers)))
    good = good_example(env, task)
    if good is None:
        print("\nA good answer is not known: the environment has neither an exact front nor demonstrations.")
    else:
        _show_example(env, task, "a good answer", good)
    _show_example(env, task, "a poor answer", poor_example(env, index))


def _show_example(env: AnyTextEnv, task: Any, title: str, example: Example) -> None:
    reason = f" ({unparsable_reason(env, example.answer)})" if example.status is Status.UNPARSABLE else ""
    print(f"\n{title}\n  {cut(example.answer).replace(chr(10), chr(10) + '  ') or '(empty)'}")
    print(f"{example.status.name.lower()}{reason}: {show_vector(env, task, example.vector)}")
