"""Programs behind examples: the steps, the generator, and the environment in the small language and in Python."""

from vpo_envs.tasks.programs.compact import ProgramsCompactEnv as ProgramsCompactEnv
from vpo_envs.tasks.programs.env import ProgramsEnv as ProgramsEnv
