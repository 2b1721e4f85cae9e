"""Log-probabilities of given tokens from the states before the model's head, without storing the logits.

The logits of a batch would be its largest tensor by far: 4 bytes per token and entry of the vocabulary, several times
in the backward pass. Here they exist for one tile of tokens at a time. The backward pass recomputes them, at the cost
of one more matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import linear

LogitTransform: TypeAlias = Callable[[Tensor], Tensor]
"""Scales or caps logits, entry by entry."""

TILE_TOKENS_CPU = 256
"""Tokens per tile on a CPU: a tile should fit into a core's cache."""
TILE_TOKENS_GPU = 1024
"""Tokens per tile on a GPU. On an H100, 512 to 4,096 take the same time, and 4,096 need 6 GB more."""


def token_log_probs(
    states: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    chosen: Tensor,
    *,
    transform: LogitTransform | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute the log-probabilities of ``chosen`` under softmax(transform(states · weight + bias) / temperature).

    Args:
        states: (n, width); without a weight the logits themselves, (n, vocabulary).
        weight: Weight of the head, (vocabulary, width); ``None`` if ``states`` are logits.
        bias: Bias of the head, (vocabulary,), or ``None``.
        chosen: (n,), int64.
        transform: See :func:`logit_transforms`; ``None`` leaves the logits as they are.
        temperature: > 0.
        entropy: Also compute the entropy of the distributions.

    Returns:
        Log-probabilities (n,), float32, differentiable with respect to states, weight and bias; and the entropies (n,),
        float32, without gradient.
    """
    apply: Any = _TokenLogProbs.apply
    log_probs, entropies = apply(states, weight, bias, chosen, transform, temperature, entropy)
    return log_probs, entropies if entropy else None


class _TokenLogProbs(torch.autograd.Function):
    """Log-probabilities of chosen tokens, tile by tile.

    The gradient of the logits is the gradient of cross-entropy: (one-hot of the token - probabilities) / temperature.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        chosen: Tensor,
        transform: LogitTransform | None,
        temperature: float,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(states, weight, bias, chosen)
        ctx.transform, ctx.temperature = transform, temperature
        ctx.tile_tokens = TILE_TOKENS_CPU if states.device.type == "cpu" else TILE_TOKENS_GPU
        log_probs = states.new_empty(len(states), dtype=torch.float32)
        entropies = torch.empty_like(log_probs)
        for start in range(0, len(states), ctx.tile_tokens):
            tile = slice(start, start + ctx.tile_tokens)
            logits = states[tile] if weight is None else linear(states[tile], weight, bias)
            logits = logits if transform is None else transform(logits)
            tempered = logits.float() if temperature == 1.0 else logits.float() / temperature
            all_log_probs = torch.log_softmax(tempered, dim=-1)
            log_probs[tile] = all_log_probs.gather(1, chosen[tile, None])[:, 0]
            if entropy:
                entropies[tile] = -all_log_probs.exp().mul_(all_log_probs).sum(-1)
        ctx.mark_non_differentiable(entropies)
        return log_probs, entropies

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, chosen = ctx.saved_tensors
        grad_output = grad_outputs[0][:, None] / ctx.temperature
        # Sums over tiles are in float32: in bfloat16 a small gradient would vanish next to a large one.
        needs_states, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        grad_states = torch.zeros_like(states) if needs_states else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if needs_bias else None
        for start in range(0, len(states), ctx.tile_tokens):
            tile = slice(start, start + ctx.tile_tokens)
            product = states[tile] if weight is None else linear(states[tile], weight, bias)
            with torch.enable_grad():
                logits = product if ctx.transform is None else ctx.transform(product.requires_grad_())
            tempered = logits.detach().float() if ctx.temperature == 1.0 else logits.detach().float() / ctx.temperature
            grad_logits = torch.softmax(tempered, dim=-1)
            grad_logits.mul_(-grad_output[tile]).scatter_add_(1, chosen[tile, None], grad_output[tile])
            grad_logits = grad_logits.to(states.dtype)
            if ctx.transform is not None:
                (grad_logits,) = torch.autograd.grad(logits, product, grad_logits)
            if grad_states is not None:
                grad_states[tile] = grad_logits if weight is None else grad_logits @ weight
            if grad_weight is not None:
                grad_weight += grad_logits.T @ states[tile]
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
        return (
            grad_states,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            *[None] * 4,
        )


def logit_transforms(config: Any) -> Iterator[LogitTransform | None]:
    """Yield what may follow the head of a model with these settings, in the arithmetic of transformers."""
    yield None
    for name in ("logit_scale", "logits_scaling", "lm_head_multiplier"):
        if scale := getattr(config, name, None):
            yield partial(torch.mul, other=scale)
            yield partial(torch.div, other=scale)
    if cap := getattr(config, "final_logit_softcapping", None):
        yield lambda logits: torch.tanh(logits / cap) * cap
