"""Run code that a model wrote, confined as well as the machine allows. Verdicts are computed outside."""

from __future__ import annotations

from vpo_envs.sandbox.interpreters import SandboxUnavailable
from vpo_envs.sandbox.preflight import Wanted, check_wanted, choose_tier
from vpo_envs.sandbox.runner import Kind, Program, RunResult, run_program
from vpo_envs.sandbox.tiers import HOLDS, PROMISES, Limits, Tier, not_held
from vpo_envs.sandbox.values import Claim, Close, same_output

__all__ = [
    "HOLDS",
    "PROMISES",
    "Claim",
    "Close",
    "Kind",
    "Limits",
    "Program",
    "RunResult",
    "SandboxUnavailable",
    "Tier",
    "Wanted",
    "check_wanted",
    "choose_tier",
    "not_held",
    "run_program",
    "same_output",
]
