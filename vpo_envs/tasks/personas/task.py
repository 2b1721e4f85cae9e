"""A text for several personas: the request, reading an answer, its outcome and the objectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache, partial
from itertools import chain, combinations
from typing import Annotated, NamedTuple

from pydantic import Field

from vpo_envs.core import Objective, Task, Unparsable
from vpo_envs.tasks.personas.checks import MEANINGS, Check, Counted, compiled, describe, exclude, read_text
from vpo_envs.text import answer_tags, runs, several_answers

RUN = 4
"""Number of consecutive words that are compared with the prompt and with the rest of the text."""
NUMBERS_OF_ANSWERS = range(1, 17)
"""Numbers of answers for which a text is compared with the end of the prompt; for more, only that number differs."""


class Band(NamedTuple):
    """A check in the form in which a text is scored: the count of something lies from ``least`` to ``most``."""

    counted: int
    """Position of what is counted among all that the checks of the task count."""
    least: int
    most: int


class CompiledChecks(NamedTuple):
    """The checks of a task in the form in which a text is scored."""

    counted: list[Counted]
    """What the checks count, each thing once."""
    bands: list[Band]
    """Band of each check, persona by persona."""
    personas: list[slice]
    """The checks of each persona among the bands."""


class PersonasTask(Task):
    """One text to write."""

    request: str = Field(min_length=1)
    """What is asked for, in words: the prompt without its closing paragraph. A text must not be copied from either."""
    topic: str = Field(min_length=1)
    """The word that the text must use."""
    personas: tuple[Annotated[tuple[Check, ...], Field(min_length=1)], ...] = Field(min_length=1)
    """The checks of each persona, at least one, in the order of the objectives."""

    @property
    def canonical(self) -> str:
        """The topic and the checks."""
        return content(self.topic, self.personas)

    @cached_property
    def conflicts(self) -> bool:
        """Whether two checks contradict each other, so that no text passes all of them."""
        checks = [check for checks in self.personas for check in checks]
        return any(exclude(*pair) for pair in combinations(checks, 2))

    @cached_property
    def compiled(self) -> CompiledChecks:
        """The checks in the form in which a text is scored."""
        positions: dict[Counted, int] = {}
        bands: list[Band] = []
        personas: list[slice] = []
        for checks in self.personas:
            personas.append(slice(len(bands), len(bands) + len(checks)))
            for check in checks:
                counted, least, most = compiled(check)
                bands.append(Band(positions.setdefault(counted, len(positions)), least, most))
        return CompiledChecks(list(positions), bands, personas)

    @cached_property
    def request_words(self) -> list[str]:
        """The words of the request in order."""
        return read_text(self.request).words

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The different words of the prompt, whatever the number of answers."""
        return frozenset(chain(self.request_words, *self.passages))

    @cached_property
    def passages(self) -> frozenset[tuple[str, ...]]:
        """Runs of words of the prompt, whatever the number of answers."""
        return _closing_runs(tuple(self.request_words[1 - RUN :])).union(runs(self.request_words, RUN))


def content(topic: str, personas: Iterable[Iterable[Check]]) -> str:
    """Return the topic and the checks, whatever the order of the personas and of their checks."""
    return f"{topic} {sorted(sorted(map(str, checks)) for checks in personas)}"


MIN_WORDS = 8
MAX_WORDS = 120
AS_BLANKS = bytes.maketrans(b"\n", b" ")
"""Line breaks as blanks."""
CONTROLS = bytes([*range(ord("\n")), *range(ord("\n") + 1, ord(" ")), 127])
"""Control characters of ASCII but the line break."""


class Wording(NamedTuple):
    """One way to put a request into words."""

    opening: str
    """Sentence that states the ``{topic}`` and the ``{count}`` of personas."""
    persona: str
    """Stands before the checks of persona ``{number}``."""


WORDINGS = (
    Wording(
        "Write a short text about {topic}. It is for {count} personas, each of whom gives it a score: the share of "
        "that persona's checks that hold.",
        "Persona {number} wants a text that",
    ),
    Wording(
        "{count} personas will read a short text about {topic}, and each has a list of checks. For each of them the "
        "text earns the share of the list that it passes. Write the text.",
        "Checks of persona {number}: the text",
    ),
    Wording(
        "A short text about {topic} is wanted. It is judged by {count} personas, each by a list of its own: the text's "
        "score with a persona is the share of the list that is true of it.",
        "Persona {number} likes a text that",
    ),
)


