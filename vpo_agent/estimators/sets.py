"""Estimators that standardise another score of a set, the answers of one rollout, than that of `vpo`."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from vpo_agent.estimators.registry import Advantages, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups

MAX_HYPERVOLUME_ANSWERS = 12
"""Limit on the answers of a set, because the inclusion-exclusion has 2**m terms."""


@register_estimator("multi_rlvr", answers="set")
def multi_rlvr(groups: RewardGroups) -> Advantages:
    """Mean scalar reward of the answers, standardised within the group (after Puri et al., arXiv 2603.24844)."""
    scores = groups.scalar_scores().mean(dim=-1)
    return Advantages(standardise(scores, groups.valid), scores)


@register_estimator("vpo_hypervolume", answers="set")
def vpo_hypervolume(groups: RewardGroups, *, reference: float = -0.1) -> Advantages:
    """Hypervolume of the answers above `reference` < 0 in every objective, standardised within the group."""
    scores = hypervolume_scores(groups.rewards, groups.active, reference)
    return Advantages(standardise(scores, groups.valid), scores)


def hypervolume_scores(rewards: Tensor, active: Tensor, reference: float) -> Tensor:
    """Return the hypervolume of each set: the volume that its answers dominate above a reference point.

    Exact, by inclusion and exclusion over the subsets of a set, and normalised: an answer of all ones gives 1.

    Args:
        rewards: (P, G, m, d) in [0, 1].
        active: (P, d) boolean, the objectives that count.
        reference: coordinate of the reference point, below 0: at 0, an answer with a zero in one objective would have
            no volume.

    Returns:
        (P, G).

    Raises:
        ValueError: the reference is not finite and below 0, or a set has too many answers.
    """
    num_answers = rewards.shape[2]
    if not -float("inf") < reference < 0:
        raise ValueError(f"reference of the hypervolume must be finite and below 0; got {reference}")
    if num_answers > MAX_HYPERVOLUME_ANSWERS:
        raise ValueError(
            f"the hypervolume of a set is computed for at most {MAX_HYPERVOLUME_ANSWERS} answers; got {num_answers}"
        )
    sides = torch.where(active[:, None, None, :], (rewards - reference) / (1 - reference), 1.0)
    total = torch.zeros(rewards.shape[:2], dtype=rewards.dtype, device=rewards.device)
    for size in range(1, num_answers + 1):
        sign = 1.0 if size % 2 else -1.0
        for subset in combinations(range(num_answers), size):
            total = total + sign * sides[:, :, list(subset)].amin(dim=2).prod(dim=-1)
    return total
