"""The attention function of policies: that of transformers, or one for packed rows and shared prompts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vpo_envs.libraries import check_libraries

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
except ImportError:
    # Everything that uses a model imports this module, so a transformers that is too old is reported here.
    check_libraries()
    raise

from vpo_agent.policy.packing import Packed, packed_attention
from vpo_agent.policy.shared_prompts import SharedPrompts, shared_attention

ATTENTION = "vpo"
"""Name of the attention function."""


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packed: Packed | None = None,
    shared: SharedPrompts | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention over a packed row or over shared prompts; without either, that of transformers.

    The query is (rows, heads, tokens, width), keys and values are (rows, key heads, tokens, width). ``attention_mask``
    is not used with ``packed`` or ``shared``. Scores are scaled by 1 / sqrt(width) by default.

    Returns:
        (rows, tokens, heads, width), and ``None`` in place of the attention weights.

    Raises:
        NotImplementedError: ``packed`` or ``shared`` for an attention that is more than softmax over all tokens before.
    """
    if packed is None and shared is None:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return out
    for name in ("sliding_window", "softcap", "s_aux", "position_bias", "sinks"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"attention over packed rows or shared prompts does not support {name}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if packed is not None:
        return packed_attention(query, key, value, packed, scale), None
    assert shared is not None
    return shared_attention(query, key, value, shared, int(module.layer_idx), scale), None  # type: ignore[arg-type]


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
