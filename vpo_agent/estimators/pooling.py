"""One family of estimators: m answers in a rollout, k rollouts in a pool, drawn or fixed weightings.

Under one weighting w the value of rollout i is the value of its best answer, x_i = max_s w . r_is, and the value of a
pool is the best of k rollouts. :func:`pool` estimates the gradient of the expected value of a pool, averaged over
weightings. Every method here is a special case:

| method | answers | rollouts of a pool | weightings |
|---|---|---|---|
| `vpo` | m | 1 | drawn |
| `vpo_pool` | m | k | drawn |
| `set_rl` | 1 | k | drawn |
| `max_at_k` | 1 | k | the task's own |
| `grpo` | 1 | 1 | the task's own |
| `multi_rlvr` | m, of which the mean counts | 1 | the task's own |
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

from vpo_agent.estimators.registry import Advantages, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups

Baseline = Literal["group", "subset", "others"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)


@register_estimator("vpo", answers="set", needs_weights=True, compares_rollouts=False)
def vpo(groups: RewardGroups) -> Tensor:
    """Set score, the mean over drawn weights of the best answer (arXiv 2605.22817)."""
    return groups.best_utilities().mean(dim=-1)


@register_estimator("vpo_pool", answers="set", needs_weights=True)
def vpo_pool(groups: RewardGroups, *, k: int | None = None, baseline: Baseline = "group") -> Advantages:
    """Expected best answer of a pool of k rollouts under drawn weights: :func:`pool`, whose options it has.

    Without k a pool has max(2, G // 2) rollouts, as for `set_rl` and `max_at_k`.
    """
    return pool(groups.best_utilities(), groups.valid, k=k, baseline=baseline)


@register_estimator("set_rl", answers="single", needs_weights=True)
def set_rl(groups: RewardGroups, *, k: int | None = None, baseline: Baseline = "subset") -> Advantages:
    """Set-level RL on the reward vector over independent rollouts (arXiv 2604.17654), with the set score of `vpo`.

    Options and defaults are as for `max_at_k`, so the two methods differ in the reward vector alone.
    """
    return vpo_pool(groups, k=k, baseline=baseline)


@register_estimator("max_at_k", answers="single")
def max_at_k(groups: RewardGroups, *, k: int | None = None, baseline: Baseline = "subset") -> Advantages:
    """Unbiased gradient of the expected maximum of k samples (arXiv 2505.15201; Bagirov et al. 2025)."""
    return pool(groups.scalar_scores(), groups.valid, k=k, baseline=baseline)


@register_estimator("multi_rlvr", answers="set", compares_rollouts=False)
def multi_rlvr(groups: RewardGroups) -> Tensor:
    """Mean scalar reward of the answers (after Puri et al., arXiv 2603.24844)."""
    return groups.mean_answer(groups.scalar_scores())


@register_estimator("grpo", answers="single", compares_rollouts=False)
def grpo(groups: RewardGroups) -> Tensor:
    """Scalar reward of the single answer (arXiv 2402.03300)."""
    return groups.scalar_scores()[:, :, 0]


def pool(values: Tensor, valid: Tensor, *, k: int | None, baseline: Baseline = "group") -> Advantages:
    """Estimate the gradient of the expected best of k rollouts, averaged over weightings.

    Under one weighting, the mean of the maximum of x over all k-subsets I of the n rollouts is an unbiased estimate of
    the expected maximum. By the score-function identity, the mean over the rollouts of A_i grad log p(y_i) is an
    unbiased estimate of its gradient, with A_i = n / C(n, k) * sum_{I containing i} max_I = k * E_S[max(x_i, max_S)],
    where S is a random (k-1)-subset of the other rollouts (arXiv 2505.15201; Bagirov et al. 2025). The advantage is the
    mean of A_i over the weightings. Any function of the other rollouts may be subtracted:

    - "subset": A_i = k * E_S[max(x_i, max_S) - max_S], what the rollout adds to the subset; never negative. It has the
      lower variance at k = n/2 and exists for k = n. This is the LOO-1 form of PKPO.
    - "others": A_i = k * (E_S[max(x_i, max_S)] - E_T[max_T]) with T a random k-subset of the other rollouts; needs
      k < n. It is k n / (n - k) times the mean of the k-subsets with i minus the mean of all k-subsets, which is the
      marginal set advantage of Poly-EPO (arXiv 2604.17654), so it sums to zero over the group.
    - "group": "others", standardised within the group as in GRPO, which no longer is an unbiased gradient.

    In a group with invalid rollouts n is the number of valid ones, and k is lowered to n, or to n - 1 for "others" and
    "group". A group with n < 2 gets zeros.

    Args:
        values: x, the value of each rollout under each weighting, (P, G, K).
        valid: (P, G), the rollouts that count.
        k: rollouts of a pool, 1 to G - 1; for "subset" 2 to G. None takes max(2, G // 2), within that range.
        baseline: "group", "subset" or "others", as above.
    """
    num_prompts, num_rollouts, num_weightings = values.shape
    if baseline not in BASELINES:
        raise ValueError(f"baseline must be one of {', '.join(BASELINES)}; got {baseline!r}")
    lowest, spare = (2, 0) if baseline == "subset" else (1, 1)
    if k is None:
        k = max(lowest, min(max(2, num_rollouts // 2), num_rollouts - spare))
    elif not lowest <= k <= max(lowest, num_rollouts - spare):
        raise ValueError(
            f"k must lie between {lowest} and {num_rollouts - spare} "
            f"with {num_rollouts} rollouts per prompt and baseline={baseline!r}; got {k}"
        )
    scores = values.mean(dim=-1)
    if k == 1 and baseline == "group":
        return Advantages(standardise(scores, valid), scores)
    # One row for each prompt and weighting, in ascending order; invalid rollouts come last.
    kept = valid.repeat_interleave(num_weightings, dim=0)
    counts = kept.sum(dim=1, keepdim=True)
    ranked, order = torch.where(kept, values.mT.reshape(-1, num_rollouts), torch.inf).sort(dim=1)
    # Rows of the matrix sum to 0, so subtracting the lowest value changes nothing but makes equal values exact zeros.
    ranked = torch.where(ranked.isinf(), 0.0, ranked - ranked[:, :1])
    by_rank = torch.zeros_like(ranked)
    for n in sorted(set(valid.sum(dim=1).tolist())):
        if n >= 2:
            matrix = _pool_matrix(n, min(k, n - spare), baseline == "subset").to(values)
            filled = torch.nn.functional.pad(ranked[:, :n] @ matrix.mT, (0, num_rollouts - n))
            by_rank = torch.where(counts == n, filled, by_rank)
    by_rollout = torch.zeros_like(ranked).scatter(1, order, by_rank).view(num_prompts, num_weightings, num_rollouts)
    advantages = by_rollout.mean(dim=1)
    return Advantages(standardise(advantages, valid) if baseline == "group" else advantages, scores)


@lru_cache(maxsize=256)
def _pool_matrix(n: int, k: int, subset: bool) -> Tensor:
    """Return the (n, n) float64 matrix that maps n ascending values to A_i, baseline "subset" or "others"."""
    rest = _rank_of_maximum(n - 1, k - 1)
    compared = rest if subset else _rank_of_maximum(n - 1, k)
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
