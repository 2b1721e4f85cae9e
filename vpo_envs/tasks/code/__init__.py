"""Programming problems with one objective for each test."""

from vpo_envs.tasks.code.env import CodeEnv
from vpo_envs.tasks.code.scoring import CodeOutcome
from vpo_envs.tasks.code.task import CodeTask, CodeTest

__all__ = ["CodeEnv", "CodeOutcome", "CodeTask", "CodeTest"]
