"""Samples the pool that ``vpo eval`` measures: from a run's checkpoint, any causal language model, or an endpoint."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from envs_data import BUNDLED_MODELS
from vpo_agent.config import check_room, env_options, read_run_config
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import EVAL_STREAM, different_tasks, fewer_tasks, sample_pool
from vpo_agent.policy.downloads import check_saved_model
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import base_of_adapters
from vpo_agent.policy.samples import MAX_RESPONSES, TextSampler
from vpo_agent.rollouts.collect import make_text_env, trainer_state
from vpo_agent.rollouts.endpoint import EndpointPolicy
from vpo_agent.rollouts.prompts import check_prompts
from vpo_agent.runs.targets import find_checkpoint, find_model, near_target, settings_of

DEFAULTS: dict[str, Any] = {
    "env_kwargs": {},
    "prompts": 200,
    "k": 30,
    "split": "test",
    "temperature": 1.0,
    "num_answers": 1,
    "max_new_tokens": 1024,
    "seed": 0,
    "device": "auto",
    "dtype": "auto",
    "sample_batch": "auto",
    "thinking": "off",
    "date": None,
}
"""The options of ``vpo eval`` for a model that is not a run's."""


OF_THE_RUN = {"env", "env_kwargs", "max_new_tokens", "seed", "device", "dtype", "sample_batch", "thinking", "date"}
"""Settings of a run that its evaluation shares."""


def sample_run(folder: Path, given: Mapping[str, Any]) -> Pool:
    """Sample a pool from a checkpoint of the run in ``folder``; the options ``given`` override its settings.

    The checkpoint is a step, ``"base"`` for the model before training, or the newest by default. With all settings of
    the run, the pool equals the pool of the run's evaluation after training.
    """
    if "env" in given:
        raise ValueError(
            f"{str(folder)!r} is a run, which has its own environment: leave --env out, or give a checkpoint"
        )
    config = read_run_config(folder, stated=given.get("env_kwargs", ()))
    model: str | Path = config.model
    step, checkpoint = 0, given.get("checkpoint")
    if checkpoint != "base":
        step, model = find_checkpoint(folder, checkpoint, "give --checkpoint base, or train it")
    base = config.model if checkpoint == "base" else base_of_adapters(str(model))
    if base is not None:
        check_saved_model(base, f"the run in {str(folder)!r}")
    defaults = {
        **config.model_dump(include=OF_THE_RUN),
        "split": config.eval_split,
        "num_answers": config.max_answers,
        "temperature": config.eval_temperature,
    }
    trained = config.model_dump(mode="json", include={"model", "method", "method_options"})
    origin = {"run": folder.resolve().name, **trained, "step": step}
    state = partial(trainer_state, step, config.steps)
    return _sample(given, defaults, origin, model, scalar_weights=config.scalar_weights, state=state)


def sample_model(model: str, given: Mapping[str, Any]) -> Pool:
    """Sample a pool from any causal language model: a bundled one, a folder, a GGUF file, or a name on the Hub."""
    path = find_model(model)
    if "env" not in given:
        example, hint = "--env, such as --env vpo/Maze-v0", near_target(model)
        if model in BUNDLED_MODELS:
            made_for, hint = settings_of(model), ""
            options = env_options(made_for["env"], made_for["env_kwargs"])
            example = shlex.join([*options, "--max-new-tokens", str(made_for["max_new_tokens"])])
        raise ValueError(
            f"{model!r} is neither a run nor a sample file: {hint}to evaluate it as a model, add {example}"
        )
    if "checkpoint" in given:
        raise ValueError(f"--checkpoint needs a run, and {model!r} is not one: give the checkpoint's folder instead")
    return _sample(given, {}, {"model": model}, path)


def sample_endpoint(policy: EndpointPolicy, given: Mapping[str, Any]) -> Pool:
    """Sample a pool from a model behind an endpoint."""
    return _sample(given, {}, {}, policy)


def _sample(
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    origin: Mapping[str, Any],
    model: str | Path | EndpointPolicy,
    scalar_weights: list[float] | None = None,
    state: Callable[[], Any] | None = None,
) -> Pool:
    """Sample from an endpoint, or load a model and check that the prompts of the tasks fit into its context.

    ``state`` returns the ``transformers.TrainerState`` of the run that the model is from.
    """
    chosen = {**DEFAULTS, **defaults, **given}
    env_kwargs = {**defaults.get("env_kwargs", {}), **given.get("env_kwargs", {})}
    for name in ("split", "num_answers"):
        if name in env_kwargs:
            raise ValueError(f"--env-kwargs must not hold {name!r}: give --{name.replace('_', '-')}")
    check_room(chosen["num_answers"], chosen["max_new_tokens"])
    env = make_text_env(chosen["env"], **env_kwargs, split=chosen["split"], num_answers=chosen["num_answers"])
    env.check_scorers()
    indices = different_tasks(env, chosen["prompts"])
    if fewer := fewer_tasks(env, indices, chosen["prompts"]):
        print(fewer)
    source = {**origin, "seed": chosen["seed"]}
    policy: TextSampler
    if isinstance(model, EndpointPolicy):
        policy = model
        env.set_trainer(None, state)
    else:
        policy = local = LMPolicy.from_pretrained(
            model,
            device=chosen["device"],
            dtype=chosen["dtype"],
            thinking=chosen["thinking"] == "on",
            date=chosen["date"],
        )
        env.set_trainer(local.chat.encode_texts, state)
        check_prompts(local, env, indices, chosen["max_new_tokens"])
        source["dtype"] = str(local.dtype).removeprefix("torch.")
        source |= {"thinking": chosen["thinking"]} if local.chat.thinks else {}
        source |= {"date": local.chat.date} if local.chat.date else {}
    return sample_pool(
        env,
        policy,
        indices,
        rollouts=-(-chosen["k"] // chosen["num_answers"]),
        max_new_tokens=chosen["max_new_tokens"],
        temperature=chosen["temperature"],
        seed=[chosen["seed"], EVAL_STREAM],
        sample_batch=MAX_RESPONSES if chosen["sample_batch"] == "auto" else chosen["sample_batch"],
        scalar_weights=scalar_weights,
        source=source,
        label="sampling",
    )
