"""Sampling the pool that ``vpo eval`` measures: from a checkpoint of a run, or from any causal language model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpo_agent.config import TrainConfig, read_run_config
from vpo_agent.pareto.pool import Pool
from vpo_agent.pareto.sampling import sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.report.figures import read_pairs
from vpo_agent.rollouts.collect import make_text_env
from vpo_agent.rollouts.prompts import check_prompts
from vpo_agent.runs.targets import models_of
from vpo_agent.trainer import EVAL_STREAM

MAX_NEW_TOKENS = 1024
PROMPTS, K = 200, 30


@dataclass(frozen=True)
class SamplingOptions:
    """What a user may decide; ``None`` is the run's own setting, or the usual one."""

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
    """Checked here as well, since sampling may take long."""


def sample_run(folder: Path, options: SamplingOptions) -> Pool:
    """Sample a pool from a checkpoint of the run in ``folder``, with the run's own settings where none is given.

    With no option but those it gives the pool of the run's own evaluation after training again.

    Raises:
        ValueError: There is no such checkpoint, or an option does not fit.
    """
    if options.env is not None:
        raise ValueError(f"{str(folder)!r} is a run and knows its environment: leave --env out, or give its checkpoint")
    config = read_run_config(folder)
    model, step = find_checkpoint(folder, config, options.checkpoint)
    origin = {
        "run": folder.resolve().name,
        **config.model_dump(mode="json", include={"model", "method", "method_options"}),
        "step": step,
    }
    return _sample(
        model,
        env=config.env,
        env_kwargs={**config.env_kwargs, **options.env_kwargs},
        split=options.split or config.eval_split,
        num_answers=options.num_answers or config.answers_per_rollout,
        temperature=config.eval_temperature if options.temperature is None else options.temperature,
        max_new_tokens=options.max_new_tokens or config.max_new_tokens,
        seed=config.seed if options.seed is None else options.seed,
        device=options.device or config.device,
        dtype=config.dtype,
        sample_batch=options.sample_batch or config.sample_batch,
        scalar_weights=config.scalar_weights,
        options=options,
        origin=origin,
    )


def sample_model(model: str, options: SamplingOptions) -> Pool:
    """Sample a pool from any causal language model: a bundled one, a folder, or a name on the Hugging Face Hub.

    Raises:
        ValueError: No environment is named, or the model cannot be loaded.
    """
    if options.env is None:
        found = "holds no run and no pool" if Path(model).exists() else "is no run, no pool and no folder here"
        raise ValueError(f"{model!r} {found}: to sample from it as a model give --env, such as vpo/Maze-v0")
    if options.checkpoint is not None:
        raise ValueError(f"--checkpoint chooses one of a run's, and {model!r} is no run: give the checkpoint's folder")
    return _sample(
        model,
        env=options.env,
        env_kwargs=options.env_kwargs,
        split=options.split or "test",
        num_answers=options.num_answers or 1,
        temperature=1.0 if options.temperature is None else options.temperature,
        max_new_tokens=options.max_new_tokens or MAX_NEW_TOKENS,
        seed=options.seed or 0,
        device=options.device or "auto",
        dtype="auto",
        sample_batch=options.sample_batch or 1024,
        scalar_weights=None,
        options=options,
        origin={"model": model},
    )


def find_checkpoint(folder: Path, config: TrainConfig, wanted: str | None) -> tuple[str, int]:
    """The model of a run to load, and after how many steps it is from.

    Raises:
        ValueError: There is no such checkpoint.
    """
    if wanted == "initial":
        return config.model, 0
    found = models_of(folder)
    there = f"it has {', '.join(map(str, found))} and initial" if found else "it has none, only initial"
    if wanted is None:
        if not found:
            raise ValueError(f"the run {str(folder)!r} has no checkpoint yet: give --checkpoint initial, or train it")
        return str(found[max(found)]), max(found)
    if not wanted.isdecimal() or int(wanted) not in found:
        raise ValueError(f"the run {str(folder)!r} has no checkpoint {wanted!r}: {there}")
    return str(found[int(wanted)]), int(wanted)


def _sample(
    model: str,
    *,
    env: str,
    env_kwargs: dict[str, Any],
    split: str,
    num_answers: int,
    temperature: float,
    max_new_tokens: int,
    seed: int,
    device: str,
    dtype: str,
    sample_batch: int,
    scalar_weights: list[float] | None,
    options: SamplingOptions,
    origin: dict[str, Any],
) -> Pool:
    for name in ("split", "num_answers"):
        if name in env_kwargs:
            raise ValueError(f"--env-kwargs must not hold {name!r}: give --{name.replace('_', '-')}")
    made = make_text_env(env, **env_kwargs, split=split, num_answers=num_answers)
    if options.pairs is not None:
        read_pairs(options.pairs, made.objective_names)
    policy = LMPolicy.from_pretrained(model, device=device, dtype=dtype)
    check_prompts(policy, made, {index: made.task(index) for index in range(options.prompts)}, max_new_tokens)
    return sample_pool(
        made,
        policy,
        range(options.prompts),
        rollouts=-(-options.k // num_answers),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=[seed, EVAL_STREAM],
        sample_batch=sample_batch,
        scalar_weights=scalar_weights,
        source={**origin, "seed": seed},
    )