def request(topic: str, personas: Sequence[Sequence[Check]], wording: Wording = WORDINGS[0]) -> str:
    """Return what is asked for: the topic, the checks of each persona and the rules."""
    lines = [wording.opening.format(topic=topic, count=len(personas))]
    for number, checks in enumerate(personas, start=1):
        lines += ["", wording.persona.format(number=number), *(f"- {describe(check)}" for check in checks)]
    families = {check.family for checks in personas for check in checks}
    rules = [
        f'Rules: The text uses the word "{topic}" and has {MIN_WORDS} to {MAX_WORDS} words. Of its runs of four '
        "consecutive words, at most a quarter are copied from these instructions or repeat an earlier one. A text that "
        "breaks a rule earns nothing.",
        *(meaning for family, meaning in MEANINGS.items() if family == "words" or family in families),
        "Upper and lower case make no difference, except for capitals.",
    ]
    return "\n".join([*lines, "", " ".join(rules)])


def full_prompt(task: PersonasTask, num_answers: int) -> str:
    """Return the request and the tags to fill in."""
    return f"{task.request}\n\n{_closing(num_answers, conflict=num_answers > 1 and task.conflicts)}"


def _closing(num_answers: int, *, conflict: bool) -> str:
    """Return the end of a prompt: how many texts are wanted, and the tags to fill in."""
    tags = [f"{opening} a text {closing}" for opening, closing in answer_tags(num_answers)]
    if num_answers == 1:
        wanted = "Write the text between these tags:"
    else:
        several = several_answers(num_answers, "texts", "personas", conflict=conflict)
        wanted = f"{several} Write each text between its own tags:"
    return "\n".join([wanted, *tags])


@lru_cache(maxsize=64)
def _closing_runs(before: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """Return the runs of words of the end of every prompt, and of the words ``before`` it, which most requests share.

    A text is scored alike whatever the number of answers, so the ends for several numbers count.
    """
    closings = [_closing(m, conflict=conflict) for m in NUMBERS_OF_ANSWERS for conflict in (False, True)]
    return frozenset(chain.from_iterable(runs([*before, *read_text(closing).words], RUN) for closing in closings))


def read_answer(text: str) -> str:
    """Return a text with single blanks, and no blanks at the ends of lines."""
    text = text.strip()
    if not text:
        raise Unparsable("the text is empty")
    if text.isascii():
        blanks = text.encode().translate(AS_BLANKS, CONTROLS)
        if len(blanks) == len(text) and b"  " not in blanks:
            return text
    return "\n".join([" ".join(line.split()) for line in text.splitlines()])


MOST_STALE = 0.25
"""Highest share of runs of words that may be copied from the prompt or repeat an earlier one."""


class PersonasOutcome(NamedTuple):
    """The facts about one text that the objectives look at."""

    real: bool
    """Whether the text follows the rules: a text of its own, on the topic, neither copied nor padded."""
    held: tuple[tuple[bool, ...], ...]
    """Which checks of each persona hold; empty for a text that breaks a rule, whose checks are not counted."""


def evaluate(task: PersonasTask, answer: str) -> PersonasOutcome:
    """Check a text for every persona of a task."""
    text = read_text(answer)
    if not _is_real(task, text.words):
        return PersonasOutcome(False, ())
    counted, bands, personas = task.compiled
    counts = [count(text, value) for count, value in counted]
    held = tuple([least <= counts[position] <= most for position, least, most in bands])
    return PersonasOutcome(True, tuple([held[checks] for checks in personas]))


def _is_real(task: PersonasTask, words: list[str]) -> bool:
    """Return whether a text has the right length, is on the topic, and few of its runs are copied or repeated."""
    if not (MIN_WORDS <= len(words) <= MAX_WORDS and task.topic in words):
        return False
    most_stale = MOST_STALE * (len(words) - RUN + 1)
    # Runs are slow to compare, and mostly bounds suffice.
    return _most_stale_runs(task, words) <= most_stale or _stale_runs(task, words) <= most_stale


def _stale_runs(task: PersonasTask, words: list[str]) -> int:
    """Return how many runs of a text are copied from the prompt, plus how many repeat an earlier one."""
    different_runs = set(runs(words, RUN))
    repeated = len(words) - RUN + 1 - len(different_runs)
    return len(task.passages & different_runs) + repeated


def _most_stale_runs(task: PersonasTask, words: list[str]) -> int:
    """Return an upper bound of :func:`_stale_runs` from the words alone.

    A run that repeats another begins with a repeated word. Copied runs have only words of the prompt, and n words
    have at most n − (RUN − 1) runs.
    """
    different = set(words)
    repeated = len(words) - len(different)
    words_of_prompt = len(task.vocabulary & different) + repeated
    return max(0, words_of_prompt - (RUN - 1)) + repeated


def _share(persona: int, outcome: PersonasOutcome) -> float:
    if persona >= len(outcome.held):
        return 0.0
    held = outcome.held[persona]
    return sum(held) / len(held)


def objectives_of(count: int) -> tuple[Objective, ...]:
    """Return ``count`` objectives named ``persona_1`` and so on: the share of each persona's checks that hold."""
    return tuple(
        Objective(f"persona_{k}", f"Share of the checks of persona {k} that hold", partial(_share, k - 1))
        for k in range(1, count + 1)
    )
