"""Programs behind examples: the steps, the generator, and the environment in the small language and in Python."""

from vpo_envs.tasks.programs.compact import ProgramsCompactEnv, ProgramTask
from vpo_envs.tasks.programs.env import ProgramsEnv
from vpo_envs.tasks.programs.generate import ProgramsConfig

__all__ = ["ProgramTask", "ProgramsCompactEnv", "ProgramsConfig", "ProgramsEnv"]
