"""Chains of masked people over a small invented knowledge base.

Entity A stands in some relation to B, B to C, and so on to the leaf F, and each has a trade. The facts state the trades
and relations of many people by name. Around every step stand people who fit it but lead no further, or fit but for
their trade, so a chain is found only as a whole. A solver that joins all facts certifies how many worlds fit the clues.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from vpo_envs.core import Split
from vpo_envs.generation import Namer, split_of_content
from vpo_envs.pareto import set_utility, spread_weights
from vpo_envs.tasks.eureqa.task import CHAIN, LETTERS, MAX_WORLDS, EUREQATask, Names

MAX_TRIES = 1000
CONFLICT = 0.05
"""Least gain in expected utility of three answers over one that a conflicting instance must offer."""

TRADES = (
    *("baker", "beekeeper", "bookbinder", "carpenter", "chandler", "cooper", "dyer", "ferrier", "glazier", "goldsmith"),
    *("locksmith", "mason", "miller", "potter", "printer", "saddler", "shepherd", "tailor", "weaver", "wheelwright"),
)
RELATIONS = (
    *(
        "once sailed with",
        "owes money to",
        "sold a house to",
        "plays chess with",
        "is a cousin of",
        "learned to read from",
    ),
    *("shares a well with", "rescued", "wrote letters to", "lives next door to", "once painted", "named a dog after"),
)


class EUREQAConfig(BaseModel):
    """How narratives are drawn. Pairs are inclusive ranges, drawn uniformly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worlds: tuple[int, int] = Field((1, 1), description="ways to name the entities that fit the clues")
    shared: tuple[int, int] = Field((0, 0), description="entities nearest to the leaf on whose names all worlds agree")
    dead_ends: int = Field(1, ge=0, le=5, description="people per step who fit it but lead no further")
    misfits: int = Field(2, ge=0, le=8, description="people per step who fit it but for their trade or their relation")
    strangers: int = Field(4, ge=0, le=100, description="people whose facts have nothing to do with the clues")

    @field_validator("worlds", "shared")
    @classmethod
    def _ranges_ascend(cls, pair: tuple[int, int]) -> tuple[int, int]:
        if not 0 <= pair[0] <= pair[1]:
            raise ValueError(f"a range is two ascending numbers from 0 on, got {pair}")
        return pair

    @field_validator("worlds")
    @classmethod
    def _worlds_are_possible(cls, worlds: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= worlds[0] <= worlds[1] <= MAX_WORLDS:
            raise ValueError(f"worlds lie between 1 and {MAX_WORLDS}, got {worlds}")
        return worlds

    @field_validator("shared")
    @classmethod
    def _worlds_can_differ(cls, shared: tuple[int, int]) -> tuple[int, int]:
        if shared[1] >= CHAIN:
            raise ValueError(f"worlds must differ in one entity at least: shared is at most {CHAIN - 1}, got {shared}")
        return shared


PRESETS: dict[str, EUREQAConfig] = {
    "paper": EUREQAConfig(),
    "conflict": EUREQAConfig(worlds=(2, 3), shared=(0, 2)),
}
"""``paper``: one world fits the clues. ``conflict``: two or three do."""


class Fact(NamedTuple):
    """That a person has a trade and stands in a relation to another."""

    person: str
    trade: str
    relation: str
    other: str

    def sentence(self, subject: str | None = None, target: str | None = None) -> str:
        """The fact in words, with masks in the place of names where they are given."""
        text = f"{subject or self.person}, a {self.trade}, {self.relation} {target or self.other}."
        return text[0].upper() + text[1:]


def draw_narrative(rng: np.random.Generator, config: EUREQAConfig, split: Split) -> EUREQATask:
    """Draw a narrative of ``split``: a function of the generator's state, the configuration and the split.

    Raises:
        ValueError: The configuration makes no narrative with the wanted number of conflicting worlds.
    """
    source = random.Random(int.from_bytes(rng.bytes(16)))
    for _ in range(MAX_TRIES):
        world_count, shared = source.randint(*config.worlds), source.randint(*config.shared)
        if world_count > 1 and not conflicts(world_count, shared):
            continue
        namer = Namer(source)
        leaf = _person(namer)
        steps = list(zip(source.sample(TRADES, CHAIN), source.sample(RELATIONS, CHAIN), strict=True))
        clues = _clues(steps, source)
        if split_of_content(" ".join((leaf, *clues))) != split:
            continue
        worlds = _draw_worlds(namer, world_count, shared)
        facts = _facts(source, namer, config, steps, worlds, leaf)
        if sorted(solve(facts, steps, leaf)) == sorted(worlds):
            source.shuffle(facts)
            masks = [f"entity {letter}" for letter in (*LETTERS, "F")]
            return EUREQATask(
                id=f"{source.getrandbits(64):016x}",
                clues=tuple(clues),
                facts=tuple(fact.sentence() for fact in facts),
                masks=(masks[0], masks[1], masks[2], masks[3], masks[4], masks[5]),
                leaf=leaf,
                worlds=tuple(sorted(worlds)),
            )
    raise ValueError(f"no narrative found in {MAX_TRIES} tries for {config!r}: allow more worlds or fewer shared names")


def solve(facts: list[Fact], steps: list[tuple[str, str]], leaf: str) -> list[Names]:
    """Every way to name A to E that fits the facts.

    Args:
        facts: All that is known.
        steps: Trade of each of A to E and its relation to the next entity.
        leaf: Name of the entity after E.
    """
    chains: list[tuple[str, ...]] = [(leaf,)]
    for trade, relation in reversed(steps):
        leading = {(fact.other, fact.person) for fact in facts if fact.trade == trade and fact.relation == relation}
        chains = [(person, *chain) for chain in chains for other, person in leading if other == chain[0]]
    return [(a, b, c, d, e) for a, b, c, d, e, _ in chains]


def conflicts(world_count: int, shared: int) -> bool:
    """Whether worlds that agree on ``shared`` names conflict enough.

    No answer agrees with all, there are three front points or more, and the best three answers beat the best one by
    0.05 in E_w. The front mixes the worlds name by name, on a plane; one answer per world is a set of at most three, so
    its gain is a lower bound.
    """
    free = CHAIN - shared
    mixtures = free + 1 if world_count == 2 else (free + 1) * (free + 2) // 2
    if world_count < 2 or free == 0 or mixtures < 3:
        return False
    pure = (np.full((world_count, world_count), shared) + free * np.eye(world_count)) / CHAIN
    # On a plane of equal sums every single answer has the same mean utility.
    return set_utility(pure, spread_weights(world_count)) - (shared + free / world_count) / CHAIN >= CONFLICT


def _draw_worlds(namer: Namer, count: int, shared: int) -> list[Names]:
    common = [_person(namer) for _ in range(shared)]
    worlds = []
    for _ in range(count):
        a, b, c, d, e = [*[_person(namer) for _ in range(CHAIN - shared)], *common]
        worlds.append((a, b, c, d, e))
    return worlds


def _facts(
    source: random.Random,
    namer: Namer,
    config: EUREQAConfig,
    steps: list[tuple[str, str]],
    worlds: list[Names],
    leaf: str,
) -> list[Fact]:
    """The facts of every world, and those that lead astray."""
    facts: dict[Fact, None] = {}
    for world in worlds:
        for person, other, (trade, relation) in zip(world, (*world[1:], leaf), steps, strict=True):
            facts[Fact(person, trade, relation, other)] = None
    for i, (trade, relation) in enumerate(steps):
        others = [leaf] if i == CHAIN - 1 else [world[i + 1] for world in worlds]
        for _ in range(config.dead_ends if i > 0 else 0):
            facts[Fact(_person(namer), trade, relation, source.choice(others))] = None
        for _ in range(config.misfits):
            if source.random() < 0.5:
                wrong = source.choice([t for t in TRADES if t != trade])
                facts[Fact(_person(namer), wrong, relation, source.choice(others))] = None
            else:
                wrong = source.choice([r for r in RELATIONS if r != relation])
                facts[Fact(_person(namer), trade, wrong, source.choice(others))] = None
    for _ in range(config.strangers):
        facts[Fact(_person(namer), source.choice(TRADES), source.choice(RELATIONS), _person(namer))] = None
    return list(facts)


def _clues(steps: list[tuple[str, str]], source: random.Random) -> list[str]:
    masks = [f"entity {letter}" for letter in (*LETTERS, "F")]
    clues = [
        Fact("", trade, relation, "").sentence(masks[i], masks[i + 1]) for i, (trade, relation) in enumerate(steps)
    ]
    source.shuffle(clues)
    return clues


def _person(namer: Namer) -> str:
    return namer.word()
