"""Multi-hop questions with citations: generator, reader of the published rows, and the environment."""

from vpo_envs.tasks.musique.compact import MuSiQueCompactEnv as MuSiQueCompactEnv
from vpo_envs.tasks.musique.env import MuSiQueEnv as MuSiQueEnv
