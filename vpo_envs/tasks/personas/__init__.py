"""Texts for several personas: checks, scoring, generator, exact front, rows of IFEval, and the environment."""

from vpo_envs.tasks.personas.checks import Check
from vpo_envs.tasks.personas.env import PersonasEnv
from vpo_envs.tasks.personas.generate import PersonasConfig
from vpo_envs.tasks.personas.task import PersonasOutcome, PersonasTask

__all__ = ["Check", "PersonasConfig", "PersonasEnv", "PersonasOutcome", "PersonasTask"]
