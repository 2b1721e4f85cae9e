"""Exact fronts: the objectives applied to the outcomes of a solver, and whether a subclass may still trust it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vpo_envs.contract.answers import FAILURES
from vpo_envs.contract.errors import UnknownFront
from vpo_envs.pareto import falling_component, non_dominated

SCORING = ("parse", "evaluate", "evaluate_many", "feasible", "score_answers", "score_batch")
"""Methods that decide the rewards; a front computed by a class above one of them may be wrong."""


class FrontPoint(NamedTuple):
    """A reward vector of the exact Pareto front and an answer that attains it."""

    vector: tuple[float, ...]
    answer: str


def exact_front(env: Any, task: Any) -> list[FrontPoint]:
    """Return what :meth:`vpo_envs.core.VectorTextEnv.front` does."""
    try:
        points = [FrontPoint(env.reward_vector(outcome), answer) for outcome, answer in env.outcome_front(task)]
    except FAILURES as error:
        raise UnknownFront(
            f"the front of this task of {type(env).__name__} is unknown, since an answer of it could not be scored: "
            f"{error}"
        ) from error
    keep = non_dominated(np.array([point.vector for point in points]))
    return [point for point, kept in zip(points, keep, strict=True) if kept]


def check_inherited(env: Any, base: type[Any], task: Any) -> None:
    """Raise :class:`UnknownFront` if the class of ``env`` changes what its inherited solver relies on."""
    own = type(env)
    # How far down the class hierarchy each method is defined; 0 is this class itself.
    names = ("outcome_front", "reward_vector", *SCORING)
    age = {name: next(place for place, cls in enumerate(own.__mro__) if name in vars(cls)) for name in names}
    solver = own.__mro__[age["outcome_front"]]
    if solver is base:
        return
    for name in SCORING:
        if age[name] < age["outcome_front"]:
            raise UnknownFront(
                f"{own.__name__} overrides {name}, so the front that {solver.__name__} computes may be wrong: override "
                "outcome_front as well"
            )
    if age["reward_vector"] >= age["outcome_front"] and all(one in env.monotone_objectives for one in env.objectives):
        return
    falling = vars(env).setdefault("_falling", {})  # by grid, as each takes long
    for grid in env.fact_grids(task):
        if grid not in falling:
            falling[grid] = falling_component(env.reward_vector, grid)
        if (place := falling[grid]) is not None:
            raise UnknownFront(
                f"objective {env.objective_names[place]!r} of {own.__name__} falls where an outcome gets better in one "
                f"fact, so the front that {solver.__name__} computes may be wrong: override outcome_front"
            )
