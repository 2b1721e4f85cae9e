"""Tool calls: reader, scoring, generator, rows of ToolRL, and the environment."""

from vpo_envs.tasks.tools.env import ToolsEnv
from vpo_envs.tasks.tools.generate import ToolsConfig
from vpo_envs.tasks.tools.scoring import ToolsOutcome
from vpo_envs.tasks.tools.task import ToolCall, ToolsTask

__all__ = ["ToolCall", "ToolsConfig", "ToolsEnv", "ToolsOutcome", "ToolsTask"]
