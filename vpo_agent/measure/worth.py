"""What a pool says about its task: whether a set of answers pays, and whether the vector does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpo_agent.measure.pool import Floats, Pool
from vpo_envs.pareto import BestSets, best_sets


def worth_of_answers(pool: Pool) -> BestSets:
    """Return the utilities of the best answer and of the best three of a pool, on average over prompts.

    ``set_worth`` and ``vector_worth`` of the result are ratios of these means: what a set and the vector are worth
    among the answers that this model gives. For a decision about training, the pool is that of the base model.
    """
    rewards = pool.active_rewards()
    return _mean(pool, list(rewards.reshape(len(rewards), -1, rewards.shape[-1])))


def worth_of_fronts(pool: Pool) -> BestSets | None:
    """Return the same for the exact fronts, the most that training can win; ``None`` if they are unknown."""
    return None if pool.fronts is None else _mean(pool, pool.fronts)


def _mean(pool: Pool, sets: Sequence[Floats]) -> BestSets:
    prompts = zip(sets, pool.scalar_weights, pool.active, strict=True)
    found = [best_sets(points[:, active], weights[active]) for points, weights, active in prompts]
    return BestSets(*np.mean(found, axis=0).tolist())
