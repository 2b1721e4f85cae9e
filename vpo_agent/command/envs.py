"""``vpo envs``: which environments there are, and what a task of one looks like."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import gymnasium as gym

from vpo_agent.command.show import (
    Example,
    good_example,
    poor_example,
    show_objectives,
    show_vector,
    unparsable_reason,
)
from vpo_envs.checking.conflict import objective_conflict
from vpo_envs.core import Status, UnknownFront, VectorTextEnv
from vpo_envs.registration import env_ids, env_type, make_text_env
from vpo_envs.scoring import AnyEnv

WORTH_INSTANCES = 16
"""Number of tasks on which the worth of a set and of the vector is measured."""


def list_envs() -> None:
    """Print the id and the objectives of each environment, one a line; those that take no text say so."""
    width = max(map(len, env_ids()))
    for env_id in env_ids():
        env: Any = gym.make(env_id).unwrapped
        if isinstance(env, VectorTextEnv):
            print(f"{env_id:<{width}}  {show_objectives(env.objective_names)}")
        else:
            _, info = env.reset(seed=0)
            print(f"{env_id:<{width}}  {show_objectives(info['objectives'])} (one action a step, not text)")


def show_env(env_id: str, index: int, env_kwargs: dict[str, Any]) -> None:
    """Print one prompt, a good answer and a poor one with their statuses and vectors.

    An environment that takes no text is shown with its spaces and the first state of an episode.

    Raises:
        ValueError: A bad id, index or argument.
    """
    if not issubclass(env_type(env_id), VectorTextEnv):
        _show_steps(env_id, index, env_kwargs)
        return
    env = make_text_env(env_id, **env_kwargs)
    try:
        task = env.task(index)
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    print(f"{env_id}, task {index} of split {env.split}\n")
    print(env.prompt(task, env.num_answers))
    good = good_example(env, task)
    if good is None:
        print("\nA good answer is not known: the environment has neither an exact front nor demonstrations.")
    else:
        _show_example(env, task, "a good answer", good)
    _show_example(env, task, "a poor answer", poor_example(env, index))
    with suppress(UnknownFront):
        print(f"\n{objective_conflict(env, WORTH_INSTANCES).headline}")


def _show_example(env: AnyEnv, task: Any, title: str, example: Example) -> None:
    reason = f" ({unparsable_reason(env, example.answer)})" if example.status is Status.UNPARSABLE else ""
    print(f"\n{title}\n  {example.answer.replace(chr(10), chr(10) + '  ') or '(empty)'}")
    print(f"{example.status.name.lower()}{reason}: {show_vector(env, task, example.vector)}")


def _show_steps(env_id: str, index: int, env_kwargs: dict[str, Any]) -> None:
    """Show an environment of ordinary multi-objective RL: one action a step, arrays for observations."""
    made_of = env_type(env_id)
    drawn = "ansi" in made_of.metadata["render_modes"]
    try:
        env = gym.make(env_id.rpartition(":")[2], **{**({"render_mode": "ansi"} if drawn else {}), **env_kwargs})
    except (TypeError, gym.error.Error) as error:
        raise ValueError(f"{env_id} cannot be made: {error}") from None
    _, info = env.reset(options={"index": index})
    about = (inspect.getdoc(made_of) or "").partition("\n")[0].replace("``", "")
    print(f"{env_id}: {about}\n\nobservation: {env.observation_space}\naction: {env.action_space}")
    print(f"reward: a vector of {show_objectives(info['objectives'])}")
    print("several at once: gym.make_vec without a vectorization_mode (Gymnasium's own take scalar rewards only)")
    if drawn:
        print(f"\n{env.render()}")
