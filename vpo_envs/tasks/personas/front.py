"""The exact front: maximal sets of checks that do not contradict each other, each with a text that passes them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from envs_data.parsing import parse_toml
from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.personas.checks import Check, Family, exclude, holds, read_text
from vpo_envs.tasks.personas.task import MAX_WORDS, MIN_WORDS

Chosen = frozenset[int]
"""A set of checks, by their positions."""


def contradictions(checks: Sequence[Check]) -> list[Chosen]:
    """Return for each check the others that contradict it."""
    return [frozenset(j for j, other in enumerate(checks) if exclude(check, other)) for check in checks]


def maximal_sets(barred: Sequence[Chosen]) -> Iterator[Chosen]:
    """Yield every set of checks without a contradiction to which no other can be added (Bron and Kerbosch, 1973)."""
    everything = frozenset(range(len(barred)))
    beside = [everything - others - {i} for i, others in enumerate(barred)]

    def grow(chosen: Chosen, open_: Chosen, closed: Chosen) -> Iterator[Chosen]:
        if not open_ and not closed:
            yield chosen
            return
        pivot = max(open_ | closed, key=lambda i: len(open_ & beside[i]))
        for i in sorted(open_ - beside[pivot]):
            yield from grow(chosen | {i}, open_ & beside[i], closed & beside[i])
            open_, closed = open_ - {i}, closed | {i}

    yield from grow(frozenset(), everything, frozenset())


def shares(personas: Sequence[Sequence[Check]], sets: Sequence[Chosen]) -> NDArray[np.float64]:
    """Return the share of each persona's checks that each set holds, shape (n, K)."""
    sizes = [len(checks) for checks in personas]
    ends = np.cumsum(sizes)
    of_personas = [range(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True)]
    return np.array([[len(held.intersection(checks)) / len(checks) for checks in of_personas] for held in sets])


def best_sets_of_checks(personas: Sequence[Sequence[Check]]) -> list[Chosen]:
    """Return maximal sets of checks without contradictions, one for each point of the front of the shares."""
    sets = list(maximal_sets(contradictions([check for checks in personas for check in checks])))
    return [chosen for chosen, kept in zip(sets, non_dominated(shares(personas, sets)), strict=True) if kept]


WORDS: dict[str, list[str]] = {
    kind: words.split()
    for kind, words in parse_toml(files(__package__).joinpath("vocabulary.toml").read_text("utf-8")).items()
}
"""Words by the name that ``vocabulary.toml`` gives their kind."""


KINDS = {"a": "adjectives", "n": "nouns", "v": "verbs", "d": "adverbs", "j": "joining"}
TRIES = 4
"""Texts that are drawn before a set of checks counts as too hard."""
USUAL_WORDS = 26
LONGEST_SENTENCE = 8


def witness(checks: Sequence[Check], topic: str, seed: int) -> str | None:
    """Return a text on ``topic`` that passes all ``checks``, the same for the same ``seed``; ``None`` if none is found.

    Checks of these families can be met: words, sentences, bullets, mark, digits, letter, capitals, capital_words,
    longest, keyword, opens and closes, with an upper bound of 0 on the marks, digits, letters and capitals.
    """
    source = random.Random(seed)
    for _ in range(TRIES):
        text = _draw(checks, topic, source)
        if text is not None and all(holds(check, read_text(text)) for check in checks):
            return text
    return None


