"""Sampling a pool: a policy answers held-out prompts, and the environment scores the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.progress import progress
from vpo_envs import UnknownFront
from vpo_envs.common.wording import counted
from vpo_envs.core import AnyEnv, Task, turns_of
from vpo_envs.registration import make_text_env, saved_env

if TYPE_CHECKING:
    from vpo_agent.policy.samples import TextSampler


SCORED_PARTS = 20
"""Parts in which answers are scored, between which progress is shown."""
T = TypeVar("T")
EVAL_STREAM = 1
"""Second number of the seed of an evaluation's samples; training has 0."""


def different_tasks(env: AnyEnv, count: int, least: int = 2) -> list[int]:
    """Return the indices of the first ``count`` different tasks of the environment's split.

    A data set may hold fewer different tasks than ``count``. All of them are returned then, since the same task asked
    twice shows nothing new. If there are fewer than ``least`` different tasks, the first ``least`` indices are
    returned.
    """
    rows = getattr(env, "rows", ())
    if not rows:
        return list(range(count))
    first: dict[str, int] = {}
    for index, task in enumerate(rows):
        if len(first) == count:
            break
        first.setdefault(task.canonical, index)
    return list(first.values()) if len(first) >= min(least, count) else list(range(min(least, count)))


def fewer_tasks(env: AnyEnv, indices: Sequence[int], count: int) -> str:
    """Say that a split has fewer tasks than the ``count`` that was asked for; empty if it has enough."""
    if len(indices) >= count:
        return ""
    return f"the split {env.split} has {counted(len(indices), 'task')}, so all of them are used instead of {count}"


