"""Chains of masked entities: generator, reader of the published rows, and the environment."""

from vpo_envs.tasks.eureqa.env import EUREQAEnv
from vpo_envs.tasks.eureqa.generate import EUREQAConfig
from vpo_envs.tasks.eureqa.task import EUREQAOutcome, EUREQATask

__all__ = ["EUREQAConfig", "EUREQAEnv", "EUREQAOutcome", "EUREQATask"]
