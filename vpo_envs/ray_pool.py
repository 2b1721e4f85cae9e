"""A pool of workers in Ray, on one host or several, behind the interface of ``concurrent.futures``."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from typing import Any


def load_ray() -> Any:
    """The package.

    Raises:
        ValueError: It is not installed.
    """
    try:
        import ray
    except ImportError:
        raise ValueError(
            "scorer_pool 'ray' needs Ray, which is not installed: pip install 'vpo-gym[ray]', or choose scorer_pool "
            "'processes'"
        ) from None
    return ray


class RayExecutor(ThreadPoolExecutor):
    """Actors, each with one processor, and a thread for each of them that waits for what it does.

    Where Ray is not initialised it is: it joins the cluster at ``RAY_ADDRESS``, or starts one on this host. An actor
    that dies is replaced.

    Args:
        workers: How many actors; one for each processor of the cluster where ``None``.
        start: What an actor calls first.
        argument: Argument of ``start``; it is stored once in the cluster.

    Raises:
        ValueError: The cluster has fewer processors than that, so that some actors would never start.
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
        for _ in range(self._max_workers):
            self._idle.put(self._new_actor())

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have an actor call ``fn(*args, **kwargs)``; the future raises ``BrokenExecutor`` where it dies of it."""
        return super().submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the actors; Ray itself stays, and ends with this process."""
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
            # What the function raised, without the frames of another process.
            raise (error.cause if isinstance(error.cause, BaseException) else error) from None
        finally:
            self._idle.put(actor)

    def _new_actor(self) -> Any:
        return self._ray.remote(num_cpus=1)(_Worker).remote(self._start, self._argument)


class _Worker:
    """What runs in an actor."""

    def __init__(self, start: Callable[[bytes], None], argument: bytes) -> None:
        start(argument)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)
