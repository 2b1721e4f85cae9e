"""The bundled problems as tasks, by split, preset and difficulty."""

from __future__ import annotations

import functools
from collections import Counter

from envs_data.code_problems import CodeProblem, load_problems
from vpo_envs.core import Split
from vpo_envs.tasks.code.task import CodeTask, CodeTest, Difficulty, example

SHOWN = 2
"""Number of inputs that become examples of the statement; they are no tests, so that answers cannot be copied."""


@functools.cache
def builtin_tasks(split: Split, preset: str, difficulty: Difficulty | None = None) -> tuple[CodeTask, ...]:
    """Return the bundled problems of a split: half are for training, a quarter each for validation and test."""
    problems = load_problems("conflict" if preset == "conflict" else "paper")
    splits: tuple[Split, ...] = ("train", "validation", "train", "test")
    # Problems of each difficulty so far; those of each are divided between the splits in turn.
    seen: Counter[str] = Counter()
    chosen = []
    for problem in problems:
        split_of_problem = splits[seen[problem.difficulty] % len(splits)]
        seen[problem.difficulty] += 1
        wanted = difficulty is None or preset == "conflict" or problem.difficulty == difficulty
        if wanted and split_of_problem == split:
            chosen.append(problem_task(problem))
    return tuple(chosen)


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
        readings=problem.readings,
    )
