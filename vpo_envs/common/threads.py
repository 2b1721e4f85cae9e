"""Work that waits for something, done in several threads, which Ctrl-C and SIGTERM end at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(work: Callable[[T], R], items: Sequence[T], threads: int, name: str) -> list[R]:
    """Return what ``work`` makes of each item, in order; up to ``threads`` of them are worked on at the same time.

    The first error, in order, is raised once the work that has begun is done. A ``KeyboardInterrupt`` is raised at
    once: the threads, unlike those of a ``ThreadPoolExecutor``, do not hold up the end of the process.
    """
    results: list[Future[R]] = [Future() for _ in items]
    waiting = deque(zip(results, items, strict=True))

    def take() -> None:
        while True:
            try:
                result, item = waiting.popleft()
            except IndexError:
                return
            try:
                result.set_result(work(item))
            except BaseException as error:
                result.set_exception(error)

    crew = [Thread(target=take, name=f"{name}_{number}", daemon=True) for number in range(min(threads, len(items)))]
    for thread in crew:
        thread.start()
    try:
        return [result.result() for result in results]
    except Exception:
        waiting.clear()
        for thread in crew:
            thread.join()
        raise
    finally:
        waiting.clear()
