"""``vpo/Code-v0``: programming problems, one objective for each test."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs_data.readers import OnBadRow
from vpo_envs.core import AnswerTimeout, Objective, RewardBatch, ScorerFailure, Split, Status, UnknownFront, Unparsable
from vpo_envs.data_env import DataTextEnv, Mode
from vpo_envs.sandbox import Limits, Sandbox, SandboxUnavailable, Wanted
from vpo_envs.tasks.code.front import best_outcomes
from vpo_envs.tasks.code.generator import builtin_tasks
from vpo_envs.tasks.code.rows import read_code_row
from vpo_envs.tasks.code.scoring import CodeOutcome, run_tests
from vpo_envs.tasks.code.task import MAX_TESTS, CodeTask, Difficulty
from vpo_envs.tasks.code.text import code_prompt, read_source
from vpo_envs.text import split_answers

logger = logging.getLogger("vpo_envs.tasks.code")

# What this thread has run before it is asked for, by environment, task and program. Each thread has its own, since
# several may score with one environment.
_ahead: ContextVar[dict[tuple[int, int, str], CodeOutcome | Exception] | None] = ContextVar("ahead", default=None)


@functools.cache
def _slots(workers: int) -> threading.BoundedSemaphore:
    """Places for candidates in flight; shared, so that threads which score at one time do not multiply them."""
    return threading.BoundedSemaphore(workers)


def _test_objective(position: int) -> Objective:
    def score(outcome: CodeOutcome) -> float:
        return float(position < len(outcome.verdicts) and outcome.verdicts[position] == "passed")

    return Objective(f"test_{position + 1}", f"Test {position + 1} is passed", score)


class CodeEnv(DataTextEnv[CodeTask, str, CodeOutcome]):
    """Write programs; each test of the problem is one objective.

    ## Description

    A statement asks for a Python function, or for a program that reads standard input. Every answer is run in a
    sandbox of its own, in a fresh process for each test, and what it returned or printed is compared outside with what
    the test expects. The decomposition is that of Vector Policy Optimization (arXiv 2605.22817) on LiveCodeBench.

    ## Action space

    Text: ``num_answers`` programs, each in its tag, fenced or not. Where a tag holds several fenced blocks, the last
    counts. A function may stand alone or as a method of ``class Solution``; a program may read ``sys.stdin``,
    ``sys.stdin.buffer`` or descriptor 0, and may end in ``sys.exit(main())``.

    ## Observation space

    Text: the statement, examples, starter code and what is wanted.

    ## Rewards

    16 objectives ``test_1`` to ``test_16``, each 1 where the test is passed, else 0. A problem with fewer tests has
    fewer active objectives; the others are 0 and carry no weight. Every test is run, also after one has failed. A test
    is passed if the code ended by itself with exit code 0 and gave what is expected: a program's output line by line,
    blanks at the ends of lines aside; a function's value as plain data, floats within 1e-6. An answer that is out of
    time in every test has the status ``timed_out``; a sandbox that cannot be set up makes it ``invalid``, never 0.

    ## Starting state

    A problem of the split: the project's own (``source="builtin"``), or rows of LiveCodeBench
    (code_generation_lite), DeepCoder or MBPP.

    ## Conflict mode

    ``mode="conflict"`` asks for functions whose statement can be read in three ways. Each input is tested once for
    each reading, so no program passes all tests, and a set of answers that takes different readings is worth more than
    any single one. The front is exact over all programs whose result depends on their input alone.

    ## Episode end

    After the one response, or after ``num_answers`` steps with ``answers_as_steps=True``.

    ## Information

    ``info["reward_matrix"]`` (m, 16), ``status`` per answer, ``outcomes`` with a verdict for each test (``passed``,
    ``wrong``, ``error``, ``timed_out``, ``output_limit``) and the sandbox's tier.

    ## Version history

    * v0: first version.

    Args:
        source: ``"builtin"``, a path, or ``"hf:org/name"``.
        mode: ``"paper"`` or ``"conflict"``.
        difficulty: ``"easy"``, ``"medium"`` or ``"hard"`` to keep to that of the built-in problems; all where ``None``.
        time_limit: Seconds of each test.
        memory_mb: Megabytes of memory of each test.
        sandbox: ``"auto"`` for the best tier that the machine holds, or a tier to insist on.
        allow_unsafe: Permit tier D, which confines nothing but resources.
        workers: Candidates in flight at one time, however many threads score; one for each processor where ``None``.
        on_bad_row: ``"error"`` or ``"skip"``.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        num_answers: Programs per response.
        answers_as_steps: One program a step.
        data_seed: Which order of the built-in problems.
        render_mode: ``None`` or ``"ansi"``.
    """

    task_type = CodeTask
    namespace = 5
    objectives = tuple(_test_objective(i) for i in range(MAX_TESTS))

    def __init__(
        self,
        *,
        source: str = "builtin",
        mode: Mode = "paper",
        difficulty: Difficulty | None = None,
        time_limit: float = 6.0,
        memory_mb: int = 1024,
        sandbox: Wanted = "auto",
        allow_unsafe: bool = False,
        workers: int | None = None,
        on_bad_row: OnBadRow = "error",
        split: Split = "train",
        num_answers: int = 1,
        answers_as_steps: bool = False,
        data_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        if difficulty not in (None, "easy", "medium", "hard"):
            raise ValueError(f"unknown difficulty {difficulty!r}: choose easy, medium or hard")
        if not 0 < time_limit <= 3600:
            raise ValueError(f"time_limit must be above 0 and at most 3600 seconds, got {time_limit}")
        if memory_mb < 64:
            raise ValueError(f"memory_mb must be at least 64, which Python itself needs; got {memory_mb}")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        super().__init__(
            source=source,
            mode=mode,
            on_bad_row=on_bad_row,
            split=split,
            num_answers=num_answers,
            answers_as_steps=answers_as_steps,
            data_seed=data_seed,
            render_mode=render_mode,
        )
        self.difficulty = difficulty
        self.sandbox = Sandbox(
            sandbox, allow_unsafe=allow_unsafe, limits=Limits(seconds=float(time_limit), memory_mb=memory_mb)
        )
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self._solved: dict[str, CodeOutcome] = {}

    def generate(self, rng: np.random.Generator) -> CodeTask:
        """Draw one of the built-in problems of this split."""
        tasks = builtin_tasks(self.split, self.mode, self.difficulty)
        return tasks[int(rng.integers(len(tasks)))]

    def read_row(self, raw: Mapping[str, Any]) -> CodeTask:
        """A row of LiveCodeBench, DeepCoder or MBPP, or a problem in this project's own form."""
        return read_code_row(raw)

    def prompt(self, task: CodeTask, num_answers: int) -> str:
        """The problem and what is wanted."""
        return code_prompt(task, num_answers)

    def parse(self, text: str) -> str:
        """Read the program."""
        return read_source(text)

    def evaluate(self, task: CodeTask, answer: str) -> CodeOutcome:
        """Run the program on every test."""
        found = (_ahead.get() or {}).get((id(self), id(task), answer))
        if found is None:
            found = self._run(task, answer)
        if isinstance(found, Exception):
            raise found
        return found

    def evaluate_many(self, pairs: Sequence[tuple[CodeTask, str]]) -> list[CodeOutcome | Exception]:
        """Run many programs, ``workers`` of them at one time.

        Returns:
            For each pair its outcome, or the error that :meth:`evaluate` raises for it.
        """
        if len(pairs) < 2 or self.workers == 1:
            return [self._run(task, source) for task, source in pairs]
        pool = ThreadPoolExecutor(min(self.workers, len(pairs)), thread_name_prefix="sandbox")
        try:
            return list(pool.map(lambda pair: self._run(*pair), pairs))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def score_answers(
        self, task: CodeTask, answers: Sequence[str | None], seen: set[str] | None = None
    ) -> tuple[list[tuple[float, ...]], list[Status], list[CodeOutcome | None]]:
        """Score the answers of one response, several of them at one time."""
        with self._run_ahead([(task, text) for text in answers], seen or set()):
            return super().score_answers(task, answers, seen)

    def score_batch(
        self, tasks: Sequence[CodeTask], responses: Sequence[str], num_answers: int | None = None
    ) -> RewardBatch:
        """Score responses without episodes, several programs at one time."""
        m = self.num_answers if num_answers is None else num_answers
        answers: list[tuple[CodeTask, str | None]] = []
        if m >= 1 and len(tasks) == len(responses):  # else the error is the base class's to raise
            pairs = zip(tasks, responses, strict=True)
            answers = [(task, text) for task, response in pairs for text in split_answers(response, m)]
        with self._run_ahead(answers, set()):
            return super().score_batch(tasks, responses, num_answers)

    def active(self, task: CodeTask) -> NDArray[np.bool_]:
        """One objective for each test that the problem has."""
        return np.arange(self.reward_dim) < len(task.tests)

    def outcome_front(self, task: CodeTask) -> Sequence[tuple[CodeOutcome, str]]:
        """The outcomes that no program beats: all tests passed, or every choice between the readings of each input.

        Raises:
            UnknownFront: The problem comes without a solution that passes its tests.
        """
        if task.readings:
            return best_outcomes(task, self.sandbox.tier.value)
        if not task.solution:
            raise UnknownFront(f"problem {task.title!r} comes without a solution, so its front is not known")
        key = task.content_hash()
        if key not in self._solved:
            self._solved[key] = self.evaluate(task, self.parse(task.solution))
        if not all(self._solved[key].passed):
            raise UnknownFront(f"the solution of problem {task.title!r} does not pass all of its tests")
        return [(self._solved[key], task.solution)]

    def demonstrations(self, task: CodeTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        """Reference solutions: those of the readings in turn, else the one there is."""
        sources = list(task.readings) or [task.solution] * bool(task.solution)
        if not sources:
            raise NotImplementedError(f"problem {task.title!r} comes without a solution")
        start = int(rng.integers(len(sources)))
        return [sources[(start + i) % len(sources)] for i in range(num_answers)]

    @contextlib.contextmanager
    def _run_ahead(self, answers: Sequence[tuple[CodeTask, str | None]], seen: set[str]) -> Iterator[None]:
        """Run every distinct program that was not run yet, for :meth:`evaluate` to find."""
        known = _ahead.get() or {}
        wanted: dict[tuple[int, int, str], tuple[CodeTask, str]] = {}
        for task, text in answers:
            if text is None:
                continue
            try:
                source = self.parse(text)
            except Unparsable:
                continue
            key = (id(self), id(task), source)
            if source not in seen and key not in known:
                wanted[key] = (task, source)
        token = _ahead.set({**known, **dict(zip(wanted, self.evaluate_many(list(wanted.values())), strict=True))})
        try:
            yield
        finally:
            _ahead.reset(token)

    def _run(self, task: CodeTask, source: str) -> CodeOutcome | Exception:
        try:
            with _slots(self.workers):
                outcome = run_tests(task, source, self.sandbox)
        except SandboxUnavailable as error:
            logger.error("an answer could not be scored: %s", error)
            return ScorerFailure(str(error))
        if all(verdict == "timed_out" for verdict in outcome.verdicts):
            return AnswerTimeout(f"no test ended within {self.sandbox.limits.seconds:g} seconds")
        return outcome
