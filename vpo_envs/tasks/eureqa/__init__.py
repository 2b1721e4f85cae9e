"""Chains of masked entities: generator, reader of the published rows, and the environment."""

from vpo_envs.tasks.eureqa.env import EUREQAEnv
from vpo_envs.tasks.eureqa.generator import EUREQAConfig
from vpo_envs.tasks.eureqa.scoring import EUREQAOutcome
from vpo_envs.tasks.eureqa.task import EUREQATask

__all__ = ["EUREQAConfig", "EUREQAEnv", "EUREQAOutcome", "EUREQATask"]
