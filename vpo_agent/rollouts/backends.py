"""Generation backends: the native loop, or vLLM in the trainer's own process."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch

from vpo_agent.config import TrainConfig
from vpo_agent.policy.gguf_file import is_gguf
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import choose_device, choose_dtype, find_bundled
from vpo_agent.policy.samples import Sampler


def with_backend(config: TrainConfig) -> TrainConfig:
    """Return the settings with a backend in place of ``auto``, which is ``native``.

    Raises:
        ValueError: The settings name vLLM where it cannot sample.
    """
    if config.backend == "vllm" and (reason := why_not_vllm(config)):
        raise ValueError(f"backend=vllm cannot sample here, since {reason}: use backend native")
    return config.model_copy(update={"backend": "native"}) if config.backend == "auto" else config


def why_not_vllm(config: TrainConfig) -> str:
    """Return why vLLM cannot sample for a run, as part of a sentence; nothing if it can."""
    if find_spec("vllm") is None:
        return "vllm is not installed (it brings its own torch: install it in a separate environment)"
    if is_gguf(config.model):
        return f"vllm takes no GGUF file such as {config.model!r}"
    if (Path(find_bundled(config.model)) / "adapter_config.json").is_file():
        return f"vllm takes whole models, and {config.model!r} holds adapters"
    device = choose_device(config.device)
    if config.lora_rank and device.type == "cuda" and choose_dtype(config.dtype, device) == torch.float32:
        return "vllm takes no LoRA adapters in float32 on a GPU"
    return ""


def open_sampler(config: TrainConfig, policy: LMPolicy, max_model_len: int | None = None) -> Sampler:
    """Make the sampler of a run; no prompt and its response together may have more than ``max_model_len`` tokens."""
    if config.backend != "vllm":
        return policy
    from vpo_agent.rollouts.vllm import VLLMSampler

    return VLLMSampler(policy, config, max_model_len)
