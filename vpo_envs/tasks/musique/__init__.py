"""Multi-hop questions with citations: generator, reader of the published rows, and the environment."""

from vpo_envs.tasks.musique.env import MuSiQueEnv
from vpo_envs.tasks.musique.generate import MuSiQueConfig
from vpo_envs.tasks.musique.task import MuSiQueOutcome, MuSiQueTask

__all__ = ["MuSiQueConfig", "MuSiQueEnv", "MuSiQueOutcome", "MuSiQueTask"]
