"""Where answers are scored: in this thread, in a pool of threads or of processes, or in Ray, on several hosts."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from vpo_envs.core import RewardBatch, Status, VectorTextEnv
from vpo_envs.scoring.ray_pool import RayExecutor, load_ray

Pool = Literal["none", "threads", "processes", "ray"]

AnyEnv = VectorTextEnv[Any, Any, Any]
T = TypeVar("T")

CHUNKS_PER_WORKER = 4
"""A batch is cut into so many parts for each worker, so that one with slow answers does not hold up all others."""


class ScoringJob(NamedTuple):
    """The answers of one step of one environment."""

    task: Any
    answers: list[str | None]
    seen: set[Any]
    """Answers that came before, as for ``score_answers``."""


class Scored(NamedTuple):
    """What became of a job."""

    vectors: list[tuple[float, ...]]
    statuses: list[Status]
    outcomes: list[Any]
    seen: set[Any]
    """The answers that came before, with the new ones."""


class Scorer:
    """Scores with an environment's own methods, at one time if there is a pool; the scores are the same.

    A pool starts with the first answers, stays until :meth:`close`, and starts again if there are more. As a context
    manager it is closed at the end.

    Args:
        env: The environment, of which each worker has a copy; threads share it.
        pool: ``"none"``, ``"threads"`` (for scorers that wait, as for a subprocess or a server), ``"processes"`` (for
            scorers that compute) or ``"ray"`` (for more of them than one host has room for).
        workers: Size of the pool; Python's own choice where ``None``, and in Ray one for each processor.
        others: More environments that the same workers score with, such as those of other splits.

    Raises:
        ValueError: An unknown pool, a bad size, an environment that cannot be copied to workers, or Ray is missing.
    """

    def __init__(
        self, env: AnyEnv, pool: Pool = "none", workers: int | None = None, *, others: Sequence[AnyEnv] = ()
    ) -> None:
        if pool not in get_args(Pool):
            raise ValueError(f"unknown scorer_pool {pool!r}: choose one of {', '.join(get_args(Pool))}")
        if workers is not None and workers < 1:
            raise ValueError(f"scorer_workers must be at least 1, got {workers}")
        self.pool: Pool = pool
        self._envs = [env, *others]
        self._workers = workers
        self._copies = _pickled(self._envs, pool)
        self._executor: Executor | None = None
        self._entered = 0

    def score_batch(self, tasks: Sequence[Any], responses: Sequence[str], env: AnyEnv | None = None) -> RewardBatch:
        """Score responses as ``env.score_batch`` does, in parts side by side.

        A response whose worker died is ``Status.INVALID``, which is no score; those that were lost with it are scored
        again. An error that the environment raises comes through.

        Args:
            tasks: n instances, one per response.
            responses: n whole responses.
            env: Which of the environments; the first where ``None``.

        Raises:
            ValueError: Not as many tasks as responses, or workers that do not start.
        """
        env = self._envs[0] if env is None else env
        if self.pool == "none" or len(tasks) != len(responses) or not tasks:
            return env.score_batch(tasks, responses)
        workers = self._ready()._max_workers  # type: ignore[attr-defined]  # all of them have it
        size = -(-len(tasks) // (CHUNKS_PER_WORKER * workers))
        chunks = [(tasks[at : at + size], responses[at : at + size]) for at in range(0, len(tasks), size)]
        futures = [self._submit(env, _score_batch, *chunk) for chunk in chunks]
        found = [_unless_died(future) for future in futures]
        if None in found:
            self._renew()
        parts = []
        for batch, chunk in zip(found, chunks, strict=True):
            # One at a time, so that only the response at fault stays without a score.
            lost = zip(*chunk, strict=True) if batch is None else ()
            parts += [self._score_alone(env, *one) for one in lost] if batch is None else [batch]
        return RewardBatch(np.concatenate([part.rewards for part in parts]), np.concatenate([p.status for p in parts]))

    def submit(self, jobs: Sequence[ScoringJob]) -> list[Future[Scored]]:
        """Start scoring; without a pool it is done on return.

        Raises:
            ValueError: Workers that do not start.
        """
        if self.pool == "none":
            return [_finished(score(self._envs[0], job)) for job in jobs]
        return [self._submit(self._envs[0], score, job) for job in jobs]

    def collect(self, jobs: Sequence[ScoringJob], futures: Sequence[Future[Scored]]) -> list[Scored]:
        """Wait for the scores.

        An answer whose worker died is ``Status.INVALID``, which is no score; so are answers that were lost with it.
        The next jobs get new workers.
        """
        found = [_unless_died(future) for future in futures]
        if None in found:
            self._renew()
        return [self._failed(job) if scored is None else scored for job, scored in zip(jobs, found, strict=True)]

    def close(self) -> None:
        """Let go of the workers."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

    def __enter__(self) -> Scorer:
        """The scorer itself; one inside another, the outermost closes it."""
        self._entered += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, if this is the outermost."""
        self._entered -= 1
        if not self._entered:
            self.close()

    def _submit(self, env: AnyEnv, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Have ``function(env, *arguments)`` called by a worker, with its copy of ``env``."""
        executor = self._ready()
        try:
            if self.pool == "threads":
                return executor.submit(function, env, *arguments)
            return executor.submit(_in_worker, function, self._envs.index(env), *arguments)
        except BrokenExecutor as error:  # a process died while others wait for their turn
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _ready(self) -> Executor:
        """The workers; they are started where there are none."""
        if self._executor is None:
            self._executor = self._make_executor()
            try:
                # Else each answer would be taken for the one that its worker dies of.
                self._executor.submit(_answer_the_roll).result()
            except BrokenExecutor as error:
                self.close()
                reason = str(error).strip().rpartition("\n")[2]
                raise ValueError(
                    f"the workers of scorer_pool {self.pool!r} end as they start ({reason}): see that a new process "
                    f"can import {type(self._envs[0]).__name__}, or choose scorer_pool 'threads'"
                ) from error
        return self._executor

    def _make_executor(self) -> Executor:
        if self.pool == "threads":
            return ThreadPoolExecutor(self._workers, thread_name_prefix="scorer")
        if self.pool == "ray":
            return RayExecutor(self._workers, _start_worker, self._copies)
        # A forked copy of a process with threads, such as any that has used torch, can hang; a fork server has none.
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            context.set_forkserver_preload([__name__])
        return ProcessPoolExecutor(self._workers, context, initializer=_start_process, initargs=(self._copies,))

    def _renew(self) -> None:
        """Have living workers from now on: one process that died takes its pool along, Ray replaces it alone."""
        if self.pool == "processes":
            self.close()

    def _score_alone(self, env: AnyEnv, task: Any, response: str) -> RewardBatch:
        batch = _unless_died(self._submit(env, _score_batch, [task], [response]))
        if batch is not None:
            return batch
        self._renew()
        m = env.num_answers
        status = np.full((1, m), Status.INVALID, dtype=np.int8)
        return RewardBatch(np.zeros((1, m, env.reward_dim), dtype=np.float32), status)

    def _failed(self, job: ScoringJob) -> Scored:
        count = len(job.answers)
        zero = (0.0,) * self._envs[0].reward_dim
        return Scored([zero] * count, [Status.INVALID] * count, [None] * count, job.seen)


