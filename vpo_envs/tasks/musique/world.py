"""The invented world of the generated questions, which ``world.toml`` describes, and the sentences about it."""

from __future__ import annotations

import random
import tomllib
from importlib.resources import files
from typing import NamedTuple

from vpo_envs.generation import Namer


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


_WORLD = tomllib.loads(files("vpo_envs.tasks.musique").joinpath("world.toml").read_text(encoding="utf-8"))
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
