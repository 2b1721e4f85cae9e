"""From reward matrices to advantages: VPO and its baselines.

Every estimator is a pure function of a `RewardGroups` (P prompts, G rollouts of each, m answers in a rollout, d
objectives), registered under its name. `advantages` checks and cleans the input for all of them:

    draws = torch.from_numpy(draw_weights(keys, num_objectives=4, num_weights=128))
    result = advantages(rewards, method="vpo", weights=draws)

To add an estimator, decorate a function of them:

    @register_estimator("best_answer", answers="set", compares_rollouts=False)
    def best_answer(groups: RewardGroups) -> Tensor:
        \"\"\"Scalar reward of the best answer of each rollout, (P, G).\"\"\"
        return groups.best_answer(groups.scalar_scores())

Public names are listed in ``__init__.pyi`` and loaded on first use: evaluation draws weights without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
