"""Generation backends: the native loop or vLLM."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from vpo_agent.config import Backend
from vpo_agent.policy.gguf_file import is_gguf

if TYPE_CHECKING:
    from vpo_agent.policy.language_model import LMPolicy
    from vpo_agent.policy.samples import Sampler


def check_backend(backend: Backend) -> None:
    """Raise ValueError if a backend is not installed."""
    if backend == "vllm" and find_spec("vllm") is None:
        raise ValueError(
            "backend=vllm needs the package vllm, which brings its own torch: pip install 'vllm>=0.22' in a separate "
            "environment, or use backend native"
        )


def open_sampler(backend: Backend, policy: LMPolicy, *, model: str, gpu_memory_utilization: float = 0.5) -> Sampler:
    """Make the sampler that generates from ``policy``.

    Args:
        backend: Name of the backend.
        policy: The trained model; each call samples from its current weights.
        model: Folder or name of the initial model, from which vLLM reads the architecture.
        gpu_memory_utilization: Share of the GPU's memory that vLLM uses while it generates, in (0, 1].

    Raises:
        ValueError: The backend is not installed or does not support this model.
    """
    check_backend(backend)
    if backend == "vllm" and is_gguf(model):
        raise ValueError(f"backend=vllm takes no GGUF file such as {model!r}: use backend native")
    if backend == "vllm":
        from vpo_agent.rollouts.backends.vllm_engine import VLLMSampler

        return VLLMSampler(policy, model, gpu_memory_utilization=gpu_memory_utilization)
    return policy
