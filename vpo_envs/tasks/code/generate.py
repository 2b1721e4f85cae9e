"""The bundled problems as tasks, by split, preset and difficulty."""

from __future__ import annotations

import functools

from envs_data.code_problems import CodeProblem, load_problems
from vpo_envs.core import Split
from vpo_envs.tasks.code.task import CodeTask, CodeTest, Difficulty, example

SHOWN = 2
"""Number of inputs that become examples of the statement; they are no tests, so that answers cannot be copied."""


@functools.cache
def builtin_tasks(split: Split, preset: str, difficulty: Difficulty | None = None) -> tuple[CodeTask, ...]:
    """Return the bundled problems of a split."""
    tasks = map(problem_task, load_problems("conflict" if preset == "conflict" else "paper"))
    wanted = [None, "conflict", difficulty] if difficulty is not None else None
    return tuple(task for task in tasks if task.split == split and (wanted is None or task.difficulty in wanted))


def problem_task(problem: CodeProblem) -> CodeTask:
    """Return a bundled problem as a task, its first inputs as examples and the others as tests."""
    tests = [
        CodeTest(input=given, output=wanted)
        for given, outputs in zip(problem.inputs, problem.outputs, strict=True)
        for wanted in outputs
    ]
    # Examples would give away which of several readings is meant.
    shown = 0 if problem.readings else SHOWN
    examples = [example(problem.kind, problem.entry, i, test) for i, test in enumerate(tests[:shown], start=1)]
    return CodeTask(
        title=problem.title,
        statement="\n\n".join([problem.statement.strip(), *examples]),
        kind=problem.kind,
        tests=tuple(tests[shown:]),
        entry=problem.entry,
        starter_code=problem.starter,
        difficulty=problem.difficulty,
        solution=problem.reference,
        mistakes=problem.wrong,
        readings=problem.readings,
    )
