"""Points of an exact front, and whether a subclass changes what the solver that it inherits relies on."""

from __future__ import annotations

from typing import Any, NamedTuple

SCORING = ("parse", "evaluate", "evaluate_after", "evaluate_many", "feasible", "score_answers", "score_batch")
"""Methods that decide the rewards; a front computed by a class that does not know them may be wrong."""


class FrontPoint(NamedTuple):
    """A reward vector of the exact Pareto front and an answer that attains it."""

    vector: tuple[float, ...]
    """Reward vector, (d,)."""
    answer: str
    """The answer without its tags."""


def changed_scoring(env_type: type[Any], solver: type[Any]) -> str | None:
    """Return the first of the :data:`SCORING` methods that a class does not share with the class of its solver.

    Args:
        env_type: The class of an environment.
        solver: The class from which it inherits ``outcome_front``.

    Returns:
        The method's name; ``None`` if all are the same.
    """
    return next((name for name in SCORING if getattr(env_type, name) is not getattr(solver, name)), None)