def _draw(checks: Sequence[Check], topic: str, source: random.Random) -> str | None:
    """Draw a text with the wanted phrases and counts."""
    opening, closing = (_phrase(checks, family) for family in ("opens", "closes"))
    keywords = [check.value for check in checks if check.family == "keyword" and check.least]
    bullets = _target(checks, "bullets", 0, 0)
    shouted = _target(checks, "capital_words", 0, 0)
    around = read_text(f"{opening} {closing}")
    ended = sum(phrase.endswith((".", "!", "?")) for phrase in (opening, closing))
    least_words = max(MIN_WORDS, len(around.words) + 3 + len(keywords))
    words = _target(checks, "words", least_words, max(USUAL_WORDS, least_words)) - len(around.words)
    sentences = _target(checks, "sentences", ended + 1 + bullets, ended + max(bullets + 1, words // 6)) - ended
    if not sentences <= words <= LONGEST_SENTENCE * sentences or sentences <= 0:
        return None
    vocabulary = _Vocabulary(checks, source)
    try:
        body = [list(sentence) for sentence in _sentences(vocabulary, [topic, *keywords], words, sentences)]
    except IndexError:
        return None
    for number in range(shouted):
        body[number % sentences][number // sentences] = body[number % sentences][number // sentences].upper()
    plain = any(check.family == "capitals" and check.most is not None for check in checks)
    lines = [" ".join(sentence) + "." for sentence in body]
    if not plain:
        lines = [line[0].upper() + line[1:] for line in lines]
        opening, closing = (phrase[:1].upper() + phrase[1:] for phrase in (opening, closing))
    running = len(lines) - bullets
    first = " ".join(filter(None, [opening, *lines[:running]]))
    if not bullets:
        return " ".join(filter(None, [first, closing]))
    return "\n".join(filter(None, [first, *(f"* {line}" for line in lines[running:]), closing]))


def _phrase(checks: Sequence[Check], family: Family) -> str:
    return max([check.value for check in checks if check.family == family], key=len, default="")


def _target(checks: Sequence[Check], family: Family, least: int, usual: int) -> int:
    """Return a count within the bands of a family, at least ``least`` and as near to ``usual`` as they allow."""
    bands = [(check.least, check.most) for check in checks if check.family == family]
    low = max([least, *(band[0] for band in bands)])
    high = min([MAX_WORDS, *(band[1] for band in bands if band[1] is not None)])
    return max(low, min(usual, high))


class _Vocabulary:
    """Words that the checks allow, each given once before any is given again."""

    def __init__(self, checks: Sequence[Check], source: random.Random) -> None:
        letters = [check.value for check in checks if check.family == "letter" and check.most == 0]
        barred = {check.value for check in checks if check.family == "keyword"}
        longest = min([check.most for check in checks if check.family == "longest" and check.most], default=99)
        self._pools: dict[str, list[str]] = {}
        for kind, pool in KINDS.items():
            allowed = [
                word
                for word in WORDS[pool]
                if len(word) <= longest and word not in barred and not any(letter in word for letter in letters)
            ]
            source.shuffle(allowed)
            self._pools[kind] = allowed
        self._given = dict.fromkeys(self._pools, 0)

    def word(self, kind: str) -> str:
        """Return the next word of a kind; ``IndexError`` if none is allowed."""
        pool = self._pools[kind]
        if not pool:
            raise IndexError("no word of this kind is allowed")
        self._given[kind] += 1
        return pool[(self._given[kind] - 1) % len(pool)]


SHAPES = {1: "n", 2: "nv", 3: "anv", 4: "anvd", 5: "aanvd", 6: "nvdjvd", 7: "anvdjvd", 8: "aanvdjvd"}
"""Kinds of the words of a sentence by its length: adjective, noun, verb, adverb, joining word."""


def _sentences(vocabulary: _Vocabulary, wanted: list[str], words: int, count: int) -> Iterator[list[str]]:
    """Yield ``count`` sentences of ``words`` words in all, the wanted words as nouns of the first ones."""
    sizes = [words // count + (i < words % count) for i in range(count)]
    for position, size in enumerate(sizes):
        shape = SHAPES[size]
        sentence = [vocabulary.word(kind) for kind in shape]
        nouns_first = [i for i in range(size) if shape[i] == "n"] + [i for i in range(size) if shape[i] != "n"]
        for i, word in zip(nouns_first, wanted[position::count], strict=False):
            sentence[i] = word
        yield sentence
