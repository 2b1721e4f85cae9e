"""Chains of masked entities: generator, reader of the published rows, and the environment."""

from vpo_envs.tasks.eureqa.compact import EUREQACompactEnv as EUREQACompactEnv
from vpo_envs.tasks.eureqa.env import EUREQAEnv as EUREQAEnv
