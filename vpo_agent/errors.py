"""Errors that end a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RunStopped(RuntimeError):
    """A run ended before its last step, for the reason in the message; its checkpoints are intact."""


class TrainingDiverged(RunStopped):
    """Several steps in a row had a loss or gradient that is not finite; the last good checkpoint is kept."""


class DiskFull(RunStopped):
    """The disk is full; the last good checkpoint is kept."""


class OutOfMemory(RunStopped):
    """Model, samples, the smallest micro-batch or the optimizer's state do not fit into the device's memory."""


class BackendFailed(RunStopped):
    """The sampling engine failed."""


@contextmanager
def memory_for(what: str, advice: str) -> Iterator[None]:
    """Turn an out-of-memory error of the device into one sentence; a context manager or decorator."""
    import torch  # slow to import, and the errors alone do not need it

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"out of memory for {what}: {advice}") from error
