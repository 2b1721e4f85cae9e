"""Errors that end a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RunStopped(RuntimeError):
    """A run that ends before its last step for a reason that its message states; what it had saved is whole."""


class TrainingDiverged(RunStopped):
    """Several steps in a row had a loss or gradient that is not finite; the last good checkpoint is kept."""


class DiskFull(RunStopped):
    """There is no room for what a run has to write; the last good checkpoint is kept."""


class OutOfMemory(RunStopped):
    """The device's memory does not hold the model, the samples, the smallest micro-batch or the optimizer's state."""


class BackendFailed(RunStopped):
    """The engine that generates gave up."""


@contextmanager
def memory_for(what: str, advice: str) -> Iterator[None]:
    """Say in one sentence that the device's memory does not hold what is done inside; also a decorator.

    Args:
        what: What it is needed for.
        advice: What would need less.

    Raises:
        OutOfMemory: The memory does not hold it. Other errors pass.
    """
    import torch  # slow to import, and the errors alone do not need it

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"out of memory for {what}: {advice}") from error
