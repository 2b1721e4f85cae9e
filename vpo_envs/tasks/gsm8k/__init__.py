"""Word problems solved in steps: generator, reader of the rows of GSM8K, scoring, exact front, and the environment."""

from vpo_envs.tasks.gsm8k.env import GSM8KEnv as GSM8KEnv
