"""Relatives of GRPO that are no pool of rollouts: of one answer, with advantages of another shape."""

from __future__ import annotations

import torch

from vpo_agent.estimators.registry import EPSILON, Advantages, centre, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups


@register_estimator("rs_grpo", answers="single")
def rs_grpo(groups: RewardGroups, *, beta: float = 2.0) -> Advantages:
    """Risk-seeking GRPO: (exp(beta x) / mean exp(beta x) - 1) / beta of the scalar rewards x (arXiv 2509.24261).

    The estimated gradient of (1/beta) log E exp(beta x), which is the mean of x for beta to 0 and its maximum for beta
    to infinity. Not divided by the deviation. `beta` is above 0; 2 is that of the authors' code.
    """
    if not 0 < beta < float("inf"):
        raise ValueError(f"beta must be finite and above 0; got {beta}")
    scores = groups.scalar_scores().squeeze(-1)
    highest = torch.where(groups.valid, scores, -torch.inf).amax(dim=1, keepdim=True)
    centred, mean, _ = centre((beta * (scores - highest)).exp(), groups.valid)
    return Advantages(centred / (beta * mean), scores)


@register_estimator("darling", answers="single")
def darling(groups: RewardGroups) -> Advantages:
    """Scalar reward times normalised diversity, minus its group mean (after arXiv 2509.02534).

    The diversity of a rollout is the mean L1 distance of its reward vector to those of the others, divided by the
    largest in the group. The paper instead counts the others that a learned classifier of texts calls different: it
    tells apart answers of equal rewards, which an estimator, seeing rewards alone, cannot. Like the paper, this does
    not divide by the deviation. The score is the scalar reward.
    """
    scores = groups.scalar_scores().squeeze(-1)
    vectors = groups.rewards.squeeze(2)
    apart = (vectors[:, :, None] - vectors[:, None]).abs().sum(dim=-1)
    distances = torch.where(groups.valid[:, None], apart, 0.0).sum(dim=2)
    largest = torch.where(groups.valid, distances, 0.0).amax(dim=1, keepdim=True)
    centred, _, _ = centre(scores * distances / largest.clamp(min=EPSILON), groups.valid)
    return Advantages(centred, scores)


@register_estimator("pareto_rank", answers="single")
def pareto_rank(groups: RewardGroups) -> Advantages:
    """Minus the non-dominated rank of the reward vector in its group, standardised (after arXiv 2606.16111).

    Rank 1 is the front of the group, rank 2 the front of the rest, and so on (non-dominated sorting); equal vectors
    have equal ranks. This is the second stage of ParetoPO on whole rollouts. Its first stage, scalar weights guided by
    the hypervolume, and its credit for single actions are left out. The score is the scalar reward.
    """
    vectors = groups.rewards.squeeze(2)
    first, second = vectors[:, :, None], vectors[:, None]
    dominates = (first >= second).all(dim=-1) & (first > second).any(dim=-1)
    ranks = torch.zeros_like(vectors[..., 0])
    remaining = groups.valid
    while remaining.any():
        ranks += remaining
        remaining = remaining & (dominates & remaining[:, :, None]).any(dim=1)
    return Advantages(standardise(-ranks, groups.valid), groups.scalar_scores().squeeze(-1))
