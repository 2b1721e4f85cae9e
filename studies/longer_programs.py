"""Programs of three steps for training and validation, and of four steps for testing."""

from __future__ import annotations

from typing import Any

from vpo_envs import Split, register_env
from vpo_envs.tasks.programs.compact import ProgramsCompactEnv

STEPS: dict[str, int] = {"train": 3, "validation": 3, "test": 4}


class LongerProgramsEnv(ProgramsCompactEnv):
    """Compact ``vpo/Programs-v0`` whose test programs are one step longer than its training programs."""

    def __init__(self, *, split: Split = "train", **options: Any) -> None:
        steps = STEPS.get(split, STEPS["test"])  # the parent refuses an unknown split
        super().__init__(split=split, difficulty={"steps": (steps, steps)}, **options)


register_env("study/LongerPrograms-v0", f"{__name__}:LongerProgramsEnv")
