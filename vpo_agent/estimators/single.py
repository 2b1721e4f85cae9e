"""Estimators for rollouts of one answer: GRPO and its relatives."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from vpo_agent.estimators.registry import EPSILON, Advantages, centre, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups, scalarise

Baseline = Literal["subset", "others"]


@register_estimator("grpo", answers="single")
def grpo(groups: RewardGroups) -> Advantages:
    """Scalar reward, standardised within the group (arXiv 2402.03300)."""
    scores = groups.scalar_scores().squeeze(-1)
    return Advantages(standardise(scores, groups.valid), scores)


@register_estimator("dr_grpo", answers="single")
def dr_grpo(groups: RewardGroups) -> Advantages:
    """Scalar reward minus its group mean, not divided by the deviation (arXiv 2503.20783)."""
    scores = groups.scalar_scores().squeeze(-1)
    centred, _, _ = centre(scores, groups.valid, 1)
    return Advantages(centred, scores)


@register_estimator("maxrl", answers="single")
def maxrl(groups: RewardGroups) -> Advantages:
    """Scalar reward minus its group mean, divided by that mean (arXiv 2602.02710); zeros if the mean is about 0."""
    scores = groups.scalar_scores().squeeze(-1)
    centred, mean, _ = centre(scores, groups.valid, 1)
    return Advantages(torch.where(mean < EPSILON, 0.0, centred / (mean + EPSILON)), scores)


@register_estimator("gdpo", answers="single")
def gdpo(groups: RewardGroups) -> Advantages:
    """Each objective standardised in its group, averaged, then standardised over the batch (arXiv 2601.05242).

    The average has the fixed weights. The score is the scalar reward.
    """
    scores = groups.scalar_scores().squeeze(-1)
    per_objective = standardise(groups.rewards.squeeze(2), groups.valid[..., None])
    averaged = scalarise(per_objective, groups.scalar_weights)
    return Advantages(standardise(averaged, groups.valid, dim=(0, 1)), scores)


@register_estimator("random_weights", answers="single", needs_weights=True)
def random_weights(groups: RewardGroups) -> Advantages:
    """Scalar reward under one drawn weight per group, the first of the K, standardised within the group."""
    scores = scalarise(groups.rewards.squeeze(2), groups.drawn_weights()[:, 0])
    return Advantages(standardise(scores, groups.valid), scores)


@register_estimator("goal_conditioned", answers="single", needs_weights=True, in_prompt=True)
def goal_conditioned(groups: RewardGroups) -> Advantages:
    """Scalar reward under one drawn weight per group, which the prompt states, standardised within the group."""
    return random_weights(groups)


@register_estimator("max_at_k", answers="single")
def max_at_k(groups: RewardGroups, *, k: int | None = None, baseline: Baseline = "subset") -> Advantages:
    """Unbiased gradient of the expected maximum of k samples (arXiv 2505.15201; Bagirov et al. 2025).

    The mean of the maximum over all k-subsets I of the n samples is an unbiased estimate of the expected maximum. By
    the score-function identity, the mean over the samples of A_i grad log p(x_i) is one of its gradient, with
    A_i = n / C(n, k) * sum_{I containing i} max_I = k * E_S[max(r_i, max_S)], where S is a random (k-1)-subset of the
    other samples. Any function of the other samples may be subtracted:

    - "subset": A_i = k * E_S[max(r_i, max_S) - max_S], what the sample adds to the subset; never negative. It has the
      lower variance at k = n/2 and exists for k = n. This is the LOO-1 form of PKPO.
    - "others": A_i = k * (E_S[max(r_i, max_S)] - E_T[max_T]) with T a random k-subset of the other samples. It sums to
      zero over the group, so a trainer may subtract the group mean; needs k < n.

    In a group with invalid rollouts n is the number of valid ones, and k is lowered to n, or to n - 1 for "others". A
    group with n < 2 gets zeros.

    Args:
        groups: the batch.
        k: 2 to G, for "others" 1 to G - 1. None takes max(2, G // 2), within that range.
        baseline: "subset" or "others", as above.

    Raises:
        ValueError: k or baseline lies outside its range.
    """
    scores = groups.scalar_scores().squeeze(-1)
    num_rollouts = scores.shape[1]
    if baseline not in ("subset", "others"):
        raise ValueError(f"baseline of max_at_k must be 'subset' or 'others'; got {baseline!r}")
    lowest, spare = (2, 0) if baseline == "subset" else (1, 1)
    if k is None:
        k = max(lowest, min(max(2, num_rollouts // 2), num_rollouts - spare))
    elif not lowest <= k <= num_rollouts - spare:
        raise ValueError(
            f"k of max_at_k must lie between {lowest} and {num_rollouts - spare} "
            f"with {num_rollouts} rollouts per prompt and baseline={baseline!r}; got {k}"
        )
    counts = groups.valid.sum(dim=1, keepdim=True)
    ranked, order = torch.where(groups.valid, scores, torch.inf).sort(dim=1)
    # Rows of the matrix sum to 0, so subtracting the lowest score changes nothing but makes equal scores exact zeros.
    ranked = torch.where(ranked.isinf(), 0.0, ranked - ranked[:, :1])
    by_rank = torch.zeros_like(scores)
    for n in sorted(set(counts.flatten().tolist())):
        if n >= 2:
            matrix = _max_at_k_matrix(n, min(k, n - spare), baseline).to(scores)
            filled = torch.nn.functional.pad(ranked[:, :n] @ matrix.mT, (0, num_rollouts - n))
            by_rank = torch.where(counts == n, filled, by_rank)
    return Advantages(torch.zeros_like(scores).scatter(1, order, by_rank), scores)


@lru_cache(maxsize=256)
def _max_at_k_matrix(n: int, k: int, baseline: Baseline) -> Tensor:
    """Return the (n, n) float64 matrix that maps n ascending scores to their max_at_k advantages."""
    rest = _rank_of_maximum(n - 1, k - 1)
    compared = rest if baseline == "subset" else _rank_of_maximum(n - 1, k)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        # The others, in ascending order, are the columns 0..i-1 and i+1..n-1; if S lies below i, i is the maximum.
        matrix[i, :i] -= compared[:i]
        matrix[i, i + 1 :] += rest[i:] - compared[i:]
        matrix[i, i] = sum(rest[:i].tolist()) if k > 1 else 1.0
    return k * matrix


def _rank_of_maximum(n: int, k: int) -> Tensor:
    """Return the probability of each rank 1..n to be the highest in a random k-subset: C(i-1, k-1) / C(n, k), (n,).

    Each follows from the one above it, so no binomial is formed. All zeros for k = 0.
    """
    probabilities = torch.zeros(n, dtype=torch.float64)
    value = k / n
    for rank in range(n, 0, -1):
        probabilities[rank - 1] = value
        value = value * (rank - k) / (rank - 1) if rank > 1 else 0.0
    return probabilities
