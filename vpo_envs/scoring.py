"""Score answers in this thread, or in a pool of threads or processes."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from operator import methodcaller
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import cloudpickle
import numpy as np

from vpo_envs.core import Reason, RewardBatch, Status, VectorTextEnv

ScorerPool = Literal["none", "threads", "processes"]

AnyEnv = VectorTextEnv[Any, Any, Any]
T = TypeVar("T")

DIED = Reason("the worker process that scored the answer died")
CHUNKS_PER_WORKER = 4
"""Parts per worker that a batch is cut into, so that one part with slow answers does not hold up the others."""


class ScoringJob(NamedTuple):
    """The answers of one step of one environment."""

    task: Any
    answers: list[str | None]
    seen: set[Any]
    """Answers given before, as for ``score_answers``."""


class Scored(NamedTuple):
    """The scores of a job."""

    vectors: list[tuple[float, ...]]
    statuses: list[Status]
    outcomes: list[Any]
    seen: set[Any]
    """The answers given before and the new ones."""


class Scorer:
    """Scores with an environment's own methods, in parallel if there is a pool; the scores are the same.

    A pool starts with the first answers and lives until :meth:`close`, after which new answers start another. As a
    context manager the scorer closes its pool at the end; an inner ``with`` on the same scorer leaves it open.

    Args:
        env: The environment. Each worker process has a copy of it; threads share it.
        pool: ``"none"``, ``"threads"`` (for scorers that wait for a subprocess or a server) or ``"processes"``
            (for scorers that compute).
        workers: Size of the pool; ``None`` leaves it to Python.
        others: More environments that the same workers score with, such as those of other splits.

    Raises:
        ValueError: An unknown pool, a bad size, or an environment that cannot be copied to workers.
    """

    def __init__(
        self, env: AnyEnv, pool: ScorerPool = "none", workers: int | None = None, *, others: Sequence[AnyEnv] = ()
    ) -> None:
        if pool not in get_args(ScorerPool):
            raise ValueError(f"unknown scorer_pool {pool!r}: choose one of {', '.join(get_args(ScorerPool))}")
        if workers is not None and workers < 1:
            raise ValueError(f"scorer_workers must be at least 1, got {workers}")
        self.pool: ScorerPool = pool
        self._envs = [env, *others]
        self._workers = workers
        self._copies = _pickled(self._envs) if pool == "processes" else b""
        self._executor: Executor | None = None
        self._entered = 0

    def score_batch(
        self,
        tasks: Sequence[Any],
        responses: Sequence[str],
        env: AnyEnv | None = None,
        num_answers: int | None = None,
    ) -> RewardBatch:
        """Score responses as ``env.score_batch`` does, in parts that run in parallel.

        If a worker dies, the response that it was scoring is ``Status.INVALID``, which is not a score, and the others
        are scored again. Errors that the environment raises are raised here.

        Args:
            tasks: n instances, one per response.
            responses: n whole responses.
            env: Which of the environments; the first if ``None``.
            num_answers: m; the environment's own if ``None``.

        Raises:
            ValueError: The numbers of tasks and responses differ, or workers do not start.
        """
        env = self._envs[0] if env is None else env
        if self.pool == "none" or len(tasks) != len(responses) or not tasks:
            return env.score_batch(tasks, responses, num_answers)
        workers = self._ready()._max_workers  # type: ignore[attr-defined]  # all of them have it
        size = -(-len(tasks) // (CHUNKS_PER_WORKER * workers))
        chunks = [(tasks[at : at + size], responses[at : at + size]) for at in range(0, len(tasks), size)]
        futures = [self._submit(env, methodcaller("score_batch", *chunk, num_answers)) for chunk in chunks]
        found = [_unless_died(future) for future in futures]
        if None in found:
            self._renew()
        parts = []
        for batch, chunk in zip(found, chunks, strict=True):
            # One at a time, so that only the response at fault stays without a score.
            lost = zip(*chunk, strict=True) if batch is None else ()
            parts += [self._score_alone(env, *one, num_answers) for one in lost] if batch is None else [batch]
        rewards, status = (np.concatenate(part) for part in list(zip(*parts, strict=True))[:2])
        return RewardBatch(rewards, status, next((part.failure for part in parts if part.failure), ""))

    def submit(self, jobs: Sequence[ScoringJob]) -> list[Future[Scored]]:
        """Start scoring; without a pool it is done on return."""
        if self.pool != "none":
            return [self._submit(self._envs[0], score, job) for job in jobs]
        finished: list[Future[Scored]] = [Future() for _ in jobs]
        for future, job in zip(finished, jobs, strict=True):
            future.set_result(score(self._envs[0], job))
        return finished

    def collect(self, jobs: Sequence[ScoringJob], futures: Sequence[Future[Scored]]) -> list[Scored]:
        """Wait for the scores.

        Answers whose worker died, and answers lost with it, are ``Status.INVALID``. The next jobs get new workers.
        """
        found = [_unless_died(future) for future in futures]
        if None in found:
            self._renew()
        return [self._failed(job) if scored is None else scored for job, scored in zip(jobs, found, strict=True)]

    def close(self) -> None:
        """Stop the workers."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

    def __enter__(self) -> Scorer:
        """Return the scorer itself."""
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pool at the end of the outermost ``with``."""
        self._entered -= 1
        if not self._entered:
            self.close()

    def _submit(self, env: AnyEnv, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Have a worker call ``function(env, *arguments)`` with its copy of ``env``."""
        executor = self._ready()
        try:
            if self.pool == "threads":
                return executor.submit(function, env, *arguments)
            return executor.submit(_in_worker, function, self._envs.index(env), *arguments)
        except BrokenExecutor as error:  # a process died while other jobs wait for their turn
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _ready(self) -> Executor:
        """Return the executor, starting it if necessary."""
        if self._executor is None:
            self._executor = self._make_executor()
            try:
                # Otherwise the death of a worker at its start would be blamed on an answer.
                self._executor.submit(int).result()
            except BrokenExecutor as error:
                self.close()
                reason = str(error).strip().rpartition("\n")[2]
                raise ValueError(
                    f"the workers of scorer_pool {self.pool!r} end as they start ({reason}): make sure that a new "
                    f"process can import {type(self._envs[0]).__name__}, or choose scorer_pool 'threads'"
                ) from error
        return self._executor

    def _make_executor(self) -> Executor:
        if self.pool == "threads":
            return ThreadPoolExecutor(self._workers, thread_name_prefix="scorer")
        # A forked copy of a process with threads, such as any that has used torch, can hang; a fork server has none.
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            context.set_forkserver_preload([__name__])
        return ProcessPoolExecutor(self._workers, context, initializer=_start_process, initargs=(self._copies,))

    def _renew(self) -> None:
        """Drop a pool with dead workers: one dead process breaks the whole pool."""
        self.close()

    def _score_alone(self, env: AnyEnv, task: Any, response: str, num_answers: int | None) -> RewardBatch:
        scoring = methodcaller("score_batch", [task], [response], num_answers)
        batch: RewardBatch | None = _unless_died(self._submit(env, scoring))
        if batch is not None:
            return batch
        self._renew()
        m = num_answers or env.num_answers
        status = np.full((1, m), Status.INVALID, dtype=np.int8)
        return RewardBatch(np.zeros((1, m, env.reward_dim), dtype=np.float32), status, str(DIED))

    def _failed(self, job: ScoringJob) -> Scored:
        count = len(job.answers)
        zero = (0.0,) * self._envs[0].reward_dim
        return Scored([zero] * count, [Status.INVALID] * count, [DIED] * count, job.seen)


