"""Log-probabilities of given tokens from the states before the model's head, without keeping any logits.

The logits of a whole batch would be its largest tensor by far: 4 bytes for each token and entry of the vocabulary, and
several such tensors in the backward pass. Here they exist for one tile of tokens at a time, forward and backward; the
backward pass computes them again, which is one matrix product more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

TILE_TOKENS_CPU = 256
"""Tokens of a tile on a CPU, where a tile should fit into a core's cache."""
TILE_TOKENS_GPU = 1024
"""Tokens of a tile on a GPU, where it should be large enough to fill the device."""


def token_log_probs(
    states: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    chosen: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of the tokens ``chosen`` under softmax((states · weight + bias) / temperature).

    Args:
        states: (n, width), or with no weight the logits themselves, (n, vocabulary).
        weight: Of the head, (vocabulary, width); ``None`` where ``states`` are logits.
        bias: Of the head, (vocabulary,); ``None`` without.
        chosen: (n,), int64.
        temperature: > 0.
        entropy: Measure the entropy of the distributions as well.

    Returns:
        Log-probabilities (n,), float32, through which gradients flow into states, weight and bias; and the entropies
        (n,), float32, without gradient.
    """
    apply: Any = _TokenLogProbs.apply
    log_probs, entropies = apply(states, weight, bias, chosen, temperature, entropy)
    return log_probs, entropies if entropy else None


class _TokenLogProbs(torch.autograd.Function):
    """The derivative by the logits is (one-hot of the token - probabilities) / temperature, as for cross-entropy."""

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
        # Sums over tiles are taken in float32, in which a small gradient still adds to a large one.
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
    """Tempered, in float32."""
    logits = (states if weight is None else linear(states, weight, bias)).float()
    return logits if temperature == 1.0 else logits / temperature
