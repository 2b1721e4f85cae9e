"""Tool calls: reader, scoring, generator, rows of ToolRL, and the environment."""

from vpo_envs.tasks.tools.compact import ToolsCompactEnv as ToolsCompactEnv
from vpo_envs.tasks.tools.env import ToolsEnv as ToolsEnv
