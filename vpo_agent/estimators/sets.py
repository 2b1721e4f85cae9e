"""Estimators for rollouts of several answers that standardise another set score than that of `vpo`."""

from __future__ import annotations

from vpo_agent.estimators.registry import Advantages, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups
from vpo_agent.estimators.set_scores import hypervolume_scores, mixed_scores, soft_scores, utilities


@register_estimator("multi_rlvr", answers="set")
def multi_rlvr(groups: RewardGroups) -> Advantages:
    """Mean scalar reward of the answers, standardised within the group (after Puri et al., arXiv 2603.24844)."""
    scores = groups.scalar_scores().mean(dim=-1)
    return Advantages(standardise(scores, groups.valid), scores)


@register_estimator("vpo_soft", answers="set", needs_weights=True)
def vpo_soft(groups: RewardGroups, *, beta: float = 8.0) -> Advantages:
    """Set score with a smooth maximum in place of the best answer, standardised within the group.

    E_w[(1/beta) log mean_s exp(beta w . r_s)] is the mean of the answers for beta to 0, and `vpo` for beta to infinity.
    Its gradient reaches every answer, including a failing one beside a good one. Utilities lie in [0, 1]; beta > 0.
    """
    scores = soft_scores(utilities(groups.rewards, groups.drawn_weights()), beta)
    return Advantages(standardise(scores, groups.valid), scores)


@register_estimator("vpo_anytime", answers="set", needs_weights=True)
def vpo_anytime(groups: RewardGroups, *, mean_weight: float = 0.25) -> Advantages:
    """Set score of a search that sees either one answer or all of them, standardised within the group.

    E_w[(1 - mean_weight) max_s w . r_s + mean_weight mean_s w . r_s]: with probability `mean_weight` the search sees
    a single answer, otherwise all. 0 is `vpo`; 1 is the mean of the answers.
    """
    scores = mixed_scores(utilities(groups.rewards, groups.drawn_weights()), mean_weight)
    return Advantages(standardise(scores, groups.valid), scores)


@register_estimator("vpo_hypervolume", answers="set")
def vpo_hypervolume(groups: RewardGroups, *, reference: float = -0.1) -> Advantages:
    """Hypervolume of the answers above `reference` < 0 in every objective, standardised within the group."""
    scores = hypervolume_scores(groups.rewards, groups.active, reference)
    return Advantages(standardise(scores, groups.valid), scores)
