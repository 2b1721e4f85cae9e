"""The attention function that models get here: their usual one, but where tokens are laid out differently."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vpo_agent.libraries import check_libraries

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
except ImportError:
    # Whatever works with a model comes by here: a transformers that is too old is said in one sentence.
    check_libraries()
    raise

from vpo_agent.policy.packing import Packed, packed_attention
from vpo_agent.policy.shared_prompts import SharedPrompts, shared_attention

ATTENTION = "vpo"
"""Its name."""


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
    """Attention over a packed row, or over shared prompts; with neither, that of transformers.

    Args:
        module: The attention layer.
        query: (rows, heads, tokens, width).
        key: (rows, key heads, tokens, width).
        value: (rows, key heads, tokens, width).
        attention_mask: Not used for a packed row and shared prompts.
        packed: The layout of a packed row, see `vpo_agent.policy.packing`.
        shared: Prompts that stand apart from the rows, see `vpo_agent.policy.shared_prompts`.
        scaling: Of the scores; 1 / sqrt(width) where ``None``.
        **kwargs: Whatever else a model hands over.

    Returns:
        (rows, tokens, heads, width), and ``None`` in place of the attention weights.

    Raises:
        NotImplementedError: Another layout, and an attention that is more than softmax over all tokens before.
    """
    if packed is None and shared is None:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return out
    for name in ("sliding_window", "softcap", "s_aux", "position_bias", "sinks"):
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"attention over another layout does not know {name}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if packed is not None:
        return packed_attention(query, key, value, packed, scale), None
    assert shared is not None
    return shared_attention(query, key, value, shared, int(module.layer_idx), scale), None  # type: ignore[arg-type]


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
