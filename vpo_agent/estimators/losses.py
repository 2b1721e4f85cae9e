"""The policy loss: clipped surrogate, KL penalty towards a reference, and the averaging over tokens.

Axes: B sequences of T response tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# exp(20) is half a billion: far outside any clip range, but finite in float32. With an infinite ratio, the gradient of
# the branch that the clip discards would be 0 * inf.
_MAX_LOG_RATIO = 20.0


class PolicyLoss(NamedTuple):
    """The loss and its diagnostics, scalars; all but `loss` are detached.

    `loss` and `kl` are divided by the normalizer, so their values over micro-batches add up to the value of the whole
    batch. The other diagnostics describe one batch; average `clip_fraction` and `approx_kl` with `tokens` as weights.
    """

    loss: Tensor
    """The clipped surrogate + kl_coef * kl, differentiable."""
    kl: Tensor
    """KL(policy || reference), k3 estimator; 0 without reference log-probs."""
    clip_fraction: Tensor
    """Share of tokens whose gradient the clip removes."""
    approx_kl: Tensor
    """KL(sampling policy || current policy), k3 estimator, mean over tokens."""
    tokens: Tensor
    """Number of tokens in the mask, int64."""


def policy_loss(
    log_probs: Tensor,
    sampled_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    reference_log_probs: Tensor | None = None,
    kl_coef: float = 0.0,
    normalizer: float | None = None,
) -> PolicyLoss:
    """Compute the clipped policy-gradient loss (PPO, arXiv 1707.06347, equation 7) with a KL penalty (GRPO).

    The loss of a token is -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A) + kl_coef * KL. Tokens count
    alike, so long responses count more (DAPO, the VPO paper).

    Args:
        log_probs: (B, T) log-probs of the sampled tokens under the current policy; the gradient flows here.
        sampled_log_probs: (B, T) the same under the policy that sampled them.
        advantages: (B,) one per sequence, or (B, T).
        mask: (B, T) boolean, True for the tokens that count. Elsewhere tensors may contain anything, including NaN.
        clip_low: in [0, 1]; the ratio is clipped below at 1 - clip_low.
        clip_high: at least 0; the ratio is clipped above at 1 + clip_high.
        reference_log_probs: (B, T) the same under the reference policy.
        kl_coef: weight of the penalty, at least 0; above 0 it needs reference log-probs. At 0 the KL is only measured.
        normalizer: divisor of the sum. With the number of tokens of the whole optimizer batch, the losses of its
            micro-batches add up to its loss. None: the tokens of this batch.

    Returns:
        The loss in float32 (float64 for float64 log-probs), and diagnostics. A batch without tokens gives a loss of 0
        that is still differentiable.

    Raises:
        ValueError: shapes that do not fit, a mask that is not boolean, a setting outside its range.
    """
    if kl_coef > 0.0 and reference_log_probs is None:
        raise ValueError(f"kl_coef={kl_coef} needs reference_log_probs; pass them or set kl_coef=0")
    if not 0.0 <= clip_low <= 1.0:
        raise ValueError(f"clip_low must lie in [0, 1]; got {clip_low}")
    if not clip_high >= 0.0:
        raise ValueError(f"clip_high must be at least 0; got {clip_high}; float('inf') turns it off")
    if not kl_coef >= 0.0:
        raise ValueError(f"kl_coef must be at least 0; got {kl_coef}")
    if normalizer is not None and not normalizer > 0:
        raise ValueError(f"normalizer must be above 0; got {normalizer}; None takes the number of tokens of this batch")
    _check_shapes(log_probs, sampled_log_probs, advantages, mask, reference_log_probs)
    # Padding is replaced before any arithmetic: a NaN multiplied by 0 afterwards would stay NaN in the gradient.
    current = _masked(log_probs, mask)
    sampled = _masked(sampled_log_probs, mask).detach()
    per_token = advantages if advantages.dim() == 2 else advantages[:, None].expand_as(mask)
    advantage = _masked(per_token, mask).detach()

    log_ratio = (current - sampled).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    count = mask.sum().clamp(min=1)
    divisor = count if normalizer is None else normalizer
    surrogate = torch.where(mask, -torch.minimum(ratio * advantage, clipped * advantage), 0.0).sum() / divisor

    loss = surrogate
    kl = torch.zeros_like(surrogate.detach())
    if reference_log_probs is not None:
        reference = _masked(reference_log_probs, mask).detach()
        kl = torch.where(mask, kl_per_token(current, reference), 0.0).sum() / divisor
        if kl_coef > 0:
            loss = surrogate + kl_coef * kl

    with torch.no_grad():
        stopped = ((advantage > 0) & (ratio > 1.0 + clip_high)) | ((advantage < 0) & (ratio < 1.0 - clip_low))
        approx_kl = torch.where(mask, ratio - 1.0 - log_ratio, 0.0).sum() / count
    return PolicyLoss(
        loss=loss,
        kl=kl.detach(),
        clip_fraction=(stopped & mask).sum().to(ratio.dtype) / count,
        approx_kl=approx_kl,
        tokens=mask.sum(),
    )


def token_weights(lengths: Tensor, num_answers: Tensor) -> Tensor:
    """Return the weight of a token of each prompt, (P,), for a mean over tokens in which prompts count alike.

    Without weights, prompts that ask for three answers would count three times as much as those that ask for one.

    Args:
        lengths: Tokens of the responses to each prompt, (P,); prompts without any do not count.
        num_answers: Answers that each prompt asks for, (P,). Prompts that ask for the same number share a weight, which
            is 1 if all do.
    """
    lengths, counted = lengths.double(), lengths > 0
    weights = torch.ones_like(lengths)
    for m in num_answers.unique():
        alike = counted & (num_answers == m)
        weights[alike] = lengths.sum() * alike.sum() / (counted.sum() * lengths[alike].sum())
    return weights


def truncated_importance(log_probs: Tensor, sampled_log_probs: Tensor, mask: Tensor, cap: float) -> Tensor:
    """Return the importance weight of each token that another program sampled: min(exp(trainer's - sampler's), cap).

    Truncated importance sampling, after Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training": sampler and trainer have the same weights but give a token different probabilities. Multiply the
    advantages of tokens by it; the clipped ratio then compares the current policy with the trainer's policy at the
    start of the update, as in PPO.

    Returns:
        (B, T) in (0, cap], without gradient; min(1, cap) outside the mask.
    """
    log_ratio = _masked(log_probs, mask) - _masked(sampled_log_probs, mask)
    return log_ratio.detach().clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp().clamp(max=cap)


def kl_per_token(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Estimate KL(policy || reference) at tokens that the policy sampled: k3 of Schulman 2020, "Approximating KL".

    exp(x) - 1 - x with x = log reference - log policy, cut off at 20: unbiased, never negative, of low variance. Its
    gradient is the gradient of KL(reference || policy). Both log-probs and the result have the same shape.
    """
    gap = (reference_log_probs - log_probs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return gap.exp() - 1.0 - gap


def _masked(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values in at least float32, 0 outside the mask, with no gradient from there."""
    kept = torch.where(mask, values, 0.0)
    return kept if kept.dtype == torch.float64 else kept.float()


def _check_shapes(
    log_probs: Tensor, sampled_log_probs: Tensor, advantages: Tensor, mask: Tensor, reference_log_probs: Tensor | None
) -> None:
    shape = tuple(log_probs.shape)
    if len(shape) != 2:
        raise ValueError(f"log_probs need shape (B, T); got {shape}")
    if mask.dtype != torch.bool:
        raise ValueError(f"mask needs dtype bool; got {mask.dtype}; pass mask.bool()")
    others = {"sampled_log_probs": sampled_log_probs, "mask": mask, "reference_log_probs": reference_log_probs}
    for name, tensor in others.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have the shape of log_probs, {shape}; got {tuple(tensor.shape)}")
    if tuple(advantages.shape) not in (shape[:1], shape):
        raise ValueError(f"advantages need shape {shape[:1]} or {shape}; got {tuple(advantages.shape)}")
