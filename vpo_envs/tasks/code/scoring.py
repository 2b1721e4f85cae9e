"""The verdict on a program for each test of a problem, decided here and not in the sandbox that ran it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from vpo_envs.sandbox import Claim, Program, RunResult, Sandbox, same_output
from vpo_envs.tasks.code.task import CodeTask, CodeTest

Verdict = Literal["passed", "wrong", "error", "timed_out", "output_limit"]
FAILED: tuple[Verdict, ...] = ("error", "timed_out", "output_limit")
"""The verdicts on a run without a result."""


class CodeOutcome(NamedTuple):
    """The facts about one answer, which the objectives score."""

    verdicts: tuple[Verdict, ...]
    """One for each test of the problem."""
    tier: str = ""
    """The sandbox's tier; empty if nothing was run."""
    constant: bool = False
    """Whether all tests that it passes expect one result, though others do not; so it is with a constant program."""

    @property
    def passed(self) -> tuple[bool, ...]:
        """Whether the answer passed each test."""
        return tuple([verdict == "passed" for verdict in self.verdicts])


def run_tests(task: CodeTask, source: str, sandbox: Sandbox) -> CodeOutcome:
    """Run a program on every test of a problem.

    The sandbox receives inputs only. An input that several tests share runs once, so a program cannot answer it in
    several ways.

    Raises:
        SandboxUnavailable: No sandbox could be set up, or the host failed.
    """
    inputs = tuple(dict.fromkeys(test.input for test in task.tests))
    ran = sandbox.run(Program(source, task.kind, inputs, task.entry, task.setup))
    runs = dict(zip(inputs, ran.runs, strict=True))
    return outcome_of(task, [judge(task, test, runs[test.input]) for test in task.tests], ran.tier.value)


def outcome_of(task: CodeTask, verdicts: Sequence[Verdict], tier: str = "") -> CodeOutcome:
    """Return the outcome of these verdicts on the tests of a problem."""
    right = {test.output for test, verdict in zip(task.tests, verdicts, strict=True) if verdict == "passed"}
    several = all(len({getattr(test, side) for test in task.tests}) > 1 for side in ("input", "output"))
    return CodeOutcome(tuple(verdicts), tier, several and len(right) == 1)


def judge(task: CodeTask, test: CodeTest, run: RunResult) -> Verdict:
    """Compare the output of a run with what a test expects.

    A run passes only if it also exited by itself with code 0; an exit code alone is never a pass.
    """
    if run.ending == "timed_out" or run.ending == "output_limit":
        return run.ending
    if run.ending != "exited" or run.code != 0:
        return "error"
    if task.kind == "stdin":
        return "passed" if same_output(run.stdout, test.output) else "wrong"
    if not run.result:
        return "error"
    try:
        equal = Claim(run.result).equals(task.expected(test), as_json=task.kind == "call")
    except ValueError:
        return "error"
    return "passed" if equal else "wrong"
