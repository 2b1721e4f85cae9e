"""Exceptions of environments, in an import-light module."""

from __future__ import annotations


class Unparsable(ValueError):
    """Raised by ``parse`` when a text is not an answer; its message is the reason."""


class ScorerFailure(RuntimeError):
    """Raised by ``evaluate`` when the scorer itself failed; the answer becomes ``Status.INVALID``."""


class NothingToScoreWith(ValueError):
    """Raised by ``evaluate`` when the environment was made without the models that score its answers."""


class AnswerTimeout(RuntimeError):
    """Raised by ``evaluate`` when the answer exceeded its time limit; it becomes ``Status.TIMED_OUT``."""


class UnknownFront(NotImplementedError):
    """Raised when an environment cannot compute the exact Pareto front."""
