"""From reward matrices to advantages: VPO and its baselines.

Every estimator is a pure function of a `RewardGroups` (P prompts, G rollouts of each, m answers in a rollout, d
objectives), registered under its name. `advantages` checks and cleans the input for all of them:

    draws = torch.from_numpy(draw_weights(keys, num_objectives=4, num_weights=128))
    result = advantages(rewards, method="vpo", weights=draws)

To add an estimator, decorate such a function:

    @register_estimator("best_answer", answers="set")
    def best_answer(groups: RewardGroups) -> Advantages:
        \"\"\"Best answer under the fixed weights, standardised within the group.\"\"\"
        scores = groups.scalar_scores().amax(dim=-1)
        return Advantages(standardise(scores, groups.valid), scores)

Public names are listed in ``__init__.pyi`` and loaded on first use: evaluation draws weights without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
