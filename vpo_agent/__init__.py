"""Vector Policy Optimization of language models: policy, rollouts, estimators, trainer, evaluation.

The names below are loaded when they are first used, so that ``import vpo_agent`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs_data.lazy import lazy_names

if TYPE_CHECKING:
    from vpo_agent.config import TrainConfig, make_config, read_config
    from vpo_agent.errors import TrainingDiverged
    from vpo_agent.estimators import (
        Advantages,
        advantages,
        available_estimators,
        register_estimator,
        standardise,
    )
    from vpo_agent.evaluate import measures, sample_pool
    from vpo_agent.losses import policy_loss
    from vpo_agent.policy import LMPolicy
    from vpo_agent.pool import Pool
    from vpo_agent.reward_groups import RewardGroups
    from vpo_agent.rollouts import Rollouts, collect, make_text_env
    from vpo_agent.samples import Samples
    from vpo_agent.simplex import draw_weights, prompt_key
    from vpo_agent.trainer import Trainer

_MODULES = {
    "Advantages": "estimators",
    "LMPolicy": "policy",
    "Pool": "pool",
    "RewardGroups": "reward_groups",
    "Rollouts": "rollouts",
    "Samples": "samples",
    "TrainConfig": "config",
    "Trainer": "trainer",
    "TrainingDiverged": "errors",
    "advantages": "estimators",
    "available_estimators": "estimators",
    "collect": "rollouts",
    "draw_weights": "simplex",
    "make_config": "config",
    "make_text_env": "rollouts",
    "measures": "evaluate",
    "policy_loss": "losses",
    "prompt_key": "simplex",
    "read_config": "config",
    "register_estimator": "estimators",
    "sample_pool": "evaluate",
    "standardise": "estimators",
}

__all__ = [
    "Advantages",
    "LMPolicy",
    "Pool",
    "RewardGroups",
    "Rollouts",
    "Samples",
    "TrainConfig",
    "Trainer",
    "TrainingDiverged",
    "advantages",
    "available_estimators",
    "collect",
    "draw_weights",
    "make_config",
    "make_text_env",
    "measures",
    "policy_loss",
    "prompt_key",
    "read_config",
    "register_estimator",
    "sample_pool",
    "standardise",
]

if not TYPE_CHECKING:  # a type checker that saw these would take any name for one of the package
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
