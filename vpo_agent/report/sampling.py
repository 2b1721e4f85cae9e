"""Sampling the pool that ``vpo eval`` measures, from a checkpoint of a run or from any causal language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpo_agent.config import TrainConfig, check_room, read_run_config
from vpo_agent.pareto.pool import Pool
from vpo_agent.pareto.sampling import sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.report.figures import read_pairs
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.rollouts.prompts import check_prompts
from vpo_agent.runs.targets import models_of
from vpo_agent.trainer import EVAL_STREAM

PROMPTS, K = 200, 30


@dataclass(frozen=True)
class SamplingOptions:
    """The options of ``vpo eval``; ``None`` stands for the run's own setting, or the usual one."""

    env: str | None = None
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    """A step, or ``"initial"`` for the model before training; the newest checkpoint by default."""
    k: int = K
    prompts: int = PROMPTS
    split: str | None = None
    temperature: float | None = None
    num_answers: int | None = None
    max_new_tokens: int | None = None
    seed: int | None = None
    device: str | None = None
    sample_batch: int | None = None
    pairs: str | None = None
    """Only checked here: a mistake should not surface after a long time of sampling."""


def sample_run(folder: Path, options: SamplingOptions) -> Pool:
    """Sample a pool from a checkpoint of the run in ``folder``, with the run's own settings by default.

    With the run's own settings throughout, the pool equals that of the run's evaluation after training.

    Raises:
        ValueError: There is no such checkpoint, or an option does not fit.
    """
    if options.env is not None:
        raise ValueError(f"{str(folder)!r} is a run and knows its environment: leave --env out, or give its checkpoint")
    config = read_run_config(folder)
    model, step = find_checkpoint(folder, config, options.checkpoint)
    defaults = {
        **config.model_dump(include={"env", "env_kwargs", "max_new_tokens", "seed", "device", "sample_batch"}),
        "split": config.eval_split,
        "num_answers": config.answers_per_rollout,
        "temperature": config.eval_temperature,
    }
    trained = config.model_dump(mode="json", include={"model", "method", "method_options"})
    origin = {"run": folder.resolve().name, **trained, "step": step}
    return _sample(model, options, defaults, origin, dtype=config.dtype, scalar_weights=config.scalar_weights)


def sample_model(model: str, options: SamplingOptions) -> Pool:
    """Sample a pool from any causal language model: a bundled one, a folder, or a name on the Hugging Face Hub.

    Raises:
        ValueError: No environment is named, or the model cannot be loaded.
    """
    if options.env is None:
        found = "holds no run and no pool" if Path(model).exists() else "is no run, no pool and no folder here"
        raise ValueError(f"{model!r} {found}: to sample from it as a model give --env, such as vpo/Maze-v0")
    if options.checkpoint is not None:
        raise ValueError(f"--checkpoint needs a run, and {model!r} is not one: give the checkpoint's folder instead")
    defaults = {
        "env_kwargs": {},
        "split": "test",
        "num_answers": 1,
        "temperature": 1.0,
        "max_new_tokens": 1024,
        "seed": 0,
        "device": "auto",
        "sample_batch": 1024,
    }
    return _sample(model, options, defaults, {"model": model}, dtype="auto", scalar_weights=None)


def find_checkpoint(folder: Path, config: TrainConfig, wanted: str | None) -> tuple[str, int]:
    """Return the model of a run to load, and the number of steps behind it.

    Raises:
        ValueError: There is no such checkpoint.
    """
    if wanted == "initial":
        return config.model, 0
    found = models_of(folder)
    if wanted is None:
        if not found:
            raise ValueError(f"the run {str(folder)!r} has no checkpoint yet: give --checkpoint initial, or train it")
        return str(found[max(found)]), max(found)
    if not wanted.isdecimal() or int(wanted) not in found:
        there = f"it has {', '.join(map(str, found))} and initial" if found else "it has none, only initial"
        raise ValueError(f"the run {str(folder)!r} has no checkpoint {wanted!r}: {there}")
    return str(found[int(wanted)]), int(wanted)


def _sample(
    model: str,
    options: SamplingOptions,
    defaults: Mapping[str, Any],
    origin: Mapping[str, Any],
    *,
    dtype: str,
    scalar_weights: list[float] | None,
) -> Pool:
    chosen = {**defaults, **{name: value for name, value in vars(options).items() if value is not None}}
    env_kwargs = {**defaults["env_kwargs"], **options.env_kwargs}
    for name in ("split", "num_answers"):
        if name in env_kwargs:
            raise ValueError(f"--env-kwargs must not hold {name!r}: give --{name.replace('_', '-')}")
    check_room(chosen["num_answers"], chosen["max_new_tokens"])
    env = make_text_env(chosen["env"], **env_kwargs, split=chosen["split"], num_answers=chosen["num_answers"])
    if options.pairs is not None:
        read_pairs(options.pairs, env.objective_names)
    policy = LMPolicy.from_pretrained(model, device=chosen["device"], dtype=dtype)
    tasks = {index: env.task(index) for index in range(options.prompts)}
    check_prompts(policy, env, tasks, chosen["max_new_tokens"])
    return sample_pool(
        env,
        policy,
        range(options.prompts),
        rollouts=-(-options.k // chosen["num_answers"]),
        max_new_tokens=chosen["max_new_tokens"],
        temperature=chosen["temperature"],
        seed=[chosen["seed"], EVAL_STREAM],
        sample_batch=chosen["sample_batch"],
        scalar_weights=scalar_weights,
        source={**origin, "seed": chosen["seed"]},
    )