def score(env: AnyEnv, job: ScoringJob) -> Scored:
    """Score one job in this thread."""
    seen = copy.copy(job.seen)
    vectors, statuses, outcomes = env.score_answers(job.task, job.answers, seen)
    return Scored(vectors, statuses, outcomes, seen)


# Copies for workers --------------------------------------------------------------------------------------------------


def _pickled(envs: list[AnyEnv]) -> bytes:
    """Return the copies for workers in other processes."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(envs)
    except Exception as error:  # whatever the environment's own parts raise
        raise ValueError(
            f"{type(envs[0]).__name__} cannot be copied to the workers of scorer_pool 'processes' ({error}): make it "
            "picklable, or choose scorer_pool 'threads'"
        ) from error
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles lambdas by value, but a script's classes by name, since workers import the script."""

    def reducer_override(self, value: Any) -> Any:
        by_name = isinstance(value, type) and value.__module__ == "__main__"
        return NotImplemented if by_name else super().reducer_override(value)


# In a worker ---------------------------------------------------------------------------------------------------------

_worker_envs: list[AnyEnv] = []


def _start_process(pickled_envs: bytes) -> None:
    # Ctrl-C reaches every process of a terminal, but only the parent decides what to do about it. A handler, unlike
    # SIG_IGN, is not inherited by the processes that a scorer starts.
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker_envs[:] = pickle.loads(pickled_envs)


def _end_with_parent() -> None:
    """End this process when its parent has been killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()
    os._exit(1)


def _in_worker(function: Callable[..., T], which: int, *arguments: Any) -> T:
    return function(_worker_envs[which], *arguments)


# Futures -------------------------------------------------------------------------------------------------------------


def _unless_died(future: Future[T]) -> T | None:
    """Return the result of a worker; ``None`` if it died."""
    try:
        return future.result()
    except BrokenExecutor:
        return None
