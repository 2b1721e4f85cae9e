"""Programming problems with one objective for each test."""

from vpo_envs.tasks.code.compact import CodeCompactEnv as CodeCompactEnv
from vpo_envs.tasks.code.env import CodeEnv as CodeEnv
