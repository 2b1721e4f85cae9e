"""``vpo/EUREQACompact-v0``: chains of people that three witnesses vouch for, for small models."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from pydantic import Field

from vpo_envs.core import Frozen, Objective, Task
from vpo_envs.generation import split_of_content
from vpo_envs.tasks.compact import CompactEnv, Words

WITNESSES = "abc"
PEOPLE = 64


class CompactConfig(Frozen):
    """How chains are drawn."""

    length: int = Field(5, ge=2, le=8, description="links of a chain")
    shared: int = Field(6, ge=1, description="vouchings along the compromise, spread over the witnesses")
    strangers: int = Field(4, ge=0, le=20, description="links that no chain contains")


class ChainTask(Task):
    """Links between people, each with the witnesses who vouch for it."""

    leaf: str
    """Where every chain starts."""
    length: int
    """Links of a whole chain."""
    links: tuple[tuple[str, str, str], ...]
    """Witnesses, the person that a chain has reached, and the next one, in the order of the prompt."""
    chains: tuple[tuple[str, ...], ...]
    """The people of every whole chain, the leaf left out."""


class ChainOutcome(NamedTuple):
    """The facts about one chain."""

    whole: bool
    """Whether every link is stated and the chain has its full length."""
    vouched: tuple[float, ...]
    """Share of the links that each witness vouches for."""


def _vouched(witness: int, outcome: ChainOutcome) -> float:
    return outcome.vouched[witness]


class EUREQACompactEnv(CompactEnv[ChainTask, ChainOutcome]):
    """Follow a chain of people that as many witnesses as possible vouch for.

    ## Description

    A line ``a n5 n12`` says that witness a vouches for the step from n5 to n12; ``ab n5 n12`` that a and b do.
    """

    task_type = ChainTask
    namespace = 13
    knobs = CompactConfig()
    objectives = tuple(
        Objective(f"witness_{name}", f"Share of the links that witness {name} vouches for", partial(_vouched, i))
        for i, name in enumerate(WITNESSES)
    )

    def generate(self, rng: np.random.Generator) -> ChainTask:
        source = random.Random(int.from_bytes(rng.bytes(16)))
        config: CompactConfig = self.config
        while True:
            people = source.sample(range(PEOPLE), 1 + 4 * config.length + 2 * config.strangers)
            names = [f"n{i}" for i in people]
            leaf = names.pop()
            marks = [[name] * config.length for name in WITNESSES]
            marks.append(self._compromise(source))
            chains, links = [], []
            for vouchers in marks:
                chain = [names.pop() for _ in range(config.length)]
                chains.append(tuple(chain))
                links += zip(vouchers, [leaf, *chain], chain)
            links += [(source.choice(WITNESSES), names.pop(), names.pop()) for _ in range(config.strangers)]
            source.shuffle(links)
            if split_of_content(f"{leaf} {links}") == self.split:
                return ChainTask(leaf=leaf, length=config.length, links=tuple(links), chains=tuple(chains))

    def _compromise(self, source):
        config = self.config
        order = source.sample(WITNESSES, 3)
        vouchings = [order[i % 3] for i in range(config.shared)]
        # the first links are vouched for by two
        doubles = config.shared - config.length
        marks = ["".join(sorted(vouchings[2 * i: 2 * i + 2])) for i in range(doubles)]
        rest = vouchings[2 * doubles:]
        source.shuffle(rest)
        return marks + rest

    def prompt(self, task: ChainTask, num_answers: int) -> str:
        return "\n".join([*(" ".join(link) for link in task.links), f"answers {num_answers} length {task.length} {task.leaf}"])

    def evaluate(self, task: ChainTask, answer: Words) -> ChainOutcome:
        stated = {(one, other): names for names, one, other in task.links}
        found = [stated.get(pair) for pair in zip((task.leaf, *answer), answer, strict=False)]
        if len(found) != task.length or None in found:
            return ChainOutcome(False, (0.0,) * len(WITNESSES))
        return ChainOutcome(True, tuple(sum(w in names for names in found) / task.length for w in WITNESSES))

    def outcome_front(self, task: ChainTask) -> Sequence[tuple[ChainOutcome, str]]:
        return [(self.evaluate(task, chain), " ".join(chain)) for chain in task.chains]