def sample_pool(
    env: AnyEnv,
    sampler: TextSampler,
    indices: Sequence[int],
    *,
    rollouts: int,
    max_new_tokens: int,
    temperature: float,
    seed: Sequence[int],
    num_answers: int | None = None,
    sample_batch: int = 1024,
    scalar_weights: Sequence[float] | None = None,
    source: Mapping[str, Any] | None = None,
    scorer_threads: int = 0,
    label: str | None = None,
) -> Pool:
    """Sample and score responses to tasks, and compute the exact front of each if the environment can.

    Args:
        env: The environment.
        sampler: A local policy or a model behind an endpoint, which answers.
        indices: Tasks of the environment's split by index, N.
        rollouts: Responses to each task, R.
        max_new_tokens: Longest response, in tokens.
        temperature: Sampling temperature, above 0.
        seed: Numbers that key the samples.
        num_answers: Answers in a response, m; the environment's by default.
        sample_batch: Responses sampled at the same time, at most.
        scalar_weights: Fixed weights of the scalar reward, (d,); the task's own by default.
        source: Entries to add to :attr:`Pool.source`.
        scorer_threads: Threads that score the answers; with 0, this thread does.
        label: Name of the progress bars; there are none without.

    Raises:
        ValueError: A prompt and its response do not fit into the model's context.
        BackendFailed: The sampling engine failed.
        EndpointError: The endpoint cannot be reached, refuses a request or keeps failing.
        OutOfMemory: The responses to one prompt do not fit into the device's memory.
    """
    # Torch is slow to import, and a saved pool is read without it.
    from vpo_agent.rollouts.collect import score

    m = num_answers or env.num_answers
    tasks = [env.task(index) for index in indices]
    prompts = [env.chat_prompt(task, m) for task in tasks]
    responses = sampler.sample(
        prompts,
        rollouts=rollouts,
        num_answers=m,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        sample_batch=sample_batch,
        turns=turns_of(env, tasks, [m] * len(tasks)),
        label=label,
    )
    texts = responses.texts
    scored, size = [], -(-len(tasks) // SCORED_PARTS)
    for first in _with_progress(range(0, len(tasks), size), label, "scoring"):
        tasks_of_part = tasks[first : first + size]
        texts_of_part = texts[first * rollouts : (first + size) * rollouts]
        scored.append(
            score(
                env,
                tasks_of_part,
                texts_of_part,
                rollouts=rollouts,
                num_answers=np.full(len(tasks_of_part), m),
                scorer_threads=scorer_threads,
            )
        )
    rewards = np.concatenate([part_rewards for part_rewards, _ in scored])
    status = np.concatenate([part_status for _, part_status in scored])
    active = np.stack([env.active(task) for task in tasks])
    if scalar_weights is None:
        fixed = np.stack([env.fixed_weights(task) for task in tasks])
    else:
        fixed = np.asarray(scalar_weights, dtype=np.float64) * active
        fixed = fixed / fixed.sum(axis=1, keepdims=True)
    exact: tuple[Floats, ...] | None = None
    with suppress(UnknownFront):
        exact = tuple(
            np.array([point.vector for point in env.front(task)], dtype=np.float64)
            for task in _with_progress(tasks, label, "exact fronts")
        )
    return Pool(
        rewards=rewards,
        status=status,
        active=active,
        scalar_weights=fixed,
        indices=np.array(indices, dtype=np.int64),
        objectives=env.objective_names,
        fronts=exact,
        responses=tuple(tuple(texts[first : first + rollouts]) for first in range(0, len(texts), rollouts)),
        tokens=None if responses.tokens is None else responses.tokens.reshape(len(tasks), rollouts),
        tasks=tuple(hash_of_task(task) for task in tasks),
        source={
            **_environment_source(env, m),
            "tasks": _digest("".join(task.content_hash() for task in tasks)),
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            **(source or {}),
            **responses.origin,
        },
    )


def _environment_source(env: AnyEnv, num_answers: int) -> dict[str, Any]:
    """Return the entries of :attr:`Pool.source` that describe the environment.

    Its id and arguments are unknown if it was not made by ``gym.make``.
    """
    settings = {"split": env.split, "num_answers": num_answers}
    if env.spec is None:
        return settings
    kwargs = {name: value for name, value in env.spec.kwargs.items() if name not in (*settings, "render_mode")}
    return {"env": env.spec.id, "env_kwargs": kwargs, **settings}


def _with_progress(items: Sequence[T], label: str | None, phase: str) -> Iterable[T]:
    return progress(items, f"{label}: {phase}", "part") if label else items


def hash_of_task(task: Task) -> str:
    """Return the entry of :attr:`Pool.tasks` for a task: 16 hexadecimal digits, equal where ``task.canonical`` is."""
    return _digest(task.canonical, size=8)


def _digest(text: str, size: int = 16) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def environment_of(pool: Pool, name: str, *, same_tasks: bool = False) -> tuple[AnyEnv | None, str]:
    """Make the environment that the pool was sampled from; return it, or ``None`` and why it is unavailable.

    With ``same_tasks`` it is unavailable if it no longer makes the tasks that the pool was sampled from.
    """
    env_id = pool.source.get("env")
    if not isinstance(env_id, str):
        return None, "the sample file does not state its environment"
    m = pool.rewards.shape[2]
    try:
        kwargs = {**(pool.source.get("env_kwargs") or {}), "split": pool.source.get("split", "test")}
        env_id = saved_env(env_id, kwargs)
        env = make_text_env(env_id, **kwargs, num_answers=m)
    except ValueError as error:
        return None, str(error)
    if pool.objectives != env.objective_names:
        raise ValueError(
            f"{name} has the {len(pool.objectives)} objectives {', '.join(pool.objectives)}, but {env_id} has "
            f"{', '.join(env.objective_names)}: it is from another environment, or from another version of it"
        )
    stated = pool.source.get("num_answers", m)
    if stated != m:
        raise ValueError(
            f"{name} says that a rollout in {env_id} holds {stated} answers, but its rewards of shape "
            f"{pool.rewards.shape} hold {m}: sample it again"
        )
    if same_tasks and "tasks" in pool.source:
        try:
            hashes = "".join(env.task(int(index)).content_hash() for index in pool.indices)
        except ValueError as error:
            return None, str(error)
        if pool.source["tasks"] != _digest(hashes):
            return None, "the environment makes other tasks now than when the answers were sampled"
    return env, ""
