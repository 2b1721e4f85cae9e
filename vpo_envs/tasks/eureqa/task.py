"""A chain of masked entities, the facts about an answer to it, and the objectives of both modes."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from pydantic import Field, field_validator, model_validator

from vpo_envs.core import Objective, Task
from vpo_envs.text import normalise_name

LETTERS = "ABCDE"
CHAIN = len(LETTERS)
MAX_WORLDS = 3

Names = tuple[str, str, str, str, str]
"""A name for each of the entities A to E."""


class EUREQATask(Task):
    """One narrative of masked entities, the last of which is revealed."""

    id: str
    clues: tuple[str, ...] = Field(min_length=1)
    """The narrative, sentence by sentence, in which masks stand for the entities."""
    facts: tuple[str, ...] = ()
    """What is known of the entities by name; empty where the clues ask for knowledge of the real world."""
    masks: tuple[str, str, str, str, str, str]
    """What stands for each entity in the clues: A to E, then the leaf."""
    leaf: str
    """Name of the last entity."""
    worlds: tuple[Names, ...] = Field(min_length=1, max_length=MAX_WORLDS)
    """Every way to name the entities A to E that fits the clues, in the order of the names of A."""

    @field_validator("leaf")
    @classmethod
    def _leaf_is_named(cls, leaf: str) -> str:
        if not normalise_name(leaf):
            raise ValueError(f"the leaf has no name but {leaf!r}, which has no letter or digit")
        return leaf

    @field_validator("worlds")
    @classmethod
    def _names_can_be_given(cls, worlds: tuple[Names, ...]) -> tuple[Names, ...]:
        for world in worlds:
            for letter, name in zip(LETTERS, world, strict=True):
                if not normalise_name(name):
                    raise ValueError(f"entity {letter} has no name but {name!r}, which has no letter or digit")
                if "<" in name and ">" in name:
                    raise ValueError(f"the name of entity {letter} cannot hold a tag, got {name[:40]!r}")
        return worlds

    @model_validator(mode="after")
    def _worlds_differ(self) -> EUREQATask:
        if len(set(self.normal_worlds)) < len(self.worlds):
            raise ValueError("two worlds give every entity the same name")
        return self

    @cached_property
    def normal_worlds(self) -> tuple[tuple[str, ...], ...]:
        """The names of each world in the form in which they are compared."""
        return tuple(tuple(normalise_name(name) for name in world) for world in self.worlds)


class EUREQAOutcome(NamedTuple):
    """The facts about one answer; what an objective of EUREQA looks at."""

    agreement: tuple[tuple[bool, ...], ...]
    """Shape (3, 5): whether each entity's name is that of each world; false for worlds that are not there."""
    world_count: int
    """How many worlds fit the clues."""


ABSENT_WORLD = (False,) * CHAIN


def judge(task: EUREQATask, answer: tuple[str, ...]) -> EUREQAOutcome:
    """The facts about normalised names for A to E, empty where one was not given."""
    agreement = [
        tuple([given == name for given, name in zip(answer, world, strict=True)]) for world in task.normal_worlds
    ]
    agreement += [ABSENT_WORLD] * (MAX_WORLDS - len(agreement))
    return EUREQAOutcome(tuple(agreement), len(task.worlds))


ENTITY_OBJECTIVES: tuple[Objective, ...] = (
    Objective("entity_A", "Entity A is named", lambda o: float(o.agreement[0][0])),
    Objective("entity_B", "Entity B is named", lambda o: float(o.agreement[0][1])),
    Objective("entity_C", "Entity C is named", lambda o: float(o.agreement[0][2])),
    Objective("entity_D", "Entity D is named", lambda o: float(o.agreement[0][3])),
    Objective("entity_E", "Entity E is named", lambda o: float(o.agreement[0][4])),
)
"""``mode="paper"``: one objective per entity."""

WORLD_OBJECTIVES: tuple[Objective, ...] = (
    Objective("world_1", "Share of the entities named as in the first world", lambda o: sum(o.agreement[0]) / CHAIN),
    Objective("world_2", "Share of the entities named as in the second world", lambda o: sum(o.agreement[1]) / CHAIN),
    Objective("world_3", "Share of the entities named as in the third world", lambda o: sum(o.agreement[2]) / CHAIN),
)
"""``mode="conflict"``: one objective per world that fits the clues, in the alphabetical order of their names for A."""
