"""Gradient checkpointing of a model that stays in evaluation mode.

Transformers recomputes layers in training mode alone, in which many layers also drop states out. In policy optimisation
dropout would make the ratio of the new policy to the one that sampled noise, so the layers are wrapped here instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def recompute_layers(model: torch.nn.Module) -> None:
    """Keep only the input of each layer for the backward pass, which computes the rest again.

    Args:
        model: A Hugging Face model; its layers are changed in place.

    Raises:
        ValueError: The model does not mark its layers as ones that can be recomputed.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(f"gradient_checkpointing is not possible with a {type(model).__name__}: leave it out")
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # Nothing in evaluation mode draws random numbers.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
