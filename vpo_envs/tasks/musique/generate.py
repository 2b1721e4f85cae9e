"""Questions over an invented world: a chain of relations, its paragraphs, and others that look alike.

Only the paragraph about a thing states its relations, each relation leads to one other thing, and no two things share a
word of their names. So each hop has one answer in one paragraph, and the final answer occurs nowhere else. Side facts
lead to paragraphs as the hops do, so the chain cannot be found by following titles. All statements of the last relation
lead to things without a paragraph, so the final answer does not stand out among them.
"""

from __future__ import annotations

import random
from functools import lru_cache
from importlib.resources import files
from itertools import combinations, pairwise
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from envs_data.parsing import parse_toml
from vpo_envs.core import Frozen
from vpo_envs.pareto import needs_a_set
from vpo_envs.tasks.generation import Namer, Range, ascending
from vpo_envs.tasks.musique.task import MAX_CITATIONS, MAX_HOPS, Hop, MuSiQueTask, Paragraph


class Relation(NamedTuple):
    """A relation from a thing of one kind to the one thing of another kind, and ways to put it into words."""

    name: str
    subject: str
    """Kind of the thing that the relation is about."""
    object: str
    """Kind of the thing that it leads to."""
    sentences: list[str]
    """Statements with ``{s}`` and ``{o}``."""
    phrase: str
    """The object by way of the subject: ``the author of {s}``."""
    question: str
    """A question that asks for the object: ``Who wrote {s}?``"""


_WORLD = parse_toml(files("vpo_envs.tasks.musique").joinpath("world.toml").read_text(encoding="utf-8"))
RELATIONS = tuple(Relation(**relation) for relation in _WORLD["relations"])
KINDS = tuple(dict.fromkeys(relation.subject for relation in RELATIONS))
OF_KIND = {kind: tuple(relation for relation in RELATIONS if relation.subject == kind) for kind in KINDS}


class Thing(NamedTuple):
    """Something with a name, such as a town."""

    kind: str
    name: str

    @property
    def called(self) -> str:
        """The thing inside a sentence: ``the river Tarvel``."""
        called: str = _WORLD["called"].get(self.kind, "{}")
        return called.format(self.name)


def new_thing(namer: Namer, kind: str) -> Thing:
    """Return a thing with a new name: two words for a person, one for anything else, none of them used before."""
    return Thing(kind, f"{namer.word()} {namer.word()}" if kind == "person" else namer.word())


def state(source: random.Random, relation: Relation, subject: Thing, target: Thing) -> str:
    """Return a sentence that says that ``relation`` leads from ``subject`` to ``target``."""
    sentence = source.choice(relation.sentences).format(s=subject.called, o=target.called)
    return sentence[0].upper() + sentence[1:]


def asides(source: random.Random, kind: str, count: int) -> list[str]:
    """Return up to ``count`` different sentences about a thing of this kind that lead nowhere."""
    sentences: list[str] = _WORLD["asides"][kind]
    chosen = source.sample(sentences, min(count, len(sentences)))
    return [sentence.format(n=source.randint(2, 90)) for sentence in chosen]


class MuSiQueConfig(Frozen):
    """How questions are drawn. Pairs are inclusive ranges, drawn uniformly."""

    hops: Annotated[tuple[int, int], ascending(1, MAX_HOPS)] = Field((2, 4), description="hops of the question")
    paragraphs: int = Field(20, ge=4, le=200, description="paragraphs in all")
    lookalikes: int = Field(2, ge=0, le=20, description="paragraphs per hop that state its relation of something else")
    side_facts: Range = Field((2, 3), description="other relations that a paragraph states, three at most")
    forks: bool = Field(
        False,
        description="whether the free paragraphs hold paths to the last relation, instead of lookalikes",
    )
    asides: Range = Field((0, 1), description="sentences of a paragraph that lead nowhere, three at most")
    missing_citations: int = Field(
        0, ge=0, le=MAX_HOPS - 1, description="the number of hops minus the number of citations that count"
    )


PRESETS = {
    "conflict": MuSiQueConfig(hops=(4, 4), paragraphs=40, side_facts=(3, 3), missing_citations=1, forks=True),
    "paper": MuSiQueConfig(),
}
"""``conflict``: one citation fewer than there are hops, and forks on the way. ``paper``: two to four hops, all of which
can be cited."""


