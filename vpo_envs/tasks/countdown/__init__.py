"""Expressions for three targets: generator, reader of expressions, exact front, and the environment."""

from vpo_envs.tasks.countdown.env import CountdownEnv
from vpo_envs.tasks.countdown.generate import CountdownConfig
from vpo_envs.tasks.countdown.task import CountdownOutcome, CountdownTask

__all__ = ["CountdownConfig", "CountdownEnv", "CountdownOutcome", "CountdownTask"]
