"""The invented world of the generated questions: kinds of things, relations between them, and how both are put."""

from __future__ import annotations

import random
from typing import NamedTuple

from vpo_envs.generation import Namer


class Relation(NamedTuple):
    """A relation from a thing of one kind to the one thing of another kind, and ways to put it into words."""

    name: str
    subject: str
    """Kind of the thing that the relation is about."""
    object: str
    """Kind of the thing that it leads to."""
    sentences: tuple[str, ...]
    """Statements with ``{s}`` and ``{o}``."""
    phrase: str
    """The object by way of the subject: ``the author of {s}``."""
    question: str
    """What asks for the object: ``Who wrote {s}?``"""


RELATIONS = (
    Relation(
        "author",
        "book",
        "person",
        ("{s} was written by {o}.", "{o} is remembered as the author of {s}."),
        "the author of {s}",
        "Who wrote {s}?",
    ),
    Relation(
        "setting",
        "book",
        "town",
        ("The story of {s} takes place in {o}.", "Every scene of {s} is set in {o}."),
        "the town where {s} is set",
        "In which town is {s} set?",
    ),
    Relation(
        "birthplace",
        "person",
        "town",
        ("{s} was born in {o}.", "{s} came into the world in a small house in {o}."),
        "the town where {s} was born",
        "In which town was {s} born?",
    ),
    Relation(
        "spouse",
        "person",
        "person",
        ("{s} married {o}.", "After a long courtship {s} was wed to {o}."),
        "the person whom {s} married",
        "Whom did {s} marry?",
    ),
    Relation(
        "teacher",
        "person",
        "person",
        ("{s} learned the trade from {o}.", "It was {o} who taught {s}."),
        "the teacher of {s}",
        "Who taught {s}?",
    ),
    Relation(
        "membership",
        "person",
        "guild",
        ("{s} spent a lifetime as a member of {o}.", "{s} was sworn into {o} at a young age."),
        "the guild to which {s} belonged",
        "To which guild did {s} belong?",
    ),
    Relation(
        "founder",
        "guild",
        "person",
        ("{s} was founded by {o}.", "The founder of {s} was {o}."),
        "the founder of {s}",
        "Who founded {s}?",
    ),
    Relation(
        "seat",
        "guild",
        "town",
        ("{s} has its hall in {o}.", "The members of {s} meet in {o}."),
        "the town where {s} has its hall",
        "In which town does {s} have its hall?",
    ),
    Relation(
        "waters",
        "town",
        "river",
        ("{s} lies on {o}.", "The mills of {s} are driven by {o}."),
        "the river on which {s} lies",
        "On which river does {s} lie?",
    ),
    Relation(
        "province",
        "town",
        "region",
        ("{s} belongs to {o}.", "{s} pays its taxes to {o}."),
        "the region to which {s} belongs",
        "To which region does {s} belong?",
    ),
    Relation(
        "mayor",
        "town",
        "person",
        ("The mayor of {s} is {o}.", "{s} is governed by its mayor, {o}."),
        "the mayor of {s}",
        "Who is the mayor of {s}?",
    ),
    Relation(
        "capital",
        "region",
        "town",
        ("The capital of {s} is {o}.", "{s} is ruled from its capital, {o}."),
        "the capital of {s}",
        "What is the capital of {s}?",
    ),
    Relation(
        "source",
        "river",
        "peak",
        ("{s} rises on the slopes of {o}.", "The springs of {s} are high on {o}."),
        "the peak on which {s} rises",
        "On which peak does {s} rise?",
    ),
    Relation(
        "mouth",
        "river",
        "town",
        ("{s} meets the sea at {o}.", "At {o}, {s} reaches the coast."),
        "the town where {s} meets the sea",
        "At which town does {s} meet the sea?",
    ),
    Relation(
        "first_ascent",
        "peak",
        "person",
        ("The first to climb {s} was {o}.", "{o} was the first to stand on top of {s}."),
        "the first climber of {s}",
        "Who was the first to climb {s}?",
    ),
    Relation(
        "range",
        "peak",
        "region",
        ("{s} stands in {o}.", "On a clear day {s} can be seen from all of {o}."),
        "the region in which {s} stands",
        "In which region does {s} stand?",
    ),
)
KINDS = tuple(dict.fromkeys(relation.subject for relation in RELATIONS))
OF_KIND = {kind: tuple(relation for relation in RELATIONS if relation.subject == kind) for kind in KINDS}

CALLED = {
    "book": "the book {}",
    "guild": "the guild {}",
    "river": "the river {}",
    "region": "the region {}",
    "peak": "the peak {}",
}

ASIDES = {
    "book": ("It has {n} chapters.", "Only {n} copies of it are left.", "Its first lines are often quoted."),
    "person": (
        "At the age of {n} came a change of heart.",
        "A collection of {n} letters survives.",
        "Friends were few.",
    ),
    "guild": ("It counts {n} members.", "It has its own seal.", "New members pay {n} coins."),
    "town": ("It has {n} wells.", "A market is held there every {n} days.", "Its walls are of red stone."),
    "region": ("It counts {n} villages.", "Its winters last {n} weeks.", "Barley is grown there."),
    "river": ("It is crossed by {n} bridges.", "It freezes in most winters.", "It is {n} miles long."),
    "peak": ("It is climbed by {n} paths.", "Snow lies on it for {n} weeks a year.", "Eagles nest there."),
}


class Thing(NamedTuple):
    """Something with a name, such as a town."""

    kind: str
    name: str

    @property
    def called(self) -> str:
        """The thing inside a sentence: ``the river Tarvel``."""
        return CALLED.get(self.kind, "{}").format(self.name)


def new_thing(namer: Namer, kind: str) -> Thing:
    """A thing with a new name: two words for a person, one for anything else, so that none gives another away."""
    return Thing(kind, f"{namer.word()} {namer.word()}" if kind == "person" else namer.word())


def state(source: random.Random, relation: Relation, subject: Thing, target: Thing) -> str:
    """A sentence that says that ``relation`` leads from ``subject`` to ``target``."""
    sentence = source.choice(relation.sentences).format(s=subject.called, o=target.called)
    return sentence[0].upper() + sentence[1:]


def asides(source: random.Random, kind: str, count: int) -> list[str]:
    """Up to ``count`` different sentences about a thing of this kind that lead nowhere."""
    chosen = source.sample(ASIDES[kind], min(count, len(ASIDES[kind])))
    return [sentence.format(n=source.randint(2, 90)) for sentence in chosen]
