"""A narrative of masked entities: the prompt, reading the names, their outcome, the objectives, and EUREQA's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from envs_data.readers import BadRow
from vpo_envs.core import Objective, Task, Unparsable
from vpo_envs.tasks.generation import worded
from vpo_envs.text import answer_tags, normalise_name, read_tag, several_answers

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

    @cached_property
    def spellings(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """The normalised names that count as each name: with a hyphen, its words apart or joined."""
        return tuple(
            tuple((normalise_name(name), normalise_name(name.replace("-", ""))) for name in world)
            for world in self.worlds
        )


TAGS = tuple(f"entity_{letter}" for letter in LETTERS)


def read_names(text: str) -> tuple[str, ...]:
    """Read the names of A to E, normalised; empty where a tag is missing or contains no letter or digit."""
    names = tuple([normalise_name(name) if (name := read_tag(text, tag)) else "" for tag in TAGS])
    if not any(names):
        raise Unparsable("no entity is named: expected <entity_A>…</entity_A> to <entity_E>…</entity_E>")
    return names


def write_names(names: Sequence[str]) -> str:
    """Return the content of an answer tag that names A to E."""
    return "".join(f"<{tag}>{name}</{tag}>" for tag, name in zip(TAGS, names, strict=True))


class Wording(NamedTuple):
    """One way to put the task into words."""

    opening: str
    known: str
    clues: str
    asked: str
    one_world: str
    several_worlds: str
    """Sentence that states the ``{count}`` of worlds."""


WORDINGS = (
    Wording(
        "In the clues below, the names of some entities are masked. Work out who or what they are.",
        "Known facts:",
        "Clues:",
        "Name the entities A to E. Write the full name of each in its tag.",
        "The clues fit one set of names. Each of the five names is an objective, which a correct name meets.",
        "The clues fit {count} different worlds, each of which gives every entity a name. Each world is an "
        "objective: the share of its five names that the answer gives as well.",
    ),
    Wording(
        "Some clues speak of entities without their names. Find the names.",
        "What is known:",
        "The clues:",
        "Which names belong to the entities A to E? Write each full name in its own tag.",
        "There is one solution, and each of its five names is an objective of its own.",
        "There are {count} solutions, and each gives a name to every entity. There is an objective for each "
        "solution: the share of the answer's five names that the solution gives as well.",
    ),
    Wording(
        "Here is a puzzle: entities are called by letters, and their names have to be found from the clues.",
        "Facts:",
        "What is said of the entities:",
        "Put the full names of the entities A to E into the tags.",
        "Just one choice of names agrees with everything. Each entity is an objective, met by its right name.",
        "{count} choices of names agree with everything. Each of them is an objective: the share of the five "
        "entities that are named as in it.",
    ),
)


def narrative_prompt(task: EUREQATask, num_answers: int) -> str:
    """Return the facts, the clues, the leaf and the tags to fill in."""
    wording = worded(task, WORDINGS)
    known = [wording.known, *[f"- {fact}" for fact in task.facts], ""] if task.facts else []
    masked = ", ".join(f"entity {letter} is {mask!r}" for letter, mask in zip(LETTERS, task.masks, strict=False))
    count = len(task.worlds)
    lines = [
        wording.opening,
        "",
        *known,
        wording.clues,
        *task.clues,
        f"{task.masks[-1][:1].upper()}{task.masks[-1][1:]} is {task.leaf}.",
        "",
        *([] if task.masks == MASKS else [f"In these clues, {masked}."]),
        wording.asked,
        wording.several_worlds.format(count=count) if count > 1 else wording.one_world,
    ]
    if num_answers > 1:
        lines.append(several_answers(num_answers, conflict=count > 1))
    lines.append("Use this form:")
    blank = write_names(["..."] * len(TAGS))
    return "\n".join([*lines, *[f"{opening}{blank}{closing}" for opening, closing in answer_tags(num_answers)]])


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
        tuple([given in spellings for given, spellings in zip(answer, world, strict=True)]) for world in task.spellings
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


_Text = Annotated[str, Field(min_length=1)]


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    idx: Annotated[str, BeforeValidator(lambda idx: str(idx) if type(idx) is int else idx)]
    question: Annotated[list[_Text], BeforeValidator(lambda text: [text] if isinstance(text, str) else text)] = Field(
        min_length=1
    )
    entity_masks: list[_Text] = Field(min_length=CHAIN + 1)
    entities: list[str] = Field(min_length=CHAIN + 1)


def read_published(raw: Mapping[str, Any]) -> EUREQATask:
    """Return the task of a row of EUREQA.

    Masks and entities run from the head of the chain to its leaf: mask ``i`` stands for entity ``i``, the first five
    are asked for, the sixth is the leaf, and the rest is ignored. A row does not say which order it is in, so one in
    another order must be reordered first.
    """
    if "entities" not in raw and "entity_masks" not in raw:
        raise BadRow("", "unknown schema: a row of EUREQA has idx, question, entity_masks and entities")
    row = _Row.model_validate(dict(raw))
    a, b, c, d, e, leaf = [entity.replace("_", " ").strip() for entity in row.entities[: CHAIN + 1]]
    masks = row.entity_masks
    return EUREQATask(
        id=row.idx,
        clues=tuple(row.question),
        masks=(masks[0], masks[1], masks[2], masks[3], masks[4], masks[5]),
        leaf=leaf,
        worlds=((a, b, c, d, e),),
    )
