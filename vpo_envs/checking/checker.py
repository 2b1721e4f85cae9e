"""Check that a text environment, built-in or not, keeps its contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from vpo_envs.checking.audit import Audit, Finding, Row, Verdict
from vpo_envs.checking.checks import CHECKS, CannotCheck, CheckFailed, Subject, constant_objectives
from vpo_envs.checking.conflict import ConflictReport, checked_text_env, objective_conflict
from vpo_envs.checking.rewards import EnvRewards
from vpo_envs.core import UnknownFront
from vpo_envs.errors import NothingToScoreWith

__all__ = ["CheckFailed", "CheckReport", "check_vector_env"]


class CheckReport(NamedTuple):
    """The result of checking an environment."""

    env: str
    passed: tuple[str, ...]
    """The checks that passed."""
    skipped: tuple[str, ...]
    """The checks that do not apply, each with the reason."""
    constant: tuple[str, ...]
    """Objectives that had the same value for every answer that was tried, so they may have no effect."""
    echo: float
    """The highest single score that the prompt itself earns when sent back as a response or as an answer."""
    conflict: ConflictReport | None
    """How far the objectives conflict; ``None`` if there are neither fronts nor demonstrations."""

    def __str__(self) -> str:
        lines = [f"{self.env}: {len(self.passed)} checks passed", *(f"  ok    {name}" for name in self.passed)]
        lines += [f"  skip  {name}" for name in self.skipped]
        if self.constant:
            lines.append(f"the same for every answer that was tried: {', '.join(self.constant)}")
        lines.append(f"an echo of the prompt scores at most {self.echo:.2f} on any objective")
        return "\n".join([*lines, *([str(self.conflict)] if self.conflict is not None else [])])


def check_vector_env(env: gym.Env[Any, Any], instances: int = 8) -> CheckReport:
    """Check that a text environment keeps the contract of :class:`~vpo_envs.core.VectorTextEnv`.

    The checks sample, so passing them is no proof. A front counts as incomplete if an answer beats it among
    demonstrations, answers of base classes, answers to the other tasks, and known answers changed at random: one part
    removed or one word replaced, two answers joined, words in another order. Points that need several right changes at
    once are missed, and so is chance in ``evaluate`` if no valid answer is known or can be guessed from the prompt.

    Args:
        env: The environment, wrapped or not. Its current episode is lost.
        instances: Number of tasks to check, at least 1.

    Returns:
        The checks that passed and those skipped, what an echo of the prompt earns, and how far the objectives conflict.

    Raises:
        TypeError: Not a text environment.
        ValueError: ``instances`` below 1.
        CheckFailed: A part of the contract is broken.
    """
    text_env = checked_text_env("check_vector_env", env, instances)
    name = env.spec.id if env.spec is not None else type(text_env).__name__
    subject = Subject(text_env, instances)
    passed, skipped = [], []
    for title, check in CHECKS.items():
        verdict, detail = verdict_of(check, subject)
        if verdict == "FAIL":
            raise CheckFailed(f"{name}: {title}: {detail}")
        if verdict == "ok":
            passed.append(title)
        else:
            skipped.append(f"{title}: {detail}")
    try:
        conflict = objective_conflict(text_env, instances)
    except UnknownFront:
        conflict = None
    echo = max(float(subject.echo(task).max()) for task in subject.tasks)
    return CheckReport(name, tuple(passed), tuple(skipped), constant_objectives(subject), echo, conflict)


def check_each(env: gym.Env[Any, Any], instances: int = 8) -> tuple[list[Finding], list[Row]]:
    """Check the contract of a text environment and audit its rewards, and go on after a failure.

    Args:
        env: The environment, wrapped or not. Its current episode is lost.
        instances: Number of tasks, at least 1.

    Returns:
        A finding for each check, and a row for each objective; no row if nothing can be scored.

    Raises:
        TypeError: Not a text environment.
        ValueError: ``instances`` below 1.
        NothingToScoreWith: The environment was made without what scores its answers.
    """
    subject = Subject(checked_text_env("vpo check", env, instances), instances)
    findings = [Finding(title, *verdict_of(check, subject)) for title, check in CHECKS.items()]
    try:
        rewards = EnvRewards(subject)
        rewards.seen += subject.vectors
        audit = Audit(rewards)
        return [*findings, *audit.run(skip=OF_THE_CONTRACT)], audit.table()
    except Exception as error:
        return [*findings, Finding("rewards", "FAIL", f"cannot be audited: {type(error).__name__}: {error}")], []


OF_THE_CONTRACT = ("hostile text", "range", "determinism")
"""Audits that the checks of the contract include."""


def verdict_of(check: Callable[[Subject], None], subject: Subject) -> tuple[Verdict, str]:
    """Run one check of the contract; return its verdict and the reason where it is not ok."""
    try:
        check(subject)
    except CannotCheck as reason:
        return "skipped", str(reason)
    except NothingToScoreWith:
        raise
    except CheckFailed as error:
        return "FAIL", str(error)
    except Exception as error:
        return "FAIL", f"{type(error).__name__}: {error}"
    return "ok", ""
