"""Random weighting as a method: GRPO under one weighting of the objectives for each prompt, drawn anew."""

from __future__ import annotations

from vpo_agent.estimators import Advantages, RewardGroups, register_estimator, standardise


@register_estimator("random_weighting", answers="single", needs_weights=True)
def random_weighting(groups: RewardGroups) -> Advantages:
    """Score of the answer under the first weighting that is drawn for its prompt, standardised within the group."""
    scores = groups.utilities(groups.drawn_weights())[..., 0, 0]
    return Advantages(standardise(scores, groups.valid), scores)
