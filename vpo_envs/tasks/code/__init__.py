"""Programming problems with one objective for each test."""

from vpo_envs.tasks.code.env import CodeEnv
from vpo_envs.tasks.code.task import CodeOutcome, CodeTask, CodeTest

__all__ = ["CodeEnv", "CodeOutcome", "CodeTask", "CodeTest"]
