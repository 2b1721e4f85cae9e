"""``vpo/EUREQA-v0`` with ``preset="compact"``: chains of people that three witnesses vouch for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field, model_validator

from vpo_envs.core import Frozen, Objective, Task
from vpo_envs.tasks.base import entry
from vpo_envs.tasks.compact import CompactEnv, Words

WITNESSES = "abc"
PEOPLE = 64
KNOWN = "m"
"""First letter of the people whom two witnesses vouch for."""


class CompactConfig(Frozen):
    """How chains are drawn."""

    length: int = Field(3, ge=2, le=8, description="links of a chain")
    shared: int = Field(4, ge=2, description="vouchings along the compromise, from length to twice that, spread evenly")
    strangers: int = Field(2, ge=0, le=10, description="links that no chain contains")

    @model_validator(mode="after")
    def _can_be_spread(self) -> CompactConfig:
        if not self.length <= self.shared <= 2 * self.length:
            raise ValueError(f"shared lies from length={self.length} to twice that, got {self.shared}")
        return self


PRESETS = {"compact": CompactConfig()}


class ChainTask(Task):
    """Links between people, each with the witnesses who vouch for it."""

    leaf: str
    """The person with whom every chain begins."""
    links: tuple[tuple[str, str, str], ...]
    """The witnesses, a person, and the person that this one knows, in the order of the prompt."""
    chains: tuple[tuple[str, ...], ...]
    """The people of every whole chain, the leaf left out: one for each witness, then the compromise."""

    @property
    def canonical(self) -> str:
        """The leaf, and the links in alphabetical order."""
        return f"{self.leaf} {sorted(self.links)}"


class ChainOutcome(NamedTuple):
    """The facts about one chain."""

    whole: bool
    """Whether every link is stated and the chain has its full length."""
    vouched: tuple[float, ...]
    """Share of the links that each witness vouches for."""


class EUREQACompactEnv(CompactEnv[ChainTask, ChainOutcome]):
    """Follow a chain of people that as many witnesses as possible vouch for.

    ## Description

    A line ``a n5 n12`` states that n5 knows n12, and that witness a vouches for it; for ``ab n5 n12`` both a and b do.
    Four whole chains begin at the person that the last line names. One witness vouches for all of one chain, and
    another for all of the next; every witness vouches for a part of the fourth. Whoever two witnesses vouch for is
    called m, as in ``ab n5 m3``.

    ## Action space

    Text: ``num_answers`` answers, each in its tag: the people of a chain in order, the first one left out, such as
    ``n12 n40 n3``.

    ## Rewards

    ``witness_a`` to ``witness_c``, each in [0, 1]: the share of the chain's links that this witness vouches for. All
    are 0 for a chain of another length, or with a link that is not stated. ``pareto_front()`` is exact.
    """

    task_type = ChainTask
    namespace = 13
    presets = PRESETS
    objectives = tuple(
        Objective(f"witness_{name}", f"Share of the links that witness {name} vouches for", entry("vouched", i))
        for i, name in enumerate(WITNESSES)
    )

    def draw(self, source: random.Random) -> ChainTask:
        """Draw chains, and who vouches for their links."""
        config: CompactConfig = self.config
        count = 1 + (len(WITNESSES) + 1) * config.length + 2 * config.strangers
        leaf, *names = [f"n{i}" for i in source.sample(range(PEOPLE), count)]
        known = [f"{KNOWN}{i}" for i in source.sample(range(10), 10)]
        vouchers = [[witness] * config.length for witness in WITNESSES] + [_compromise(source, config)]
        chains: list[Words] = []
        links: list[tuple[str, str, str]] = []
        for witnesses in vouchers:
            chain = [(known if len(by) > 1 else names).pop() for by in witnesses]
            links += zip(witnesses, [leaf, *chain], chain, strict=False)
            chains.append(tuple(chain))
        links += [(source.choice(WITNESSES), names.pop(), names.pop()) for _ in range(config.strangers)]
        source.shuffle(links)
        return ChainTask(leaf=leaf, links=tuple(links), chains=tuple(chains))

    def prompt(self, task: ChainTask, num_answers: int) -> str:
        """Return the links, the length of a chain and the person it begins with."""
        asked = f"answers {num_answers} length {len(task.chains[0])} {task.leaf}"
        return "\n".join([*map(" ".join, task.links), asked])

    def evaluate(self, task: ChainTask, answer: Words) -> ChainOutcome:
        """Look up every link of the chain."""
        witnesses_of = {(person, known): witnesses for witnesses, person, known in task.links}
        vouchers = [witnesses_of.get(link, "") for link in zip((task.leaf, *answer), answer, strict=False)]
        if len(vouchers) != len(task.chains[0]) or "" in vouchers:
            return ChainOutcome(False, (0.0,) * len(WITNESSES))
        shares = [sum(witness in witnesses for witnesses in vouchers) / len(vouchers) for witness in WITNESSES]
        return ChainOutcome(True, tuple(shares))

    def outcome_front(self, task: ChainTask) -> Sequence[tuple[ChainOutcome, str]]:
        """Return the outcomes of the whole chains."""
        return [(self.evaluate(task, way), " ".join(way)) for way in self.ways(task)]

    def ways(self, task: ChainTask) -> Sequence[Words]:
        """Return the whole chains."""
        return task.chains


def _compromise(source: random.Random, config: CompactConfig) -> list[str]:
    """Return the witnesses of each link of the compromise: the first links have two, the others one."""
    order = source.sample(WITNESSES, len(WITNESSES))
    vouchings = [order[i % len(order)] for i in range(config.shared)]
    doubles = config.shared - config.length
    pairs = ["".join(sorted(vouchings[2 * i : 2 * i + 2])) for i in range(doubles)]
    singles = vouchings[2 * doubles :]
    source.shuffle(singles)
    return pairs + singles
