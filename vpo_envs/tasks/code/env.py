"""``vpo/Code-v0``: programming problems, one objective for each test."""

from __future__ import annotations

import functools
import logging
import os
import random
import threading
from collections.abc import Mapping, Sequence
from itertools import chain, cycle
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vpo_envs.common.threads import map_in_threads
from vpo_envs.core import FAILURES, AnswerTimeout, Failure, Objective, ScorerFailure, UnknownFront
from vpo_envs.pareto import FactGrid
from vpo_envs.sandbox import Limits, SandboxUnavailable, Wanted, check_wanted, choose_tier
from vpo_envs.tasks.base import in_random_order
from vpo_envs.tasks.code.generate import builtin_tasks
from vpo_envs.tasks.code.rows import read_code_row
from vpo_envs.tasks.code.task import (
    FAILED,
    MAX_TESTS,
    CodeOutcome,
    CodeTask,
    Difficulty,
    Verdict,
    best_outcomes,
    code_prompt,
    read_source,
    run_tests,
    shown_tests,
)
from vpo_envs.tasks.refine import RefiningEnv

logger = logging.getLogger("vpo_envs.tasks.code")


@functools.cache
def _slots(workers: int) -> threading.BoundedSemaphore:
    """Return the semaphore that limits the candidates in flight across all threads of this process."""
    return threading.BoundedSemaphore(workers)


def passed(position: int, outcome: CodeOutcome) -> float:
    """Return whether the test at a position is passed, as 1 or 0; a partial of it is an objective's score."""
    return float(position < len(outcome.verdicts) and outcome.verdicts[position] == "passed")


def _outcome_of(*verdicts: Verdict) -> CodeOutcome:
    return CodeOutcome(verdicts)


