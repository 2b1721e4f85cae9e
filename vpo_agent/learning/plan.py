"""Fits a training run into a device's memory: what it takes, and how many responses and prompts at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from vpo_agent.config import TrainConfig
from vpo_agent.policy.memory import (
    GRADIENT,
    Shape,
    drawing_bytes,
    forward_bytes,
    optimizer_bytes,
    sampling_cache_bytes,
    trained_parameters,
    update_bytes,
    weight_bytes,
)
from vpo_envs.wording import counted

GIGA = 1e9
USABLE = 0.9
"""Share of a device's memory that is planned with; the rest is for kernels, fragments and what formulas leave out."""
MOST_RESPONSES = 1024
"""Most responses sampled at the same time where the setting is ``"auto"``."""
LORA_RANK = 16
"""Rank of the adapters that a refusal proposes."""


class TooSmall(ValueError):
    """A run does not fit into the memory of a device."""


@dataclass(frozen=True)
class Plan:
    """The memory of a run, in bytes, and the sizes that fit."""

    memory: int
    """All memory of the device."""
    sample_batch: int
    """Responses sampled at the same time."""
    microbatch_prompts: int
    """Prompts of a backward pass."""
    weights: int
    """With adapters, and with the reference model of a KL penalty."""
    optimizer: int
    gradients: int
    cache: int
    drawing: int
    """Activations while sampling."""
    activations: int
    """Activations of the update."""

    @property
    def sampling(self) -> int:
        """The most that sampling takes, in bytes."""
        return self.weights + self.optimizer + self.cache + self.drawing

    @property
    def update(self) -> int:
        """The most that an update takes, in bytes."""
        return self.weights + self.optimizer + self.gradients + self.activations

    def table(self) -> str:
        """Return a table of both phases, in GB."""
        heads = ("GB", "weights", "optimizer", "gradients", "cache", "activations", "free")
        common = (self.weights, self.optimizer)
        rows = {
            "sampling": (*common, 0, self.cache, self.drawing, self.memory - self.sampling),
            "update": (*common, self.gradients, 0, self.activations, self.memory - self.update),
        }
        lines = ["  ".join([f"{heads[0]:<8}", *(f"{head:>11}" for head in heads[1:])])]
        lines += [
            "  ".join([f"{name:<8}", *(f"{value / GIGA:>11.1f}" if value else f"{'-':>11}" for value in values)])
            for name, values in rows.items()
        ]
        sizes = f"{counted(self.sample_batch, 'response')} and {counted(self.microbatch_prompts, 'prompt')}"
        return "\n".join([*lines, f"{sizes} at a time"])


def device_memory(device: torch.device) -> int | None:
    """Return the bytes of a GPU that this process has or can get; ``None`` for a CPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)


def plan_run(
    config: TrainConfig,
    shape: Shape,
    *,
    prompt: int,
    memory: int,
    on_gpu: bool = True,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Choose the largest batches that fit, up to what a step needs; settings that are numbers stay as they are.

    Every prompt is planned with ``prompt`` tokens, every response with ``max_new_tokens``. ``names`` are those of
    command-line options that differ from their settings.

    Raises:
        TooSmall: The run does not fit; the error names what does not, and the nearest settings that do.
    """
    try:
        return _fitting(config, shape, prompt, memory, on_gpu)
    except TooSmall as error:
        reason = str(error)
    for options in _with_shorter_evaluations(config, _alternatives(config)):
        changed = config.model_copy(update={"sample_batch": "auto", "microbatch_prompts": "auto", **options})
        try:
            found = _fitting(changed, shape, prompt, memory, on_gpu)
        except TooSmall:
            continue
        for name in ("sample_batch", "microbatch_prompts"):
            given, most = getattr(config, name), getattr(found, name)
            if given != "auto" and given > most:
                options[name] = most
        renamed = {names.get(name, name): value for name, value in options.items()}
        raise TooSmall(f"{reason}; it fits with {_shown(renamed)}")
    raise TooSmall(f"{reason}; none of the settings tried makes it fit: use a smaller model or a GPU with more memory")


