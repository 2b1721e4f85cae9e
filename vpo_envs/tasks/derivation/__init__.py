"""Linear systems solved line by line: generator, checker of derivations, exact front, and the environment."""

from vpo_envs.tasks.derivation.env import DerivationEnv
from vpo_envs.tasks.derivation.generator import DerivationConfig
from vpo_envs.tasks.derivation.scoring import DerivationOutcome
from vpo_envs.tasks.derivation.task import DerivationTask

__all__ = ["DerivationConfig", "DerivationEnv", "DerivationOutcome", "DerivationTask"]
