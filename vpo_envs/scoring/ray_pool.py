"""A pool of Ray workers on one host or several, with the interface of ``concurrent.futures``."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from typing import Any

from vpo_envs.libraries import install_command

START_SECONDS = 120.0
"""Time limit for the start of all actors; an actor without a free processor never starts."""


def load_ray() -> Any:
    """Import Ray, or raise :class:`ValueError` if it is not installed."""
    try:
        import ray
    except ImportError:
        raise ValueError(
            f"scorer_pool 'ray' needs Ray, which is not installed: {install_command('ray')}, or choose scorer_pool "
            "'processes'"
        ) from None
    return ray


class RayExecutor(ThreadPoolExecutor):
    """Runs calls in actors with one processor each, and waits for each actor in a thread.

    If Ray is not initialised, it joins the cluster at ``RAY_ADDRESS`` or starts one on this host. An actor that dies is
    replaced.

    Args:
        workers: Number of actors; ``None`` means one for each processor of the cluster.
        start: Function that an actor calls first.
        argument: Argument of ``start``, stored once in the cluster.

    Raises:
        ValueError: The cluster has too few processors, or too few free ones for all actors to start.
    """

    def __init__(self, workers: int | None, start: Callable[[bytes], None], argument: bytes) -> None:
        self._ray = load_ray()
        if not self._ray.is_initialized():
            self._ray.init(include_dashboard=False, logging_level=logging.WARNING)
        there = int(self._ray.cluster_resources().get("CPU", 0))
        if max(1, workers or 0) > there:
            raise ValueError(
                f"scorer_workers is {workers or 1}, but the Ray cluster has {there} processors: lower it, or join hosts"
            )
        super().__init__(workers or there, thread_name_prefix="scorer")
        self._start = start
        self._argument = self._ray.put(argument)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        actors = [self._new_actor() for _ in range(self._max_workers)]
        for actor in actors:
            self._idle.put(actor)
        # An actor that dies as it starts counts as started; its first call raises the reason.
        started, waiting = self._ray.wait(
            [actor.call.remote(int) for actor in actors], num_returns=len(actors), timeout=START_SECONDS
        )
        if waiting:
            free = len(started) + int(self._ray.available_resources().get("CPU", 0))
            self.shutdown()
            raise ValueError(
                f"scorer_workers is {len(actors)}, but the Ray cluster has {free} of its {there} processors free, and "
                f"{len(waiting)} workers did not start in {START_SECONDS:.0f} s: lower it, or join hosts"
            )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have an actor call ``fn(*args, **kwargs)``; the future raises ``BrokenExecutor`` if the actor dies."""
        return super().submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the actors. Ray itself stays until this process ends."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        while not self._idle.empty():
            self._ray.kill(self._idle.get())

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        actor = self._idle.get()
        try:
            return self._ray.get(actor.call.remote(function, *arguments, **named))
        except self._ray.exceptions.RayActorError as error:
            self._ray.kill(actor)
            actor = self._new_actor()
            raise BrokenExecutor(f"a worker in Ray died: {error}") from error
        except self._ray.exceptions.RayTaskError as error:
            # The exception of the function, without the frames of another process.
            raise (error.cause if isinstance(error.cause, BaseException) else error) from None
        finally:
            self._idle.put(actor)

    def _new_actor(self) -> Any:
        return self._ray.remote(num_cpus=1)(_Worker).remote(self._start, self._argument)


class _Worker:
    """The code of an actor."""

    def __init__(self, start: Callable[[bytes], None], argument: bytes) -> None:
        start(argument)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)
