"""Check that a text environment keeps its contract, and that rewards pay for what they should."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium as gym

from vpo_envs.checking.checks import CHECKS, CannotCheck, Check, Doubtful
from vpo_envs.checking.conflict import checked_text_env
from vpo_envs.checking.subject import Broken, CheckFailed, EnvSubject, Row, Subject
from vpo_envs.common.wording import told
from vpo_envs.contract.errors import NothingToScoreWith

__all__ = ["CheckFailed", "CheckReport", "check_each", "check_vector_env"]

Verdict = Literal["ok", "warning", "FAIL", "skipped"]


class Finding(NamedTuple):
    """The verdict of one check, with what it is based on."""

    check: str
    verdict: Verdict
    detail: str


class CheckReport(NamedTuple):
    """The result of checking an environment."""

    env: str
    passed: tuple[str, ...]
    """The checks that passed."""
    skipped: tuple[str, ...]
    """The checks that do not apply, each with the reason."""

    def __str__(self) -> str:
        lines = [f"{self.env}: {len(self.passed)} checks passed", *(f"  ok    {name}" for name in self.passed)]
        return "\n".join([*lines, *(f"  skip  {name}" for name in self.skipped)])


def check_vector_env(env: gym.Env[Any, Any], num_tasks: int = 8) -> CheckReport:
    """Check that a text environment keeps the contract of :class:`~vpo_envs.core.VectorTextEnv`.

    The checks sample, so passing them is no proof. A front counts as incomplete if one of the answers that are tried
    beats it. These are demonstrations, answers of base classes, answers to the other tasks, and known answers changed
    at random: one part removed, one word replaced, two answers joined, or the words in another order. Points that need
    several right changes at once are missed. Chance in ``evaluate`` is missed if no valid answer is known or can be
    guessed from the prompt.

    Args:
        env: The environment, wrapped or not. Its current episode is lost.
        num_tasks: Number of tasks to check, at least 1.

    Raises:
        TypeError: Not a text environment.
        ValueError: ``num_tasks`` below 1.
        CheckFailed: A part of the contract is broken.
    """
    subject = EnvSubject(checked_text_env("check_vector_env", env, num_tasks), num_tasks)
    name = env.spec.id if env.spec is not None else type(subject.env).__name__
    passed, skipped = [], []
    for check, verdict, detail in run_checks(subject, [check for check in CHECKS if check.contract]):
        if verdict == "FAIL":
            raise CheckFailed(f"{name}: {check}: {detail}")
        if verdict == "skipped":
            skipped.append(f"{check}: {detail}")
        else:
            passed.append(check)
    return CheckReport(name, tuple(passed), tuple(skipped))


def check_each(
    subject: Subject | gym.Env[Any, Any],
    num_tasks: int = 8,
    watched: Callable[[Sequence[Check]], Iterable[Check]] = iter,
) -> tuple[list[Finding], list[Row]]:
    """Check an environment or reward functions, and go on after a failure unless it is the cause of all others.

    ``watched`` passes the checks on one by one, and so learns of the progress.

    Returns:
        A finding for each check, and a row for each objective; no row if nothing can be scored.
    """
    if not isinstance(subject, Subject):
        subject = EnvSubject(checked_text_env("vpo check", subject, num_tasks), num_tasks)
    findings = list(run_checks(subject, watched(CHECKS)))
    stopped = findings[-1].check == OTHERS
    return findings, [] if stopped else subject.table()


OTHERS = "all other checks"


def run_checks(subject: Subject, checks: Iterable[Check]) -> Iterator[Finding]:
    """Yield the findings of the checks that apply, up to one that is the cause of what follows."""
    for check in checks:
        replies = isinstance(subject, EnvSubject) and bool(subject.env.turn_tags)
        if not (check.of_functions or isinstance(subject, EnvSubject)) or (check.of_turns and not replies):
            continue
        try:
            yield Finding(check.name, "ok", check.run(subject) or "")
            continue
        except CannotCheck as reason:
            yield Finding(check.name, "skipped", str(reason))
            continue
        except Doubtful as doubt:
            yield Finding(check.name, "warning", str(doubt))
            continue
        except NothingToScoreWith:
            raise
        except CheckFailed as failure:
            yield Finding(check.name, "FAIL", str(failure))
            if not check.cause:
                continue
        except Exception as error:
            yield Finding(check.name, "FAIL", str(error) if isinstance(error, Broken) else told(error))
        yield Finding(OTHERS, "skipped", f"they would fail for the same cause as {check.name!r}: mend it first")
        return
