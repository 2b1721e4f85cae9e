"""A narrative of masked entities."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field, field_validator, model_validator

from vpo_envs.core import Task
from vpo_envs.text import normalise_name

LETTERS = "ABCDE"
CHAIN = len(LETTERS)
MASKS = ("entity A", "entity B", "entity C", "entity D", "entity E", "entity F")
"""Masks of the entities and the leaf in generated narratives."""
MAX_WORLDS = 3

Names = tuple[str, str, str, str, str]
"""A name for each of the entities A to E."""


class EUREQATask(Task):
    """One narrative of masked entities, the last of which is revealed."""

    id: str
    clues: tuple[str, ...] = Field(min_length=1)
    """The narrative, sentence by sentence, with masks in place of names."""
    facts: tuple[str, ...] = ()
    """Facts that the prompt lists; empty if the clues ask for knowledge of the real world."""
    masks: tuple[str, str, str, str, str, str]
    """The mask of each entity in the clues: A to E, then the leaf."""
    leaf: str
    """Name of the last entity."""
    worlds: tuple[Names, ...] = Field(min_length=1, max_length=MAX_WORLDS)
    """Every assignment of names to A to E that fits the clues, ordered by the name of A."""

    @property
    def canonical(self) -> str:
        """The clues in alphabetical order, and the leaf."""
        return f"{self.leaf} {sorted(self.clues)}"

    @field_validator("leaf")
    @classmethod
    def _leaf_is_named(cls, leaf: str) -> str:
        if not normalise_name(leaf):
            raise ValueError(f"the name of the leaf needs a letter or a digit, got {leaf!r}")
        return leaf

    @field_validator("worlds")
    @classmethod
    def _names_can_be_given(cls, worlds: tuple[Names, ...]) -> tuple[Names, ...]:
        for world in worlds:
            for letter, name in zip(LETTERS, world, strict=True):
                if not normalise_name(name):
                    raise ValueError(f"the name of entity {letter} needs a letter or a digit, got {name!r}")
                if "<" in name and ">" in name:
                    raise ValueError(f"the name of entity {letter} cannot contain a tag, got {name[:40]!r}")
        return worlds

    @model_validator(mode="after")
    def _worlds_differ(self) -> EUREQATask:
        if len(set(self.normal_worlds)) < len(self.worlds):
            raise ValueError("two worlds give every entity the same name")
        return self

    @cached_property
    def normal_worlds(self) -> tuple[tuple[str, ...], ...]:
        """The names of each world, normalised for comparison."""
        return tuple(tuple(normalise_name(name) for name in world) for world in self.worlds)
