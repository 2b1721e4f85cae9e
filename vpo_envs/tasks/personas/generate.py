"""Random topics and personas, whose checks agree or contradict each other."""

from __future__ import annotations

import functools
import random
from typing import Annotated, Self

from pydantic import Field, model_validator

from vpo_envs.core import Split, split_of_content
from vpo_envs.pareto import gains
from vpo_envs.tasks.generation import CertifiedConfig, ascending
from vpo_envs.tasks.personas.checks import Check, Family, exclude, holds, read_text
from vpo_envs.tasks.personas.front import WORDS, contradictions, maximal_sets, shares, witness
from vpo_envs.tasks.personas.task import WORDINGS, PersonasTask, content, evaluate, request

ATTEMPTS = 3000
"""Tasks that are drawn before the knobs count as impossible."""
PHRASES = 200
"""Phrases that are drawn for one position before the task is dropped."""
MAX_PERSONAS = 4


class PersonasConfig(CertifiedConfig):
    """How personas are drawn. Pairs are inclusive ranges, drawn uniformly."""

    personas: int = Field(3, ge=2, le=MAX_PERSONAS, description="personas that judge a text: the objectives")
    checks: Annotated[tuple[int, int], ascending(1, 6)] = Field((3, 5), description="checks of each persona")
    exclusive: Annotated[tuple[int, int], ascending(0, 4)] = Field(
        (0, 0), description="checks of each persona that contradict one of every other persona; 0 in preset paper"
    )

    @model_validator(mode="after")
    def _leaves_a_choice(self) -> Self:
        if self.exclusive[0] and (self.exclusive[0] == 1 or self.exclusive[1] >= self.checks[1]):
            raise ValueError(
                f"exclusive is 0 to 0, or from 2 to below the most checks={self.checks[1]}, got {self.exclusive}"
            )
        return self


PRESETS = {
    "conflict": PersonasConfig(exclusive=(2, 3)),
    "paper": PersonasConfig(min_set_gain=1.0, min_vector_gain=1.0),
}

NUMBERS = ("", "", "", "", "3 ", "7 ", "12 ", "40 ", "99 ")
ENDS = ("!", "?", ".")
TITLES = [f"{word} " for word in WORDS["titles"]]
OPENING = (NUMBERS, TITLES, WORDS["names"], (", ", ": ", " for "), WORDS["readers"], ENDS)
CLOSING = (WORDS["farewells"], (", ", ": ", " to all "), NUMBERS, WORDS["readers"], ENDS)
"""The pieces of a phrase, one of each."""
LETTERS = "bdfgjkmpqvwxyz"
MARKS = ",!?:"
_check = functools.cache(Check)
"""Make a check; the same object for the same arguments, since thousands are drawn for one that is kept."""


def draw_task(source: random.Random, config: PersonasConfig, split: Split) -> PersonasTask:
    """Draw a certified task of ``split``."""
    for _ in range(ATTEMPTS):
        task = _try_task(source, config, split)
        if task is not None:
            return task
    raise ValueError(
        f"none of {ATTEMPTS} texts for personas reached min_set_gain={config.min_set_gain} and min_vector_gain="
        f"{config.min_vector_gain} with {config}: lower them, or allow more checks"
    )


def _try_task(source: random.Random, config: PersonasConfig, split: Split) -> PersonasTask | None:
    """Draw a task; ``None`` if it is not of this split, not certified or has a set of checks without a text."""
    topic = source.choice(WORDS["topics"])
    exclusive = source.randint(*config.exclusive)
    least, most = max(config.checks[0], exclusive + 1), config.checks[1]
    sizes = [source.randint(least, most) - exclusive for _ in range(config.personas)]
    if exclusive:
        limits = _limits(source, topic)
        agreeing = [[limits.pop() for _ in range(size)] for size in sizes]
        personas = _with_contradictions(source, agreeing, exclusive)
    else:
        personas = _draw_agreeing(source, topic, sizes)
    if personas is None or split_of_content(content(topic, personas)) != split:
        return None
    for checks in personas:
        source.shuffle(checks)
    checks = [check for checks in personas for check in checks]
    sets = list(maximal_sets(contradictions(checks)))
    if not config.certifies(lambda: gains(shares(personas, sets))):
        return None
    text = request(topic, personas, source.choice(WORDINGS))
    task = PersonasTask(request=text, topic=topic, personas=tuple(map(tuple, personas)))
    for chosen in sets:
        answer = witness([checks[i] for i in sorted(chosen)], topic, 0)
        if answer is None or not evaluate(task, answer).real:
            return None
    return task


# Personas who contradict each other ----------------------------------------------------------------------------------


