"""Questions over an invented world: a chain of relations, its paragraphs, and others that look alike.

Every relation of a thing stands in the one paragraph about that thing and leads to one other thing, and no two things
share a word of their names. So each step has one answer in one paragraph, and the final answer stands nowhere else.
"""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import combinations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from vpo_envs.core import Split
from vpo_envs.generation import Namer, split_of_content
from vpo_envs.pareto import best_set_utility, spread_weights
from vpo_envs.tasks.musique.task import MAX_CITATIONS, MAX_HOPS, Hop, MuSiQueTask, Paragraph
from vpo_envs.tasks.musique.world import KINDS, OF_KIND, Relation, Thing, asides, new_thing, state

MAX_TRIES = 1000
CONFLICT = 0.05
"""Least gain in expected utility of three answers over one that a conflicting question must offer."""


class MuSiQueConfig(BaseModel):
    """How questions are drawn. Pairs are inclusive ranges, drawn uniformly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hops: tuple[int, int] = Field((2, 4), description="steps of the reasoning")
    paragraphs: int = Field(20, ge=4, le=200, description="paragraphs in all")
    lookalikes: int = Field(2, ge=0, le=20, description="paragraphs per step that state its relation of another thing")
    side_facts: tuple[int, int] = Field((0, 2), description="other relations of the same thing that a paragraph states")
    asides: tuple[int, int] = Field((1, 3), description="sentences of a paragraph that lead nowhere, three at most")
    missing_citations: int = Field(
        0,
        ge=0,
        le=MAX_HOPS - 1,
        description="how many citations fewer than steps count, which makes the steps conflict",
    )

    @field_validator("hops", "side_facts", "asides")
    @classmethod
    def _ranges_ascend(cls, pair: tuple[int, int]) -> tuple[int, int]:
        if not 0 <= pair[0] <= pair[1]:
            raise ValueError(f"a range is two ascending numbers from 0 on, got {pair}")
        return pair

    @field_validator("hops")
    @classmethod
    def _hops_are_possible(cls, hops: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= hops[0] <= hops[1] <= MAX_HOPS:
            raise ValueError(f"hops lie between 1 and {MAX_HOPS}, got {hops}")
        return hops


PRESETS: dict[str, MuSiQueConfig] = {
    "paper": MuSiQueConfig(),
    "conflict": MuSiQueConfig(hops=(3, 4), missing_citations=1),
}
"""``paper``: two to four steps, all of which can be cited. ``conflict``: one citation fewer than there are steps."""


def draw_question(rng: np.random.Generator, config: MuSiQueConfig, split: Split) -> MuSiQueTask:
    """Draw a question of ``split``: a function of the generator's state, the configuration and the split.

    Raises:
        ValueError: The configuration makes no question whose objectives conflict as they should.
    """
    source = random.Random(int.from_bytes(rng.bytes(16)))
    for _ in range(MAX_TRIES):
        hop_count = source.randint(*config.hops)
        if config.missing_citations and not conflicts(hop_count, hop_count - config.missing_citations):
            continue
        namer = Namer(source)
        chain, things = _draw_chain(source, namer, hop_count)
        question = _question(chain, things[0])
        if split_of_content(question) == split:
            return _write(source, namer, config, chain, things, question)
    raise ValueError(
        f"no question found in {MAX_TRIES} tries for {config!r}: allow more hops or fewer missing citations"
    )


@lru_cache(maxsize=32)
def conflicts(hop_count: int, max_citations: int) -> bool:
    """Whether the exact front proves that no answer has everything and that three answers beat one by 0.05 in E_w."""
    if not 1 <= max_citations < hop_count:
        return False
    best = [[float(i in cited) for i in range(hop_count)] for cited in combinations(range(hop_count), max_citations)]
    front = np.array([[*hops, 1.0] for hops in best])
    if len(front) < 3:
        return False
    weights = spread_weights(front.shape[1])
    return best_set_utility(front, 3, weights) - best_set_utility(front, 1, weights) >= CONFLICT


def _draw_chain(source: random.Random, namer: Namer, hop_count: int) -> tuple[list[Relation], list[Thing]]:
    """Relations that lead from one thing to the next, no relation twice."""
    while True:
        things = [new_thing(namer, source.choice(KINDS))]
        chain: list[Relation] = []
        while len(chain) < hop_count:
            onward = [relation for relation in OF_KIND[things[-1].kind] if relation not in chain]
            if not onward:
                break
            chain.append(source.choice(onward))
            things.append(new_thing(namer, chain[-1].object))
        if len(chain) == hop_count:
            return chain, things


def _question(chain: list[Relation], start: Thing) -> str:
    phrase = start.called
    for relation in chain[:-1]:
        phrase = relation.phrase.format(s=phrase)
    return chain[-1].question.format(s=phrase)


def _write(
    source: random.Random,
    namer: Namer,
    config: MuSiQueConfig,
    chain: list[Relation],
    things: list[Thing],
    question: str,
) -> MuSiQueTask:
    subjects = list(zip(things, chain, strict=False))
    for relation in [relation for relation in chain for _ in range(config.lookalikes)]:
        subjects.append((new_thing(namer, relation.subject), relation))
    subjects = subjects[: config.paragraphs]
    while len(subjects) < config.paragraphs:
        kind = source.choice(KINDS)
        subjects.append((new_thing(namer, kind), source.choice(OF_KIND[kind])))
    texts = []
    for i, (subject, relation) in enumerate(subjects):
        target = things[i + 1] if i < len(chain) else new_thing(namer, relation.object)
        texts.append(_paragraph(source, namer, config, subject, relation, target))
    order = list(range(config.paragraphs))
    source.shuffle(order)
    number_of = {i: number for number, i in enumerate(order)}
    return MuSiQueTask(
        id=f"{len(chain)}hop__{source.getrandbits(64):016x}",
        question=question,
        paragraphs=tuple(
            Paragraph(number=number, title=subjects[i][0].name, text=texts[i]) for number, i in enumerate(order)
        ),
        hops=tuple(
            Hop(
                question=relation.question.format(s=things[0].called if i == 0 else f"#{i}"),
                answer=things[i + 1].name,
                paragraph=number_of[i],
            )
            for i, relation in enumerate(chain)
        ),
        answers=(things[-1].name,),
        max_citations=len(chain) - config.missing_citations if config.missing_citations else MAX_CITATIONS,
    )


def _paragraph(
    source: random.Random, namer: Namer, config: MuSiQueConfig, subject: Thing, relation: Relation, target: Thing
) -> str:
    others = [other for other in OF_KIND[subject.kind] if other is not relation]
    count = min(source.randint(*config.side_facts), len(others))
    sentences = [state(source, relation, subject, target)]
    sentences += [state(source, o, subject, new_thing(namer, o.object)) for o in source.sample(others, count)]
    sentences += asides(source, subject.kind, source.randint(*config.asides))
    source.shuffle(sentences)
    return " ".join(sentences)
