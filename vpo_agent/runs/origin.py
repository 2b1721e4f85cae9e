"""The environment behind a saved pool, recreated from the pool's source."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from vpo_agent.measure.pool import Pool
from vpo_envs import VectorTextEnv
from vpo_envs.registration import make_text_env, saved_env

AnyEnv = VectorTextEnv[Any, Any, Any]


def environment_of(pool: Pool, name: str) -> tuple[AnyEnv | None, str]:
    """Make the environment that the pool was sampled from; return it, or ``None`` and the reason why it is unavailable.

    Raises:
        ValueError: The pool's shape does not fit its environment. ``name`` is what the message calls the pool.
    """
    env_id = pool.source.get("env")
    if not isinstance(env_id, str):
        return None, "the pool does not state its environment"
    m = pool.rewards.shape[2]
    try:
        env_id = saved_env(env_id)
        kwargs = {**(pool.source.get("env_kwargs") or {}), "split": pool.source.get("split", "test")}
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
    return env, ""


def same_instances(pool: Pool, env: AnyEnv) -> bool:
    """Whether the environment still makes the instances that the pool was sampled from."""
    if "tasks" not in pool.source:
        return True
    hashes = "".join(env.task(int(index)).content_hash() for index in pool.indices)
    return bool(pool.source["tasks"] == blake2b(hashes.encode(), digest_size=16).hexdigest())
