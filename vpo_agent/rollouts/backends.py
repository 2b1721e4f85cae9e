"""The registry of sampling backends: the native loop, vLLM in the trainer's own process, and users' own backends."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch

from vpo_agent.config import BACKENDS, TrainConfig
from vpo_agent.policy.gguf_file import is_gguf
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.samples import Sampler

OpenSampler = Callable[[LMPolicy, TrainConfig, ModelChoice, int | None], Sampler]
"""Makes the sampler of a run from its policy, whose weights change in place, its settings, its base, and the
most tokens that a prompt and its response have together (``None`` if unknown)."""
WhyNot = Callable[[TrainConfig, ModelChoice], str]
"""Returns why a backend cannot sample for a run, from its settings and its base, as part of a sentence; an
empty text if it can."""


class Backend(NamedTuple):
    """A registered backend."""

    open_sampler: OpenSampler
    why_not: WhyNot


def can_always_sample(config: TrainConfig, choice: ModelChoice) -> str:
    """Return an empty text: nothing keeps a backend from sampling."""
    return ""


def why_not_vllm(config: TrainConfig, choice: ModelChoice) -> str:
    """Return why vLLM cannot sample for a run, as part of a sentence; nothing if it can."""
    if find_spec("vllm") is None:
        return "vllm is not installed (it brings its own torch: install it in a separate environment)"
    if is_gguf(choice.path):
        return f"vllm takes no GGUF file such as {choice.name!r}"
    if (Path(choice.path) / "adapter_config.json").is_file():
        return f"vllm takes whole models, and {choice.name!r} holds adapters"
    if config.lora_rank and choice.device.type == "cuda" and choice.dtype == torch.float32:
        return "vllm takes no LoRA adapters in float32 on a GPU"
    return ""


def _open_vllm(policy: LMPolicy, config: TrainConfig, choice: ModelChoice, max_model_len: int | None) -> Sampler:
    from vpo_agent.rollouts.vllm import VLLMSampler

    return VLLMSampler(policy, config, choice, max_model_len)


_REGISTRY = {
    "native": Backend(lambda policy, config, choice, max_model_len: policy, can_always_sample),
    "vllm": Backend(_open_vllm, why_not_vllm),
}


def register_backend(name: str, open_sampler: OpenSampler, *, why_not: WhyNot = can_always_sample) -> None:
    """Register a sampling backend, which the setting ``backend`` then selects by its name.

    Args:
        name: A new name.
        open_sampler: Makes the sampler of a run from the policy, the settings, the base and the largest number of
            tokens of a prompt with its response. The policy's weights change in place; before each call of
            ``sample_batch`` the engine must have them.
        why_not: Returns why the backend cannot sample for a run, from its settings and its base, as part of a
            sentence; an empty text if it can.

    Raises:
        ValueError: The name is taken.
    """
    if name in ("auto", *BACKENDS):
        raise ValueError(f"the backend {name!r} is registered already: choose another name")
    _REGISTRY[name] = Backend(open_sampler, why_not)
    BACKENDS.append(name)


def with_backend(config: TrainConfig, choice: ModelChoice) -> TrainConfig:
    """Return the settings with a backend in place of ``auto``, which is ``native``.

    Raises:
        ValueError: The settings name a backend that cannot sample for them.
    """
    if config.backend == "auto":
        return config.model_copy(update={"backend": "native"})
    if reason := _REGISTRY[config.backend].why_not(config, choice):
        raise ValueError(f"backend={config.backend} cannot sample here, since {reason}: use backend native")
    return config


def open_sampler(
    config: TrainConfig, policy: LMPolicy, choice: ModelChoice, max_model_len: int | None = None
) -> Sampler:
    """Make the sampler of a run; no prompt and its response together may have more than ``max_model_len`` tokens."""
    return _REGISTRY[config.backend].open_sampler(policy, config, choice, max_model_len)
