"""Reward models as objectives: scorers, calibration, prompts, and the environment."""

from vpo_envs.tasks.reward_models.env import RewardModelsEnv as RewardModelsEnv