def _alternatives(config: TrainConfig) -> Iterator[dict[str, Any]]:
    """Yield changes of settings that take ever less memory."""
    recomputed = {} if config.gradient_checkpointing else {"gradient_checkpointing": True}
    adapters = {} if config.lora_rank else {"lora_rank": LORA_RANK}
    yield from ({}, recomputed, adapters, {**adapters, **recomputed})
    rollouts, tokens = config.rollouts_per_prompt, config.max_new_tokens
    while rollouts > 2 or tokens > 64:
        rollouts, tokens = (rollouts // 2, tokens) if rollouts > 2 else (rollouts, tokens // 2)
        fewer = {"rollouts_per_prompt": rollouts, "max_new_tokens": tokens}
        shorter = {name: value for name, value in fewer.items() if value != getattr(config, name)}
        yield {**adapters, **recomputed, **shorter}


def _with_shorter_evaluations(config: TrainConfig, changes: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each change, and then with ever fewer answers of an evaluation, down to as many rollouts as in training."""
    for options in changes:
        yield options
        least = options.get("rollouts_per_prompt", config.rollouts_per_prompt) * config.answers_per_rollout
        answers = config.eval_answers
        while answers > least:
            answers = max(answers // 2, least)
            yield {**options, "eval_answers": answers}


def _shown(options: dict[str, Any]) -> str:
    return " ".join(
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in options.items()
    )


def _fitting(config: TrainConfig, shape: Shape, prompt: int, memory: int, on_gpu: bool) -> Plan:
    element = 4 if config.dtype == "float32" or (config.dtype == "auto" and not on_gpu) else 2
    rank, group, response = config.lora_rank, config.rollouts_per_prompt, config.max_new_tokens
    reference = element * shape.parameters if config.kl_coef and not rank else 0
    weights = weight_bytes(shape, element, rank) + reference
    optimizer = optimizer_bytes(shape, element, rank)
    gradients = GRADIENT * trained_parameters(shape, rank)

    def cache(prompts: int) -> int:
        if config.backend == "vllm":
            return int(config.gpu_memory_utilization * memory)
        return sampling_cache_bytes(
            shape, element, prompts=prompts, rows=rows(prompts), prompt=prompt, response=response, shared=not on_gpu
        )

    def rows(prompts: int) -> int:
        # An evaluation samples all responses to a prompt at the same time, too.
        return max(prompts * group, config.eval_rollouts)

    def drawing(prompts: int) -> int:
        reading = forward_bytes(shape, element, prompts * prompt)
        return max(drawing_bytes(shape, element, rows(prompts), on_gpu=on_gpu), reading)

    def activations(prompts: int) -> int:
        return update_bytes(
            shape,
            element,
            prompts=prompts,
            rollouts=group,
            prompt=prompt,
            response=response,
            on_gpu=on_gpu,
            rank=rank,
            checkpointing=config.gradient_checkpointing,
            reference=bool(config.kl_coef),
        )

    def planned(sampled: int, updated: int) -> Plan:
        return Plan(
            memory,
            sample_batch=sampled * group,
            microbatch_prompts=updated,
            weights=weights,
            optimizer=optimizer,
            gradients=gradients,
            cache=cache(sampled),
            drawing=drawing(sampled),
            activations=activations(updated),
        )

    def most(setting: int | str, upto: int, taken: Callable[[int], int], what: Callable[[int], str]) -> int:
        """Return the most prompts at a time that fit, at most ``upto``, or those of the setting."""
        upto = upto if setting == "auto" else min(upto, max(1, int(setting)))
        fit = bisect_right(range(1, upto + 1), USABLE * memory, key=taken)
        if not fit or (setting != "auto" and fit < upto):
            tried = upto if fit else 1
            raise TooSmall(
                f"{shape.name} does not fit into {memory / GIGA:.3g} GB, of which {USABLE:.0%} are planned with: "
                f"{what(tried)} takes {taken(tried) / GIGA:.1f} GB with weights and optimizer"
            )
        return fit

    def described(prompts: int) -> str:
        of_one = prompts * group < rows(prompts)
        whose = f" (those to a prompt of --eval-answers {config.eval_answers})" if of_one else ""
        return f"sampling {counted(rows(prompts), 'response')} at a time{whose}"

    steps = min(config.prompts_per_step, max(1, MOST_RESPONSES // group))
    asked = config.sample_batch if config.sample_batch == "auto" else config.sample_batch // group
    sampled = most(asked, steps, lambda n: planned(n, 1).sampling, described)
    updated = most(
        config.microbatch_prompts,
        config.minibatch_prompts or config.prompts_per_step,
        lambda n: planned(sampled, n).update,
        lambda n: f"updating on {counted(n, 'prompt')} with {counted(group, 'rollout')} each",
    )
    return planned(sampled, updated)
