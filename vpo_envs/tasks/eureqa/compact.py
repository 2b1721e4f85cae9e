"""``vpo/EUREQA-v0`` with ``preset="compact"``: chains of people that three witnesses vouch for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

from pydantic import Field

from vpo_envs.core import Frozen, Objective, Task
from vpo_envs.tasks.compact import CompactEnv, Words

WITNESSES = "abc"
PEOPLE = 64
KNOWN = "m"
"""First letter of the people on the compromise, where they are named."""


class CompactConfig(Frozen):
    """How chains are drawn."""

    length: int = Field(3, ge=3, le=6, description="links of a chain")
    part: float = Field(
        0.4, ge=0, le=1, description="score of a chain with a witness who vouches for all links but one"
    )
    strangers: int = Field(2, ge=0, le=10, description="links that no chain contains")
    crossing: int = Field(4, ge=0, le=4, description="links at each place from one chain to another")
    named: bool = Field(False, description="give people on the compromise names of their own kind, such as m3")


PRESETS = {"compact": CompactConfig()}


class ChainTask(Task):
    """Links between people, each with the witnesses who vouch for it."""

    leaf: str
    """The person with whom every chain begins."""
    links: tuple[tuple[str, str, str], ...]
    """The witnesses, a person, and the person that this one knows, in the order of the prompt."""
    chains: tuple[Words, ...]
    """The chains that the task was built around, as answers: one for each witness, then the compromise."""
    part: float
    """Score of a chain with a witness who vouches for all of its links but one."""

    @property
    def canonical(self) -> str:
        """The leaf, and the links in alphabetical order."""
        return f"{self.leaf} {sorted(self.links)}"


class ChainOutcome(NamedTuple):
    """The facts about one chain."""

    missed: tuple[int, ...] | None
    """How many links each witness does not vouch for; ``None`` unless the chain has its length and all are stated."""
    part: float
    """Score of a chain with a witness who misses one link."""


def _score(witness: int, outcome: ChainOutcome) -> float:
    if outcome.missed is None:
        return 0.0
    return {0: 1.0, 1: outcome.part}.get(outcome.missed[witness], 0.0)


class EUREQACompactEnv(CompactEnv[ChainTask, ChainOutcome]):
    """Follow a chain of people that as many witnesses as possible vouch for.

    ## Description

    A line ``a n5 n12`` states that n5 knows n12, and that witness a vouches for it; for ``ab n5 n12`` both a and b do.
    Four chains begin at the person that the last line names. One witness vouches for all of the first, another for all
    of the second, a third for all of the third, and every witness for all of the fourth but one link. Everyone on a
    chain but the last also knows somebody on another, so most chains that can be followed cross from one to another,
    and no witness vouches for all of their links. With the knob ``named`` people on the fourth chain have names such as
    ``m3``.

    ## Action space

    Text: ``num_answers`` answers, each in its tag: the people of a chain in order, and between any two of them the
    witnesses of their link, such as ``n5 a n12 a n40 a n3``.

    ## Rewards

    ``witness_a`` to ``witness_c``, each in [0, 1]: 1 if this witness vouches for every link of the chain, ``part``
    (0.4) if for all but one, else 0. All are 0 for a chain of another length, or with a link that is not stated, or not
    with these witnesses.
    ``pareto_front()`` is exact.
    """

    task_type = ChainTask
    namespace = 13
    presets = PRESETS
    objectives = tuple(
        Objective(f"witness_{name}", f"How far witness {name} vouches for the chain", partial(_score, i))
        for i, name in enumerate(WITNESSES)
    )

    def draw(self, source: random.Random) -> ChainTask | None:
        """Draw chains, who vouches for their links, and the links from one to another."""
        config: CompactConfig = self.config
        count = 1 + (len(WITNESSES) + 1) * config.length + 2 * config.strangers
        leaf, *names = [f"n{i}" for i in source.sample(range(PEOPLE), count)]
        vouchers = [[witness] * config.length for witness in WITNESSES] + [_compromise(source, config.length)]
        people = [tuple(names.pop() for _ in by) for by in vouchers]
        if config.named:
            people[-1] = tuple(f"{KNOWN}{i}" for i in source.sample(range(10), config.length))
        links = [
            (by, *pair)
            for witnesses, known in zip(vouchers, people, strict=True)
            for by, pair in zip(witnesses, pairwise((leaf, *known)), strict=True)
        ]
        for place in range(1, config.length):
            moved = list(enumerate(_all_moved(source, len(people))))
            for one, other in source.sample(moved, config.crossing):
                # As many witnesses as vouch for the link that it stands beside, but nobody for a whole chain.
                there = [name for name in WITNESSES if any(name not in by for by in vouchers[one][:place])]
                by = "".join(sorted(source.sample(there, min(len(there), len(vouchers[other][place])))))
                links.append((by, people[one][place - 1], people[other][place]))
        links += [(source.choice(WITNESSES), names.pop(), names.pop()) for _ in range(config.strangers)]
        source.shuffle(links)
        chains = tuple(
            (leaf, *chain.from_iterable(zip(*columns, strict=True))) for columns in zip(vouchers, people, strict=True)
        )
        task = ChainTask(leaf=leaf, links=tuple(links), chains=chains, part=config.part)
        if task.split != self.split:
            return None
        # A chain that crosses from one chain to another scores less than the compromise.
        crossing = [self.evaluate(task, words).missed for words in whole_chains(task) if words not in chains]
        return None if any(missed and max(missed) == 1 for missed in crossing) else task

    def prompt(self, task: ChainTask, num_answers: int) -> str:
        """Return the links, the length of a chain and the person it begins with."""
        asked = f"answers {num_answers} length {len(task.chains[0]) // 2} {task.leaf}"
        return "\n".join([*map(" ".join, task.links), asked])

    def evaluate(self, task: ChainTask, answer: Words) -> ChainOutcome:
        """Look up every link of the chain."""
        people, vouchers = answer[::2], answer[1::2]
        links = {*zip(vouchers, people, people[1:], strict=False)}
        if len(answer) != len(task.chains[0]) or people[0] != task.leaf or not links <= {*task.links}:
            return ChainOutcome(None, task.part)
        return ChainOutcome(tuple(sum(name not in by for by in vouchers) for name in WITNESSES), task.part)

    def outcome_front(self, task: ChainTask) -> Sequence[tuple[ChainOutcome, str]]:
        """Return the outcomes of all chains that can be followed."""
        return [(self.evaluate(task, words), " ".join(words)) for words in whole_chains(task)]

    def ways(self, task: ChainTask) -> Sequence[Words]:
        """Return the chain of each witness, and the compromise."""
        return task.chains


def whole_chains(task: ChainTask) -> Iterator[Words]:
    """Yield all chains of the full length that can be followed from the leaf, as they are answered."""
    links_from: dict[str, list[Words]] = {}
    for witnesses, person, known in task.links:
        links_from.setdefault(person, []).append((witnesses, known))
    chains: list[Words] = [(task.leaf,)]
    for _ in task.chains[0][1::2]:
        chains = [(*words, *link) for words in chains for link in links_from.get(words[-1], ())]
    yield from chains


def _compromise(source: random.Random, length: int) -> list[str]:
    """Return the witnesses of each link of the compromise: each of them misses one of the first three links."""
    missing = source.sample(WITNESSES, len(WITNESSES))
    return [WITNESSES.replace(missing[place], "") if place < len(missing) else WITNESSES for place in range(length)]


def _all_moved(source: random.Random, count: int) -> list[int]:
    """Return a random order of ``range(count)`` in which nothing stands at its own place."""
    while True:
        order = source.sample(range(count), count)
        if all(place != moved for place, moved in enumerate(order)):
            return order
