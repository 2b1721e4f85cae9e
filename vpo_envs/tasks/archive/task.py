"""A question about the documents of an archive: what is opened, what an answer earns, and the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from pydantic import Field

from vpo_envs.core import Call, Frozen, Objective, Task
from vpo_envs.pareto import FactGrid

OPEN = "open"
"""The tag that opens a document."""
FREE = 3
"""Number of different titles asked for from which nothing is saved any more."""
UNKNOWN = "There is no such document."


class Document(Frozen):
    """One document of an archive."""

    title: str
    text: str


class ArchiveTask(Task):
    """A question with two readings, of which the farther one takes more documents.

    The first document of the way tells what kind of thing both readings ask for, the second the thing of the near
    reading, and the third the thing of the far reading. Each of the first two names the title of the next.
    """

    question: str
    documents: tuple[Document, ...]
    way: tuple[str, str, str]
    """Titles of the documents that lead to the far reading, in order."""
    kind: str
    near: str
    far: str
    broad: float = Field(ge=0, le=1)
    """Score of the kind in both readings."""
    wording: int = 0
    """Number of the prompt's wording."""

    @property
    def canonical(self) -> str:
        """The question, and the sentences of the documents in alphabetical order."""
        sentences = [sentence for document in self.documents for sentence in document.text.rstrip(".").split(". ")]
        return f"{self.question} {sorted(sentences)}"


class ArchiveOutcome(NamedTuple):
    """The facts about one answer."""

    near: float
    """Score in the near reading if the documents that state the answer were opened: 1, ``broad`` or 0."""
    far: float
    """Score in the far reading, in the same way."""
    opened: int
    """Different titles asked for before the answer, of documents that exist or not."""


def normal_title(text: str) -> str:
    """Return a title in the form in which titles are compared."""
    return " ".join(text.split()).casefold()


def reply(task: ArchiveTask, calls: Sequence[Call]) -> str:
    """Return the text of the document that the last call opens."""
    asked = normal_title(calls[-1].text)
    return next((document.text for document in task.documents if normal_title(document.title) == asked), UNKNOWN)


def judge(task: ArchiveTask, answer: str, calls: Sequence[Call]) -> ArchiveOutcome:
    """Compare a normalised answer with those of both readings, for which the documents of the way must be open."""
    opened = {normal_title(call.text) for call in calls}
    open_way = 0
    while open_way < len(task.way) and normal_title(task.way[open_way]) in opened:
        open_way += 1
    if answer == normal_title(task.kind):
        score = task.broad if open_way >= 1 else 0.0
        return ArchiveOutcome(score, score, len(opened))
    near = answer == normal_title(task.near) and open_way >= 2
    far = answer == normal_title(task.far) and open_way >= 3
    return ArchiveOutcome(float(near), float(far), len(opened))


def saved(outcome: ArchiveOutcome) -> float:
    """Return 1, less a third for each different title that was asked for; 0 from three titles on."""
    return max(0.0, 1 - outcome.opened / FREE)


OBJECTIVES = (
    Objective("near", "The answer is right in the near reading", attrgetter("near")),
    Objective("far", "The answer is right in the far reading", attrgetter("far")),
    Objective("saved", "1, less a third for each different title asked for before an answer that scores", saved),
)


def solutions(task: ArchiveTask) -> list[tuple[str, tuple[str, ...]]]:
    """Return the three answers of the front, each with the titles that it takes: the kind, near and far."""
    return [(task.kind, task.way[:1]), (task.near, task.way[:2]), (task.far, task.way)]


def fact_grid(task: ArchiveTask) -> FactGrid:
    """Return the outcomes from worse to better: the score in each reading, and fewer titles asked for."""
    scores = (0.0, task.broad, 1.0)
    return FactGrid(ArchiveOutcome, (scores, scores, tuple(range(len(task.documents), -1, -1))))