class CodeEnv(RefiningEnv[CodeTask, str, CodeOutcome]):
    """Write programs; each test of the problem is one objective.

    ## Description

    A statement asks for a Python function, or for a program that reads standard input. Every answer runs in a sandbox
    of its own, with a fresh process for each test, and its return value or output is compared outside the sandbox with
    what the test expects. The decomposition is that of Vector Policy Optimization (arXiv 2605.22817) on LiveCodeBench.
    Problems are bundled, or rows of LiveCodeBench (code_generation_lite), DeepCoder or MBPP.

    ## Action space

    Text: ``num_answers`` programs, each in its tag, fenced or not. If a tag holds several fenced blocks, the last one
    that is not empty counts. A function may stand alone or as a method of ``class Solution``. A program runs as Python
    itself runs it: it may read ``sys.stdin`` or descriptor 0, write ``sys.stdout`` or descriptor 1, and end in
    ``exit()`` or ``sys.exit(main())``. As in LiveCodeBench, both may recurse 50,000 calls deep, and need no import for
    the usual names of the standard library.

    ## Rewards

    16 objectives ``test_1`` to ``test_16``, each 1 if the test is passed, else 0. A problem with fewer tests has fewer
    active objectives; the others are 0 and carry no weight. Every test runs, even after one has failed.

    A test is passed if the code exits by itself with code 0 and gives the expected result. A program's output is
    compared line by line, without blanks at either end. Lines of numbers are compared by value, decimals within 1e-6. A
    function's value is compared as plain data, floats within 1e-6 or the tolerance that the test states.

    In the built-in problems the examples of the prompt are no tests. A program earns nothing if all the tests that it
    passes expect the same result, so that no constant program earns anything.

    An answer that times out in every test has the status ``timed_out``. ``info["outcomes"]`` holds a verdict for each
    test (``passed``, ``wrong``, ``error``, ``timed_out``, ``output_limit``) and the sandbox's tier. If the sandbox
    cannot be set up or the host fails, the status is ``invalid``, which is not a score.

    ``pareto_front()`` is exact for problems with a solution. It is also exact for a subclass with other objectives, if
    none of them falls when one more test is passed, or gives a wrong result instead of none.

    ## Conflict

    ``preset="conflict"`` asks for functions whose statement can be read in three ways. Each input is tested once for
    each reading, so no program passes all tests, and a set of answers that follow different readings scores more than
    any single answer. The front is exact over all programs whose result depends on their input alone.

    Args:
        preset: ``"paper"`` (default), ``"conflict"`` with twelve problems, or ``"compact"``, a class of its own:
            ``vpo_envs.CodeCompactEnv``.
        difficulty: ``"easy"``, ``"medium"`` or ``"hard"`` selects bundled problems; ``None`` takes all of them.
        time_limit: Seconds per test.
        memory_mb: Megabytes of memory per test.
        sandbox: ``"auto"`` for the best tier that works on this machine, or one particular tier.
        workers: Candidates in flight at a time, across all threads; ``None`` means one per processor.
        refine: Tell which examples of the prompt each answer but the last passes, before the next answer.
        **options: Those of :class:`vpo_envs.TaskEnv`: ``source``, ``split`` and others.
    """

    task_type: ClassVar[type[CodeTask]] = CodeTask
    runs_programs = True
    namespace = 5
    presets = MappingProxyType(
        {"paper": None, "conflict": None, "compact": "vpo_envs.tasks.code.compact:CodeCompactEnv"}
    )
    objectives = monotone_objectives = tuple(
        Objective(f"test_{i + 1}", f"Test {i + 1} is passed", functools.partial(passed, i)) for i in range(MAX_TESTS)
    )

    def __init__(
        self,
        *,
        difficulty: Difficulty | None = None,
        time_limit: float = 6.0,
        memory_mb: int = 1024,
        sandbox: Wanted = "auto",
        workers: int | None = None,
        **options: Any,
    ) -> None:
        if difficulty not in (None, "easy", "medium", "hard"):
            raise ValueError(f"unknown difficulty {difficulty!r}: choose easy, medium or hard")
        if not 0 < time_limit <= 3600:
            raise ValueError(f"time_limit must be above 0 and at most 3600 seconds, got {time_limit}")
        if memory_mb < 64:
            raise ValueError(f"memory_mb must be at least 64, which Python itself needs; got {memory_mb}")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        check_wanted(sandbox)
        super().__init__(**options)
        if self.refine and self.preset == "conflict":
            raise ValueError("preset='conflict' shows no examples, so refine=True has nothing to tell: leave it out")
        self.difficulty = difficulty
        self.sandbox: Wanted = sandbox
        self.limits = Limits(seconds=float(time_limit), memory_mb=memory_mb)
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self._solved: dict[str, CodeOutcome] = {}

    def draw(self, source: random.Random) -> CodeTask | None:
        """Draw one of the bundled problems of this split."""
        return source.choice(builtin_tasks(self.split, self.preset, self.difficulty))

    example_row: ClassVar[dict[str, Any]] = {
        "text": "Write a function to add two numbers.",
        "code": "def add(a, b):\n    return a + b",
        "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
    }
    read_row = staticmethod(read_code_row)
    parse = staticmethod(read_source)

    def prompt(self, task: CodeTask, num_answers: int) -> str:
        """Return the statement, its examples, and the form of the answers."""
        return code_prompt(task, num_answers, constant_earns=bool(self.rows), told=self.tells(task))

    def tells(self, task: CodeTask) -> bool:
        """Return whether the results of an attempt are told before the next."""
        return self.refine and bool(shown_tests(task))

    def results(self, task: CodeTask, answer: str) -> str | None:
        """Return the verdict on each example of the prompt."""
        examples = shown_tests(task)
        if not examples:
            return None
        outcome = self.try_evaluate(task.model_copy(update={"tests": examples, "readings": ()}), answer)
        if isinstance(outcome, FAILURES):
            return str(outcome)
        verdicts = enumerate((verdict.replace("_", " ") for verdict in outcome.verdicts), start=1)
        return "\n".join(f"Example {number}: {verdict}" for number, verdict in verdicts)

    def evaluate(self, task: CodeTask, answer: str) -> CodeOutcome:
        """Run the program on every test."""
        try:
            with _slots(self.workers):
                outcome = run_tests(task, answer, choose_tier(self.sandbox), self.limits)
        except SandboxUnavailable as error:
            logger.error("an answer could not be scored: %s", error)
            raise ScorerFailure(str(error)) from None
        if all(verdict == "timed_out" for verdict in outcome.verdicts):
            raise AnswerTimeout(f"no test ended within {self.limits.seconds:g} seconds")
        return outcome

    def evaluate_many(self, pairs: Sequence[tuple[CodeTask, str]]) -> list[CodeOutcome | Failure]:
        """Run the programs, up to ``workers`` of them at a time."""
        return map_in_threads(lambda pair: self.try_evaluate(*pair), pairs, self.workers, "sandbox")

    def active(self, task: CodeTask) -> NDArray[np.bool_]:
        """Return one active objective for each test of the problem."""
        return np.arange(self.reward_dim) < len(task.tests)

    def feasible(self, outcome: CodeOutcome) -> bool:
        """Return whether a program passes tests with different results; rows of a data set do not require it."""
        return bool(self.rows) or not outcome.constant

    def why(self, task: CodeTask, facts: Mapping[str, Any]) -> str:
        """Return the verdicts on the tests that are not passed."""
        tests = zip(self.objective_names, facts["verdicts"], strict=False)
        failed = [f"{name} {verdict.replace('_', ' ')}" for name, verdict in tests if verdict != "passed"]
        return ", ".join(["the tests passed expect one result"] * facts["constant"] + failed)

    def outcome_front(self, task: CodeTask) -> Sequence[tuple[CodeOutcome, str]]:
        """Return the outcomes that no program beats: all tests passed, or every choice of a reading for each input."""
        if task.readings:
            return best_outcomes(task)
        if not task.solution:
            raise UnknownFront(f"problem {task.title!r} has no solution, so its front is unknown")
        key = task.content_hash()
        if key not in self._solved:
            self._solved[key] = self.evaluate(task, self.parse(task.solution))
        if not all(self._solved[key].passed):
            raise UnknownFront(f"the solution of problem {task.title!r} does not pass all of its tests")
        return [(self._solved[key], task.solution)]

    def fact_grids(self, task: CodeTask) -> Sequence[FactGrid]:
        """Return outcomes that get better test by test, from any failure to a wrong result to a pass."""
        worst = [[FAILED[(test + i) % len(FAILED)] for test in range(len(task.tests))] for i in range(len(FAILED))]
        return [FactGrid(_outcome_of, tuple((verdict, "wrong", "passed") for verdict in each)) for each in worst]

    def demonstrations(self, task: CodeTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Return the solutions of the readings, or the reference solution among likely mistakes.

        Then come the same programs with a comment of their own.
        """
        sources = in_random_order(rng, task.readings or [task.solution] * bool(task.solution))
        if not sources:
            raise NotImplementedError(f"problem {task.title!r} has no solution")
        known = [*sources, *in_random_order(rng, task.mistakes)]
        first = in_random_order(rng, known[:num_answers])
        others = (f"# Version {number}\n{source.strip()}\n" for number, source in enumerate(cycle(known), start=2))
        return self.different(task, chain(first, others), num_answers)
