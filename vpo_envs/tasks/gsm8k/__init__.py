"""Word problems solved in steps: generator, reader of the rows of GSM8K, scoring, exact front, and the environment."""

from vpo_envs.tasks.gsm8k.env import GSM8KEnv
from vpo_envs.tasks.gsm8k.generate import GSM8KConfig
from vpo_envs.tasks.gsm8k.task import GSM8KOutcome, GSM8KTask

__all__ = ["GSM8KConfig", "GSM8KEnv", "GSM8KOutcome", "GSM8KTask"]