def score(env: AnyEnv, job: ScoringJob) -> Scored:
    """Score one job here and now."""
    seen = copy.copy(job.seen)
    vectors, statuses, outcomes = env.score_answers(job.task, job.answers, seen)
    return Scored(vectors, statuses, outcomes, seen)


def _score_batch(env: AnyEnv, tasks: Sequence[Any], responses: Sequence[str]) -> RewardBatch:
    return env.score_batch(tasks, responses)


def _pickled(envs: list[AnyEnv], pool: Pool) -> bytes:
    """The copies that workers in other processes get; empty where there are none."""
    if pool not in ("processes", "ray"):
        return b""
    # Ray's pickle also copies what is defined in a script or a notebook, which another host cannot import.
    dumps: Callable[[Any], bytes] = load_ray().cloudpickle.dumps if pool == "ray" else pickle.dumps
    try:
        return dumps(envs)
    except Exception as error:  # whatever the environment's own parts raise
        raise ValueError(
            f"{type(envs[0]).__name__} cannot be copied to the workers of scorer_pool {pool!r} ({error}): make it "
            "picklable, or choose scorer_pool 'threads'"
        ) from error


# In a worker ---------------------------------------------------------------------------------------------------------

_worker_envs: list[AnyEnv] = []


def _start_worker(pickled_envs: bytes) -> None:
    _worker_envs[:] = pickle.loads(pickled_envs)


def _start_process(pickled_envs: bytes) -> None:
    # Ctrl-C reaches every process of a terminal; the one that started this one decides what comes of it. A handler,
    # unlike SIG_IGN, is not handed down to what a scorer starts.
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _start_worker(pickled_envs)


def _end_with_parent() -> None:
    """Leave no process behind where the one that started it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()
    os._exit(1)


def _in_worker(function: Callable[..., T], which: int, *arguments: Any) -> T:
    return function(_worker_envs[which], *arguments)


def _answer_the_roll() -> None:
    """What a worker does that is asked whether it is there."""


# Futures -------------------------------------------------------------------------------------------------------------


def _unless_died(future: Future[T]) -> T | None:
    """What a worker found; ``None`` where it died."""
    try:
        return future.result()
    except BrokenExecutor:
        return None


def _finished(result: Scored) -> Future[Scored]:
    future: Future[Scored] = Future()
    future.set_result(result)
    return future