def draw_question(source: random.Random, config: MuSiQueConfig) -> MuSiQueTask | None:
    """Draw a question; ``None`` if its objectives do not conflict although they should."""
    hop_count = source.randint(*config.hops)
    if config.missing_citations and not conflicts(hop_count, hop_count - config.missing_citations):
        return None
    namer = Namer(source)
    chain, things = _draw_chain(source, namer, hop_count)
    return _write(source, namer, config, chain, things)


@lru_cache(maxsize=32)
def conflicts(hop_count: int, max_citations: int) -> bool:
    """Return whether the objectives of a question conflict, by its exact front."""
    if not 1 <= max_citations < hop_count:
        return False
    best = [[float(i in cited) for i in range(hop_count)] for cited in combinations(range(hop_count), max_citations)]
    return needs_a_set(np.array([[*hops, 1.0] for hops in best]))


def _draw_chain(source: random.Random, namer: Namer, hop_count: int) -> tuple[list[Relation], list[Thing]]:
    """Return different relations, each of which leads from one thing to the next, and the things."""
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


class Page(NamedTuple):
    """What a paragraph is about, and the relations of that thing which it states."""

    subject: Thing
    facts: list[tuple[Relation, Thing]]


def _write(
    source: random.Random,
    namer: Namer,
    config: MuSiQueConfig,
    chain: list[Relation],
    things: list[Thing],
) -> MuSiQueTask:
    if config.forks:
        chain, things, pages = _draw_forks(source, namer, config, chain, things)
    else:
        pages = _draw_pages(source, namer, config, chain, things)
    phrase = things[0].called
    for relation in chain[:-1]:
        phrase = relation.phrase.format(s=phrase)
    order = list(range(config.paragraphs))
    source.shuffle(order)
    number_of = {i: number for number, i in enumerate(order)}
    return MuSiQueTask(
        id=f"{len(chain)}hop__{source.getrandbits(64):016x}",
        question=chain[-1].question.format(s=phrase),
        paragraphs=tuple(
            Paragraph(number=number, title=pages[i].subject.name, text=_text(source, config, pages[i]))
            for number, i in enumerate(order)
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
        exact=True,
        max_citations=len(chain) - config.missing_citations if config.missing_citations else MAX_CITATIONS,
    )


def _draw_pages(
    source: random.Random, namer: Namer, config: MuSiQueConfig, chain: list[Relation], things: list[Thing]
) -> list[Page]:
    """Return the pages of the chain, then pages that side facts lead to, then lookalikes.

    A statement of the last relation leads to a thing without a page, as the final answer is. Any other side fact leads
    to a new page while there is room, and after that to any page of the right kind or to a thing without a page.
    """
    drafts = list(zip(things, chain, strict=False))
    lookalikes = [(new_thing(namer, r.subject), r) for r in chain for _ in range(config.lookalikes)]
    lookalikes = lookalikes[: config.paragraphs - len(drafts)]
    titled = [thing for thing, _ in (*drafts, *lookalikes)]
    pages: list[Page] = []
    while len(pages) < config.paragraphs:
        if len(pages) == len(drafts):
            drafts += lookalikes or [_draft(source, new_thing(namer, source.choice(KINDS)))]
            lookalikes = []
        subject, main = drafts[len(pages)]
        others = [relation for relation in OF_KIND[subject.kind] if relation is not main]
        count = min(source.randint(*config.side_facts), len(others))
        page = Page(subject, [])
        for relation in (main, *source.sample(others, count)):
            known = [thing for thing in titled if thing.kind == relation.object and thing != subject]
            if relation is main and len(pages) < len(chain):
                target = things[len(pages) + 1]
            elif relation is chain[-1]:
                target = new_thing(namer, relation.object)
            elif len(titled) < config.paragraphs:
                target = new_thing(namer, relation.object)
                titled.append(target)
                drafts.append(_draft(source, target))
            elif source.randint(0, len(known)):
                target = source.choice(known)
            else:
                target = new_thing(namer, relation.object)
            page.facts.append((relation, target))
        pages.append(page)
    return pages


FORKED = 1.4
"""Factor by which the number of paragraphs grows from one hop to the next."""


def _draw_forks(
    source: random.Random, namer: Namer, config: MuSiQueConfig, chain: list[Relation], things: list[Thing]
) -> tuple[list[Relation], list[Thing], list[Page]]:
    """Return the relations and things of the path that is asked for, and the pages, those of the path first.

    Whoever knows the last relation alone meets a fork at each page. Statements of the last relation lead to things
    without a page. What room is left goes to pages that no path needs. The path that is asked for is drawn from all
    paths of as many hops to a statement of the last relation, so that nothing but its relations tells it from another.
    """
    steps = len(chain)
    kinds = [{chain[-1].subject}]
    for _ in range(steps - 1):
        kinds.insert(0, {relation.subject for relation in RELATIONS if relation.object in kinds[0]})
    shares = [FORKED**step for step in range(1, steps)]
    room = [1, *(round((config.paragraphs - 1) * share / sum(shares)) for share in shares)]
    room[-1] = config.paragraphs - sum(room[:-1])
    pages: list[Page] = []
    others: list[Page] = []
    level = [things[0]]
    for step, (gold, way) in enumerate(zip(things, chain, strict=False)):
        after = [things[step + 1]] if step + 1 < steps else []
        for subject in source.sample(level, len(level)):
            onward = kinds[step + 1] if step + 1 < steps else set()
            most = room[step + 1] if onward else 0
            mains = [way] if subject is gold else [chain[-1]] if step + 1 == steps else []
            rest = [relation for relation in OF_KIND[subject.kind] if relation not in mains]
            rest = sorted(source.sample(rest, len(rest)), key=lambda relation: relation.object not in onward)
            page = Page(subject, [])
            for relation in [*mains, *rest][: 1 + source.randint(*config.side_facts)]:
                known = [thing for thing in after if thing.kind == relation.object]
                if relation is way and subject is gold:
                    target = things[step + 1]
                elif relation is chain[-1] or relation.object not in onward or (len(after) >= most and not known):
                    target = new_thing(namer, relation.object)
                elif len(after) < most:
                    target = new_thing(namer, relation.object)
                    after.append(target)
                else:
                    target = source.choice(known)
                page.facts.append((relation, target))
            (pages if subject is gold else others).append(page)
        level = after
    while len(pages) + len(others) < config.paragraphs:
        subject, main = _draft(source, new_thing(namer, source.choice(KINDS)))
        rest = [relation for relation in OF_KIND[subject.kind] if relation is not main]
        told = [main, *source.sample(rest, min(len(rest), source.randint(*config.side_facts)))]
        others.append(Page(subject, [(relation, new_thing(namer, relation.object)) for relation in told]))
    return _draw_path(source, things[0], chain[-1], steps, [*pages, *others])


def _draw_path(
    source: random.Random, start: Thing, last: Relation, steps: int, pages: list[Page]
) -> tuple[list[Relation], list[Thing], list[Page]]:
    """Return a path to a statement of the last relation, and its pages before the others.

    Every path is as likely as the others.
    """
    page_of = {page.subject: page for page in pages}
    paths = [[start]]
    for _ in range(steps - 1):
        paths = [
            [*path, thing]
            for path in paths
            for thing in dict.fromkeys(thing for _, thing in page_of[path[-1]].facts)
            if thing in page_of and thing not in path
        ]
    things = source.choice([path for path in paths if any(relation is last for relation, _ in page_of[path[-1]].facts)])
    chain = [
        source.choice([relation for relation, thing in page_of[one].facts if thing == after])
        for one, after in pairwise(things)
    ]
    [answer] = [thing for relation, thing in page_of[things[-1]].facts if relation is last]
    told = [page_of[thing] for thing in things]
    return [*chain, last], [*things, answer], [*told, *(page for page in pages if page not in told)]


def _draft(source: random.Random, thing: Thing) -> tuple[Thing, Relation]:
    return thing, source.choice(OF_KIND[thing.kind])


def _text(source: random.Random, config: MuSiQueConfig, page: Page) -> str:
    sentences = [state(source, relation, page.subject, target) for relation, target in page.facts]
    sentences += asides(source, page.subject.kind, source.randint(*config.asides))
    source.shuffle(sentences)
    return " ".join(sentences)
