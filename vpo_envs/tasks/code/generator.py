"""The bundled problems as tasks, by split, mode and difficulty."""

from __future__ import annotations

import functools

from envs_data.code_problems import CodeProblem, load_problems
from vpo_envs.core import Split
from vpo_envs.data_env import Mode
from vpo_envs.tasks.code.task import CodeTask, CodeTest, Difficulty

SHOWN = 2
"""Number of tests that the prompt shows as examples."""


@functools.cache
def builtin_tasks(split: Split, mode: Mode, difficulty: Difficulty | None = None) -> tuple[CodeTask, ...]:
    """Return the bundled problems of a split: half are for training, a quarter each for validation and test.

    Args:
        split: The split.
        mode: ``"paper"`` for problems with one meaning, ``"conflict"`` for those with several readings.
        difficulty: One of the three, or all if ``None``; problems with readings have none.
    """
    problems = load_problems("conflict" if mode == "conflict" else "paper")
    splits: tuple[Split, ...] = ("train", "validation", "train", "test")
    levels: dict[str, int] = {}
    chosen = []
    for problem in problems:
        place = levels[problem.difficulty] = levels.get(problem.difficulty, -1) + 1
        wanted = difficulty is None or mode == "conflict" or problem.difficulty == difficulty
        if wanted and splits[place % 4] == split:
            chosen.append(problem_task(problem))
    return tuple(chosen)


def problem_task(problem: CodeProblem) -> CodeTask:
    """Return a bundled problem as a task."""
    tests = [
        CodeTest(input=given, output=wanted)
        for given, outputs in zip(problem.inputs, problem.outputs, strict=True)
        for wanted in outputs
    ]
    return CodeTask(
        title=problem.title,
        statement=problem.statement,
        kind=problem.kind,
        tests=tuple(tests),
        # Examples would give away which of several readings is meant.
        shown=0 if problem.readings else SHOWN,
        entry=problem.entry,
        starter_code=problem.starter,
        difficulty=problem.difficulty,
        solution=problem.reference,
        readings=problem.readings,
    )
