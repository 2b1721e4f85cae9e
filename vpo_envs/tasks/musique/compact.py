"""``vpo/MuSiQue-v0`` with ``preset="compact"``: a question with three readings and one broad answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import Field

from vpo_envs.core import Frozen, Objective, Task
from vpo_envs.tasks.compact import CompactEnv, Words
from vpo_envs.tasks.generation import ascending

READINGS = 3
NAMES = 64
BROAD = "z"
"""First letter of a region's name, where it is named."""


class CompactConfig(Frozen):
    """How questions are drawn."""

    hops: Annotated[tuple[int, int], ascending(2, 4)] = Field((2, 2), description="paragraphs to follow in a reading")
    others: int = Field(
        3, ge=0, le=3, description="other names about which the paragraphs say as much as about the one in the question"
    )
    broad: float = Field(0.4, ge=0, le=1, description="score of the broad answer in every reading")
    named: bool = Field(False, description="give the region a name of its own kind, such as z7, which can be copied")


PRESETS = {"compact": CompactConfig()}


class ReadingsTask(Task):
    """Paragraphs, each of which says where one name leads, and the name that the question asks about."""

    about: str
    paragraphs: tuple[tuple[str, str], ...]
    """The name that a paragraph is about, and the name that it leads to."""
    readings: tuple[tuple[str, ...], ...]
    """The right answer in each reading: the names on the way, and the final name."""
    region: str
    """The broad answer."""
    broad: float
    """Score of the broad answer in every reading."""

    @property
    def canonical(self) -> str:
        """The name asked about, and the paragraphs in alphabetical order."""
        return f"{self.about} {sorted(self.paragraphs)}"


class ReadingsOutcome(NamedTuple):
    """The facts about one answer."""

    final: tuple[float, ...]
    """How far the final name answers each reading: 1, ``broad`` or 0."""
    steps: tuple[float, ...]
    """Share of the names on the way of each reading that are given; the broad answer has none, which counts as all."""


def _score(reading: int, outcome: ReadingsOutcome) -> float:
    return outcome.final[reading] * (1 + outcome.steps[reading]) / 2


class MuSiQueCompactEnv(CompactEnv[ReadingsTask, ReadingsOutcome]):
    """Answer a question that can be read in three ways, and give the names on the way.

    ## Description

    A line ``- n5 n9`` is a paragraph that leads from n5 to n9. From the name in the question, three paths of as many
    paragraphs as a reading needs lead to the answers of the readings. A fourth paragraph leads to a region, which holds
    all of them and from which no paragraph leads on. Other names have paths and a region of the same kind, so that
    nothing but the question tells which lines count. With the knob ``named`` the region has a name such as ``z7``.

    ## Action space

    Text: ``num_answers`` answers, each in its tag: the names on the way and the final name, such as ``n9 n12``. The
    last word is the final answer. The words before it are names on the way; as many of them count as the longest
    reading needs.

    ## Rewards

    ``reading_1`` to ``reading_3``, each in [0, 1]: the score of the final name, times (1 + share of its names on the
    way that are given) / 2. The right name scores 1 in its own reading and 0 in the others; the region scores ``broad``
    (0.4) in all readings. ``pareto_front()`` is exact.
    """

    task_type = ReadingsTask
    namespace = 12
    presets = PRESETS
    objectives = tuple(
        Objective(f"reading_{i + 1}", f"Answer and steps under reading {i + 1}", partial(_score, i))
        for i in range(READINGS)
    )

    def draw(self, source: random.Random) -> ReadingsTask:
        """Draw paragraphs, and the paths through them."""
        config: CompactConfig = self.config
        names = [f"n{i}" for i in source.sample(range(NAMES), NAMES)]
        stars = [_draw_star(source, config, names) for _ in range(1 + config.others)]
        about, region, readings = stars[0]
        if config.named:
            region = f"{BROAD}{source.randrange(10)}"
            stars[0] = about, region, readings
        paragraphs = [
            pair
            for name, broad, paths in stars
            for pair in [(name, broad), *(pair for path in paths for pair in pairwise((name, *path)))]
        ]
        source.shuffle(paragraphs)
        return ReadingsTask(
            about=about, paragraphs=tuple(paragraphs), readings=readings, region=region, broad=config.broad
        )

    def prompt(self, task: ReadingsTask, num_answers: int) -> str:
        """Return the paragraphs and the question."""
        return "\n".join(
            [*(f"- {name} {target}" for name, target in task.paragraphs), f"answers {num_answers} about {task.about}"]
        )

    def evaluate(self, task: ReadingsTask, answer: Words) -> ReadingsOutcome:
        """Compare the final name and the names on the way with each reading."""
        *words, name = answer
        if name == task.region:
            return ReadingsOutcome((task.broad,) * READINGS, (1.0,) * READINGS)
        most = max(len(reading) for reading in task.readings) - 1
        steps = set(list(dict.fromkeys(words))[:most])
        final = tuple(float(name == reading[-1]) for reading in task.readings)
        given = tuple(len(steps & set(reading[:-1])) / (len(reading) - 1) for reading in task.readings)
        return ReadingsOutcome(final, given)

    def outcome_front(self, task: ReadingsTask) -> Sequence[tuple[ReadingsOutcome, str]]:
        """Return the outcomes of the three readings and of the broad answer."""
        return [(self.evaluate(task, way), " ".join(way)) for way in self.ways(task)]

    def ways(self, task: ReadingsTask) -> Sequence[Words]:
        """Return the answers to the three readings, and the broad one."""
        return *task.readings, (task.region,)


def _draw_star(source: random.Random, config: CompactConfig, names: list[str]) -> tuple[str, str, tuple[Words, ...]]:
    """Take names from the list: one to ask about, its region, and the names along each of its readings."""
    paths = tuple(tuple(names.pop() for _ in range(source.randint(*config.hops))) for _ in range(READINGS))
    return names.pop(), names.pop(), paths
