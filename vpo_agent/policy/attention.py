"""The attention function of policies: transformers' own, or one for packed rows, shared prompts or recorded steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vpo_envs.common.libraries import check_libraries

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
except ImportError:
    # Everything that uses a model imports this module, so a transformers that is too old is reported here.
    check_libraries()
    raise

from vpo_agent.policy.graph_rows import Step
from vpo_agent.policy.packing import Packed
from vpo_agent.policy.shared_prompts import SharedPrompts

ATTENTION = "vpo"
"""Name of the attention function."""


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    ours: Packed | SharedPrompts | Step | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention by ``ours``, such as a packed row; without it, that of transformers.

    The query is (rows, heads, tokens, width), keys and values are (rows, key heads, tokens, width); the result is
    (rows, tokens, heads, width). ``attention_mask`` is not used with ``ours``.
    """
    if ours is None:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return out
    for name in ("sliding_window", "softcap", "s_aux", "position_bias", "sinks"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"attention over packed or shared rows does not support {name}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return ours.attend(query, key, value, layer, scale), None


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
