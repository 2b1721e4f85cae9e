"""Chains of masked people over a small invented knowledge base.

Entity A is related to B, B to C, and so on to the leaf F, and each has a trade. The facts state the trades and
relations of many people by name. Decoy chains of the same length lead to the same leaf, and only the clues distinguish
them from the true one. Each step also has dead ends and people who do not fit the clue. A solver that joins all facts
certifies which worlds fit the clues.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from vpo_envs.core import Frozen
from vpo_envs.pareto import needs_a_set
from vpo_envs.tasks.eureqa.task import CHAIN, MASKS, MAX_WORLDS, EUREQATask, Names
from vpo_envs.tasks.generation import Namer, ascending

MAX_TRIES = 1000

TRADES = (
    *("baker", "beekeeper", "bookbinder", "carpenter", "chandler", "cooper", "dyer", "farrier", "glazier", "goldsmith"),
    *("locksmith", "mason", "miller", "potter", "printer", "saddler", "shepherd", "tailor", "weaver", "wheelwright"),
)
RELATIONS = (
    *("once sailed with", "owes money to", "sold a house to", "plays chess with", "is a cousin of"),
    *("learned to read from", "shares a well with", "rescued", "wrote letters to", "lives next door to"),
    *("once painted", "named a dog after"),
)


class EUREQAConfig(Frozen):
    """How narratives are drawn. Pairs are inclusive ranges, drawn uniformly."""

    worlds: Annotated[tuple[int, int], ascending(1, MAX_WORLDS)] = Field(
        (1, 1), description="assignments of names that fit the clues"
    )
    shared: Annotated[tuple[int, int], ascending(0, CHAIN - 1)] = Field(
        (0, 0), description="entities nearest to the leaf on whose names all worlds agree"
    )
    decoys: int = Field(3, ge=0, le=8, description="sets of false chains, which reach the leaf but contradict a clue")
    dead_ends: int = Field(1, ge=0, le=5, description="people per step who fit the clue but whom no chain reaches")
    misfits: int = Field(2, ge=0, le=8, description="people per step with another trade or another relation")
    strangers: int = Field(4, ge=0, le=100, description="people whose facts have nothing to do with the clues")


PRESETS = {
    "conflict": EUREQAConfig(worlds=(2, 3), shared=(0, 2)),
    "paper": EUREQAConfig(),
}
"""``conflict``: two or three worlds fit the clues. ``paper``: one does."""


class Step(NamedTuple):
    """A step of a chain: a trade, and how a person of that trade is related to the next person."""

    trade: str
    relation: str


class Fact(NamedTuple):
    """A person's trade and relation to another person."""

    person: str
    step: Step
    other: str

    def sentence(self) -> str:
        """Return the fact in words."""
        text = f"{self.person}, a {self.step.trade}, {self.step.relation} {self.other}."
        return text[0].upper() + text[1:]


class Candidate(NamedTuple):
    """A sequence of steps, and the chains of people that follow it: the true worlds, or a decoy."""

    steps: tuple[Step, ...]
    chains: list[Names]


def draw_narrative(source: random.Random, config: EUREQAConfig) -> EUREQATask | None:
    """Draw a narrative; ``None`` if its worlds do not conflict, or more of them fit the clues than were meant."""
    world_count, shared = source.randint(*config.worlds), source.randint(*config.shared)
    if world_count > 1 and not conflicts(world_count, shared):
        return None
    namer = Namer(source)
    leaf = namer.word()
    all_steps = _draw_steps(source, 1 + config.decoys)
    clues = [Fact(*clue).sentence() for clue in zip(MASKS, all_steps[0], MASKS[1:], strict=False)]
    source.shuffle(clues)
    candidates = [Candidate(steps, _draw_worlds(namer, world_count, shared)) for steps in all_steps]
    facts = _draw_facts(source, namer, config, candidates, leaf)
    worlds = sorted(candidates[0].chains)
    if sorted(solve(facts, all_steps[0], leaf)) != worlds:
        return None
    source.shuffle(facts)
    return EUREQATask(
        id=f"{source.getrandbits(64):016x}",
        clues=tuple(clues),
        facts=tuple(fact.sentence() for fact in facts),
        masks=MASKS,
        leaf=leaf,
        worlds=tuple(worlds),
    )


def solve(facts: Sequence[Fact], steps: Sequence[Step], leaf: str) -> list[Names]:
    """Return every assignment of names to A to E that the facts allow, given their steps and the name after E."""
    chains: list[tuple[str, ...]] = [(leaf,)]
    for step in reversed(steps):
        leading = [fact for fact in facts if fact.step == step]
        chains = [(fact.person, *chain) for chain in chains for fact in leading if fact.other == chain[0]]
    return [(a, b, c, d, e) for a, b, c, d, e, _ in chains]


@lru_cache(maxsize=32)
def conflicts(world_count: int, shared: int) -> bool:
    """Return whether worlds that share ``shared`` names conflict. The exact front holds all mixtures of their names."""
    free = CHAIN - shared
    mixtures = [counts for counts in product(range(free + 1), repeat=world_count) if sum(counts) == free]
    return needs_a_set((shared + np.array(mixtures)) / CHAIN)


def _draw_steps(source: random.Random, count: int) -> list[tuple[Step, ...]]:
    """Return ``count`` different sequences of steps. The first is the true one, which only the clues reveal.

    Each step has two forms, which differ in the trade or in the relation. Half of the sequences use each form, so its
    frequency gives nothing away.
    """
    trades, relations = source.sample(TRADES, 2 * CHAIN), source.sample(RELATIONS, 2 * CHAIN)
    forms = []
    for i in range(CHAIN):
        changed = (CHAIN, 0) if source.random() < 0.5 else (0, CHAIN)
        forms.append([Step(trades[i], relations[i]), Step(trades[i + changed[0]], relations[i + changed[1]])])
    while True:
        columns = [source.sample([form[j % 2] for j in range(count)], count) for form in forms]
        sequences = list(zip(*columns, strict=True))
        if len(set(sequences)) == count:
            return sequences


def _draw_worlds(namer: Namer, count: int, shared: int) -> list[Names]:
    common = [namer.word() for _ in range(shared)]
    worlds = []
    for _ in range(count):
        a, b, c, d, e = [*[namer.word() for _ in range(CHAIN - shared)], *common]
        worlds.append((a, b, c, d, e))
    return worlds


def _draw_facts(
    source: random.Random, namer: Namer, config: EUREQAConfig, candidates: list[Candidate], leaf: str
) -> list[Fact]:
    """Return the facts of all candidates, with dead ends and misfits spread evenly among them, and of strangers."""
    facts = {
        Fact(*fact): None
        for steps, chains in candidates
        for names in chains
        for fact in zip(names, steps, (*names[1:], leaf), strict=True)
    }
    for i in range(CHAIN):
        for number in range((config.dead_ends if i else 0) + config.misfits):
            steps, chains = source.choice(candidates)
            trade, relation = steps[i]
            if number < config.misfits and source.random() < 0.5:
                trade = source.choice([t for t in TRADES if t != trade])
            elif number < config.misfits:
                relation = source.choice([r for r in RELATIONS if r != relation])
            other = (*source.choice(chains), leaf)[i + 1]
            facts[Fact(namer.word(), Step(trade, relation), other)] = None
    for _ in range(config.strangers):
        step = Step(source.choice(TRADES), source.choice(RELATIONS))
        facts[Fact(namer.word(), step, namer.word())] = None
    return list(facts)
