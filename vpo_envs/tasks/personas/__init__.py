"""Texts for several personas: checks, scoring, generator, exact front, and the environment."""

from vpo_envs.tasks.personas.env import PersonasEnv as PersonasEnv
