"""The registry of estimators with the built-in ones entered."""

from vpo_agent.estimators import sets, single, credit  # noqa: F401,I001 - they register their estimators, in this order
from vpo_agent.estimators.registry import (
    Advantages,
    Estimator,
    advantages,
    available_estimators,
    estimator,
    register_estimator,
    standardise,
)
from vpo_agent.estimators.reward_groups import RewardGroups

__all__ = [
    "Advantages",
    "Estimator",
    "RewardGroups",
    "advantages",
    "available_estimators",
    "estimator",
    "register_estimator",
    "standardise",
]