def _with_contradictions(
    source: random.Random, agreeing: list[list[Check]], exclusive: int
) -> list[list[Check]] | None:
    """Add ``exclusive`` checks to each persona, each of which contradicts a check of every other persona.

    The phrases that a persona wants at the beginning and the end break the agreeing checks of the others. So a text
    passes all agreeing checks, or all checks of one persona and few of the others.
    """
    personas = [[*checks] for checks in agreeing]
    ends: tuple[Family, ...] = ("opens", "closes")
    for end, family in enumerate(ends):
        phrases: list[str] = []
        for k, kept in enumerate(agreeing):
            broken = [checks[end % len(checks)] for other, checks in enumerate(agreeing) if other != k]
            phrase = _draw_phrase(source, family, kept, broken)
            if phrase is None or phrase in phrases:
                return None
            phrases.append(phrase)
            personas[k].append(_check(family=family, value=phrase, least=1))
    counted: list[Family] = ["words", "sentences", "bullets"]
    for family in source.sample(counted, exclusive - 2):
        bands = _bands(source, family, len(personas))
        source.shuffle(bands)
        for checks, (least, most) in zip(personas, bands, strict=True):
            checks.append(_check(family=family, least=least, most=most))
    return personas


def _limits(source: random.Random, topic: str) -> list[Check]:
    """Return different checks that forbid something, in random order."""
    limits = [
        *(_check(family="mark", value=mark, most=0) for mark in MARKS),
        _check(family="digits", most=0),
        _check(family="longest", most=max(7, len(topic)) + source.randint(0, 2)),
        *(_check(family="letter", value=letter, most=0) for letter in LETTERS if letter not in topic),
        *(_check(family="keyword", value=word, most=0) for word in source.sample(WORDS["readers"], 3)),
    ]
    source.shuffle(limits)
    return limits


def _draw_phrase(source: random.Random, family: Family, kept: list[Check], broken: list[Check]) -> str | None:
    """Draw a phrase that passes some limits and breaks others; ``None`` if none was found."""
    # A phrase stays within a limit if each of its pieces does.
    barred = frozenset[str]().union(*map(_breaking, kept))
    pieces = [
        [piece for piece in pieces if piece not in barred] for pieces in (OPENING if family == "opens" else CLOSING)
    ]
    if not all(pieces):
        return None
    unwanted = [_breaking(check) for check in broken]
    for _ in range(PHRASES):
        chosen = [source.choice(choices) for choices in pieces]
        if not any(breaking.isdisjoint(chosen) for breaking in unwanted):
            return "".join(chosen)
    return None


@functools.cache
def _breaking(limit: Check) -> frozenset[str]:
    """Return the pieces of phrases that break a limit."""
    return frozenset(
        piece for choices in (*OPENING, *CLOSING) for piece in choices if not holds(limit, read_text(piece))
    )


BANDS: dict[Family, tuple[int, int, int]] = {"words": (18, 6, 6), "sentences": (4, 1, 1), "bullets": (0, 1, 1)}
"""Least upper bound of the first band, most further width, and most room between bands."""


def _bands(source: random.Random, family: Family, count: int) -> list[tuple[int, int | None]]:
    """Draw ``count`` disjoint bands in ascending order; the first has no lower bound and the last no upper one."""
    start, width, gap = BANDS[family]
    low, high = 0, start + source.randint(0, width)
    bands: list[tuple[int, int | None]] = []
    for _ in range(count - 1):
        bands.append((low, high))
        low = high + 1 + source.randint(0, gap)
        high = low + source.randint(1, width + 1)
    return [*bands, (low, None)]


# Personas who agree --------------------------------------------------------------------------------------------------


def _draw_agreeing(source: random.Random, topic: str, sizes: list[int]) -> list[list[Check]] | None:
    """Draw personas none of whose checks contradict each other; no two checks count the same thing for one persona.

    ``None`` if the checks so far leave too few others.
    """
    drawn: list[Check] = []
    personas: list[list[Check]] = []
    for size in sizes:
        checks: list[Check] = []
        for _ in range(CHECKS_TRIED):
            if len(checks) == size:
                break
            check = _draw_check(source, topic)
            if check.family not in [other.family for other in checks] and not any(
                check is other or exclude(check, other) for other in drawn
            ):
                checks.append(check)
                drawn.append(check)
        else:
            return None
        personas.append(checks)
    return personas


AGREEING: tuple[Family, ...] = (
    *("words", "sentences", "bullets", "capital_words", "opens", "closes"),
    *("keyword", "keyword"),
)
"""Families of which one text seldom passes the checks of two tasks."""
CHECKS_TRIED = 200
"""Checks that are drawn for one persona before the task is dropped."""
LIMITED = 0.05
"""Share of checks that forbid something; a text that was written for no task passes them."""


def _draw_check(source: random.Random, topic: str) -> Check:
    if source.random() < LIMITED:
        return source.choice(_limits(source, topic))
    family = source.choice(AGREEING)
    match family:
        case "words":
            least = source.randint(14, 70)
            return _check(family=family, least=least, most=least + source.randint(2, 5))
        case "sentences":
            least = source.randint(2, 9)
            return _check(family=family, least=least, most=least + source.randint(0, 1))
        case "bullets" | "capital_words":
            least = source.randint(1, 5)
            return _check(family=family, least=least, most=least)
        case "keyword":
            return _check(family=family, value=source.choice(WORDS["keywords"]), least=1)
        case _:
            return _check(family=family, value=_draw_phrase(source, family, [], []) or "", least=1)
