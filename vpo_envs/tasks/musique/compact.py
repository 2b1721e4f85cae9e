"""``vpo/MuSiQueCompact-v0``: a question with three readings and one broad answer, for small models."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import Field

from vpo_envs.core import Frozen, Objective, Task
from vpo_envs.generation import ascending
from vpo_envs.tasks.compact import CompactEnv, Words

READINGS = 3
NAMES = 64
NUMBERS = 32
BROAD = "z"
"""First letter of the names that stand for a whole region."""


class CompactConfig(Frozen):
    """How questions are drawn."""

    hops: Annotated[tuple[int, int], ascending(1, 4)] = Field((2, 2), description="paragraphs to follow in a reading")
    asides: int = Field(4, ge=0, le=12, description="paragraphs that no reading needs")
    broad: float = Field(0.4, ge=0, le=1, description="worth of the broad answer in every reading")


class ReadingsTask(Task):
    """Paragraphs, each of which says where one name leads, and the name that the question asks about."""

    about: str
    paragraphs: tuple[tuple[str, str, str], ...]
    """The name that a paragraph is about, its number, and the name that it leads to."""
    readings: tuple[tuple[str, ...], ...]
    """The right answer in each reading: numbers of paragraphs and names in turn, the final name last."""
    overview: tuple[str, str]
    """The broad answer: the number of its paragraph and the region."""
    broad: float
    """Worth of the broad answer in every reading."""


class ReadingsOutcome(NamedTuple):
    """The facts about one answer."""

    final: tuple[float, ...]
    """How far the final name answers each reading: 1, the worth of the broad answer, or 0."""
    cited: tuple[float, ...]
    """Share of the paragraphs of each reading (or of the broad answer) that are cited."""


def _score(reading: int, outcome: ReadingsOutcome) -> float:
    return outcome.final[reading] * (1 + outcome.cited[reading]) / 2


class MuSiQueCompactEnv(CompactEnv[ReadingsTask, ReadingsOutcome]):
    """Answer a question that can be read in three ways, with citations.

    ## Description

    A line ``n5 p3 n9`` is paragraph p3, which leads from n5 to n9. From the name in the question, one path of
    paragraphs leads to the answer of each reading; an overview leads to a region ``z7``, which holds all of them.

    ## Action space

    Text: ``num_answers`` answers, each in its tag: the paragraphs that support it, each with the name it leads to, such
    as ``p3 n9 p8 n12``. The last word is the final answer; every word that begins with p is a citation, of which as
    many count as the longest reading needs.

    ## Rewards

    ``reading_1`` to ``reading_3``, each in [0, 1]: the worth of the final name, times (1 + share of its paragraphs
    cited) / 2. In its own reading the right name is worth 1 and elsewhere nothing; the region is worth ``broad`` (0.4)
    in all readings. ``pareto_front()`` is exact.

    Args:
        difficulty: Knobs by name: ``hops``, ``asides`` and ``broad``; see
            ``vpo_envs.tasks.musique.compact.CompactConfig``.
        **options: Those of :class:`vpo_envs.VectorTextEnv`.
    """

    task_type = ReadingsTask
    namespace = 12
    knobs = CompactConfig()
    objectives = tuple(
        Objective(f"reading_{i + 1}", f"Answer and citations under reading {i + 1}", partial(_score, i))
        for i in range(READINGS)
    )

    def draw(self, source: random.Random) -> ReadingsTask | None:
        """Draw paragraphs, and the paths through them."""
        config: CompactConfig = self.config
        hops = [source.randint(*config.hops) for _ in range(READINGS)]
        names = [f"n{i}" for i in source.sample(range(NAMES), 1 + sum(hops) + 2 * config.asides)]
        numbers = [f"p{i}" for i in source.sample(range(NUMBERS), 1 + sum(hops) + config.asides)]
        about, region = names.pop(), f"{BROAD}{source.randrange(10)}"
        overview = (numbers.pop(), region)
        paragraphs, readings = [(about, *overview)], []
        for count in hops:
            here, reading = about, list[str]()
            for _ in range(count):
                paragraphs.append((here, numbers.pop(), names.pop()))
                here = paragraphs[-1][2]
                reading += paragraphs[-1][1:]
            readings.append(tuple(reading))
        paragraphs += [(names.pop(), numbers.pop(), names.pop()) for _ in range(config.asides)]
        source.shuffle(paragraphs)
        if not self.in_split(f"{about} {paragraphs}"):
            return None
        return ReadingsTask(
            about=about,
            paragraphs=tuple(paragraphs),
            readings=tuple(readings),
            overview=overview,
            broad=config.broad,
        )

    def prompt(self, task: ReadingsTask, num_answers: int) -> str:
        """Return the paragraphs and the question."""
        return "\n".join([*map(" ".join, task.paragraphs), f"answers {num_answers} about {task.about}"])

    def evaluate(self, task: ReadingsTask, answer: Words) -> ReadingsOutcome:
        """Compare the final name and the citations with those of each reading."""
        most = max(len(reading) for reading in task.readings) // 2
        citations = set(list(dict.fromkeys(word for word in answer if word.startswith("p")))[:most])
        if answer[-1] == task.overview[1]:
            share = float(task.overview[0] in citations)
            return ReadingsOutcome((task.broad,) * READINGS, (share,) * READINGS)
        final = tuple(float(answer[-1] == reading[-1]) for reading in task.readings)
        cited = tuple(len(citations & set(reading[::2])) * 2 / len(reading) for reading in task.readings)
        return ReadingsOutcome(final, cited)

    def outcome_front(self, task: ReadingsTask) -> Sequence[tuple[ReadingsOutcome, str]]:
        """Return the outcomes of the three readings and of the broad answer."""
        return [(self.evaluate(task, way), " ".join(way)) for way in self.ways(task)]

    def ways(self, task: ReadingsTask) -> Sequence[Words]:
        """Return the answers to the three readings, and the broad one."""
        return *task.readings, task.overview
