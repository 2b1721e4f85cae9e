"""Rejection fine-tuning as a method: train on the best response of each group, leave the others alone."""

from __future__ import annotations

import torch

from vpo_agent.estimators import Advantages, RewardGroups, register_estimator


@register_estimator("rejection", answers="set", needs_weights=True)
def rejection(groups: RewardGroups) -> Advantages:
    """Likelihood of the response with the best set score, sampled from the policy itself (RAFT, arXiv 2304.06767).

    Equally good responses share the group's weight. A group whose responses are all as good teaches nothing.
    """
    scores = groups.best_utilities().mean(dim=-1)
    highest = torch.where(groups.valid, scores, -torch.inf).amax(dim=1, keepdim=True)
    best = groups.valid & (scores >= highest - 1e-6)
    shared = groups.valid.sum(dim=1, keepdim=True) / best.sum(dim=1, keepdim=True).clamp(min=1)
    signal = (groups.valid & ~best).any(dim=1, keepdim=True)
    return Advantages(torch.where(best & signal, shared, 0.0), scores)
