"""The outcome of an answer, and the objectives of both presets."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from vpo_envs.core import Objective
from vpo_envs.tasks.eureqa.task import CHAIN, LETTERS, MAX_WORLDS, EUREQATask

ABSENT_WORLD = (False,) * CHAIN


class EUREQAOutcome(NamedTuple):
    """The facts about one answer that the objectives look at."""

    agreement: tuple[tuple[bool, ...], ...]
    """Whether each entity has the name that each world gives it, shape (3, 5); false for absent worlds."""
    world_count: int
    """Number of worlds that fit the clues."""


def judge(task: EUREQATask, answer: tuple[str, ...]) -> EUREQAOutcome:
    """Compare normalised names for A to E, empty where none was given, with those of each world."""
    agreement = [
        tuple([given == name for given, name in zip(answer, world, strict=True)]) for world in task.normal_worlds
    ]
    agreement += [ABSENT_WORLD] * (MAX_WORLDS - len(agreement))
    return EUREQAOutcome(tuple(agreement), len(task.worlds))


def _named(entity: int, outcome: EUREQAOutcome) -> float:
    return float(outcome.agreement[0][entity])


def _share(world: int, outcome: EUREQAOutcome) -> float:
    return sum(outcome.agreement[world]) / CHAIN


# A partial, unlike a lambda, can be pickled with its environment.
ENTITY_OBJECTIVES = tuple(
    Objective(f"entity_{letter}", f"Entity {letter} is named", partial(_named, i)) for i, letter in enumerate(LETTERS)
)
"""``preset="paper"``: one objective per entity."""

WORLD_OBJECTIVES = tuple(
    Objective(f"world_{i + 1}", f"Share of the entities named as in the {ordinal} world", partial(_share, i))
    for i, ordinal in enumerate(("first", "second", "third"))
)
"""``preset="conflict"``: one objective per world that fits the clues, in alphabetical order of their names for A."""
