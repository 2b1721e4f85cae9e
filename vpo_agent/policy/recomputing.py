"""Gradient checkpointing of a model that stays in evaluation mode.

Transformers recomputes layers only in training mode, which also turns dropout on. In policy optimisation dropout would
add noise to the ratio between the new policy and the one that sampled, so the layers are wrapped here instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def recompute_layers(model: torch.nn.Module) -> None:
    """Keep only the input of each layer of a Hugging Face model for the backward pass, which recomputes the rest.

    Raises:
        ValueError: The model does not mark layers that can be recomputed.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        name = type(model).__name__
        raise ValueError(f"{name} does not support gradient checkpointing: leave gradient_checkpointing out")
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # In evaluation mode nothing draws random numbers.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
