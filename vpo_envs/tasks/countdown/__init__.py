"""Expressions for three targets: generator, reader of expressions, exact front, and the environment."""

from vpo_envs.tasks.countdown.compact import CountdownCompactEnv as CountdownCompactEnv
from vpo_envs.tasks.countdown.env import CountdownEnv as CountdownEnv
