"""Errors that end a run."""

from __future__ import annotations


class RunStopped(RuntimeError):
    """A run that ends before its last step for a reason that its message states; what it had saved is whole."""


class TrainingDiverged(RunStopped):
    """Several steps in a row had a loss or gradient that is not finite; the last good checkpoint is kept."""


class DiskFull(RunStopped):
    """There is no room for what a run has to write; the last good checkpoint is kept."""


class OutOfMemory(RunStopped):
    """The device's memory does not hold the smallest batch there is."""


class BackendFailed(RunStopped):
    """The engine that generates gave up."""
