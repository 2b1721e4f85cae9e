"""Log-probabilities of given tokens from the states before the model's head, without storing the logits.

The logits of a batch would be its largest tensor by far: 4 bytes per token and entry of the vocabulary, several times
in the backward pass. Here they exist for one tile of tokens at a time. The backward pass recomputes them, at the cost
of one more matrix product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

TILE_TOKENS_CPU = 256
"""Tokens per tile on a CPU: a tile should fit into a core's cache."""
TILE_TOKENS_GPU = 1024
"""Tokens per tile on a GPU: a tile should keep the device busy. Neither time nor memory was measured on a GPU."""


def token_log_probs(
    states: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    chosen: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute the log-probabilities of the tokens ``chosen`` under softmax((states · weight + bias) / temperature).

    Args:
        states: (n, width); without a weight the logits themselves, (n, vocabulary).
        weight: Weight of the head, (vocabulary, width); ``None`` if ``states`` are logits.
        bias: Bias of the head, (vocabulary,), or ``None``.
        chosen: (n,), int64.
        temperature: > 0.
        entropy: Also compute the entropy of the distributions.

    Returns:
        Log-probabilities (n,), float32, differentiable with respect to states, weight and bias; and the entropies (n,),
        float32, without gradient.
    """
    apply: Any = _TokenLogProbs.apply
    log_probs, entropies = apply(states, weight, bias, chosen, temperature, entropy)
    return log_probs, entropies if entropy else None


class _TokenLogProbs(torch.autograd.Function):
    """The gradient of the logits is that of cross-entropy: (one-hot of the token - probabilities) / temperature."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        chosen: Tensor,
        temperature: float,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(states, weight, bias, chosen)
        ctx.temperature = temperature
        log_probs = states.new_empty(len(states), dtype=torch.float32)
        entropies = torch.empty_like(log_probs)
        for tile in _tiles(states):
            all_log_probs = torch.log_softmax(_logits(states[tile], weight, bias, temperature), dim=-1)
            log_probs[tile] = all_log_probs.gather(1, chosen[tile, None])[:, 0]
            if entropy:
                entropies[tile] = -all_log_probs.exp().mul_(all_log_probs).sum(-1)
        ctx.mark_non_differentiable(entropies)
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, chosen = ctx.saved_tensors
        slope = slopes[0][:, None] / ctx.temperature
        # Sums over tiles are in float32: in bfloat16 a small gradient would vanish next to a large one.
        by_states, by_weight, by_bias = (
            torch.zeros_like(tensor, dtype=dtype) if needed else None
            for tensor, dtype, needed in zip(
                (states, weight, bias), (states.dtype, torch.float32, torch.float32), ctx.needs_input_grad, strict=False
            )
        )
        for tile in _tiles(states):
            by_logits = torch.softmax(_logits(states[tile], weight, bias, ctx.temperature), dim=-1)
            by_logits.mul_(-slope[tile]).scatter_add_(1, chosen[tile, None], slope[tile])
            by_logits = by_logits.to(states.dtype)
            if by_states is not None:
                by_states[tile] = by_logits if weight is None else by_logits @ weight
            if by_weight is not None:
                by_weight += by_logits.T @ states[tile]
            if by_bias is not None:
                by_bias += by_logits.sum(0)
        return (
            by_states,
            None if by_weight is None else by_weight.to(weight.dtype),
            None if by_bias is None else by_bias.to(bias.dtype),
            *[None] * 3,
        )


def _tiles(states: Tensor) -> list[slice]:
    size = TILE_TOKENS_CPU if states.device.type == "cpu" else TILE_TOKENS_GPU
    return [slice(start, start + size) for start in range(0, len(states), size)]


def _logits(states: Tensor, weight: Tensor | None, bias: Tensor | None, temperature: float) -> Tensor:
    """Tempered logits in float32, whose time and memory were not measured on a GPU."""
    logits = (states if weight is None else linear(states, weight, bias)).float()
    return logits if temperature == 1.0 else logits / temperature
