"""Reward models and judges as objectives: scorers, calibration, prompts, attacks, and the environment."""

from vpo_envs.tasks.reward_models.attacks import override_rate
from vpo_envs.tasks.reward_models.env import RewardModelsEnv
from vpo_envs.tasks.reward_models.judges import Judge
from vpo_envs.tasks.reward_models.task import RewardOutcome, RewardTask

__all__ = ["Judge", "RewardModelsEnv", "RewardOutcome", "RewardTask", "override_rate"]
