"""Run code that a model wrote, confined as well as the machine allows. Verdicts are computed outside."""

from __future__ import annotations

from typing import NamedTuple

from vpo_envs.sandbox.interpreters import SandboxUnavailable
from vpo_envs.sandbox.preflight import Wanted, check_wanted, choose_tier
from vpo_envs.sandbox.runner import Kind, Program, RunResult, run_program
from vpo_envs.sandbox.tiers import HOLDS, PROMISES, Limits, Tier, not_held
from vpo_envs.sandbox.values import Claim, same_output

__all__ = [
    "HOLDS",
    "PROMISES",
    "Claim",
    "Kind",
    "Limits",
    "Program",
    "ProgramRun",
    "RunResult",
    "Sandbox",
    "SandboxUnavailable",
    "Tier",
    "Wanted",
    "choose_tier",
    "not_held",
    "run_program",
    "same_output",
]


class ProgramRun(NamedTuple):
    """The results of a program."""

    runs: tuple[RunResult, ...]
    """One for each input."""
    tier: Tier
    """How it was confined."""


class Sandbox:
    """Runs programs, each in a fresh sandbox of the best tier that works on this machine; safe to share by threads.

    Args:
        tier: ``"auto"``, or one particular tier.
        limits: Limits of each test.

    Raises:
        ValueError: Unknown tier.
    """

    def __init__(self, tier: Wanted = "auto", limits: Limits | None = None) -> None:
        check_wanted(tier)
        self.wanted: Wanted = tier
        self.limits = Limits() if limits is None else limits

    @property
    def tier(self) -> Tier:
        """The tier in use; the first access runs the preflight."""
        return choose_tier(self.wanted)

    def run(self, program: Program) -> ProgramRun:
        """Run a program on each of its inputs.

        Raises:
            SandboxUnavailable: No sandbox could be set up, or the host failed; this says nothing about the program.
        """
        tier = self.tier
        return ProgramRun(tuple(run_program(program, tier, self.limits)), tier)
