"""Archives of an invented world: people, their teachers, and what each was known for."""

from __future__ import annotations

import random
from importlib.resources import files

from pydantic import Field

from envs_data.parsing import parse_toml
from vpo_envs.core import Frozen
from vpo_envs.tasks.archive.task import FREE, OPEN, ArchiveTask, Document
from vpo_envs.tasks.generation import Namer
from vpo_envs.text import answer_tags, several_answers

_WORLD = parse_toml(files("vpo_envs.tasks.archive").joinpath("world.toml").read_text(encoding="utf-8"))
THEMES = _WORLD["themes"]
TEACHERS: list[str] = _WORLD["teachers"]
"""Sentences that say who taught whom, with ``{s}`` for the pupil and ``{t}`` for the teacher."""
OPENINGS: list[str] = _WORLD["openings"]


class ArchiveConfig(Frozen):
    """How archives are drawn."""

    asides: int = Field(6, ge=0, le=12, description="documents that no reading needs")
    broad: float = Field(0.4, ge=0, le=1, description="score of the kind in both readings")


def draw_archive(source: random.Random, config: ArchiveConfig) -> ArchiveTask:
    """Draw a question and its documents."""
    theme = source.choice(THEMES)
    namer = Namer(source)
    people = [f"{namer.word()} {namer.word()}" for _ in range(4 + 2 * config.asides)]
    pupil, teacher, first, beyond = people[:4]
    kind, *others = source.sample(sorted(theme["kinds"]), len(theme["kinds"]))
    near, far = source.sample(theme["kinds"][kind], 2)
    documents = [
        Document(title=pupil, text=_document(source, pupil, teacher, theme["line"].format(s=pupil, k=kind))),
        Document(title=teacher, text=_about(source, theme, teacher, near, first)),
        Document(title=first, text=_about(source, theme, first, far, beyond)),
    ]
    for name, other in zip(people[4::2], people[5::2], strict=True):
        thing = source.choice(theme["kinds"][source.choice([kind, *others])])
        documents.append(Document(title=name, text=_about(source, theme, name, thing, other)))
    source.shuffle(documents)
    return ArchiveTask(
        question=theme["question"].format(s=pupil),
        documents=tuple(documents),
        way=(pupil, teacher, first),
        kind=kind,
        near=near,
        far=far,
        broad=config.broad,
        wording=source.randrange(len(OPENINGS)),
    )


def _about(source: random.Random, theme: dict[str, str], person: str, thing: str, teacher: str) -> str:
    return _document(source, person, teacher, source.choice(theme["sentences"]).format(s=person, o=thing))


def _document(source: random.Random, pupil: str, teacher: str, sentence: str) -> str:
    """Return a document that holds a sentence and says who taught whom, in either order."""
    sentences = [sentence, source.choice(TEACHERS).format(s=pupil, t=teacher)]
    return " ".join(source.sample(sentences, 2))


def archive_prompt(task: ArchiveTask, num_answers: int, max_calls: int) -> str:
    """Return the titles, the question, the rules and the tags to fill in."""
    form = "Give one answer in this form:" if num_answers == 1 else f"{several_answers(num_answers)} Use this form:"
    return "\n".join(
        [
            OPENINGS[task.wording],
            "",
            *[f"- {document.title}" for document in task.documents],
            "",
            f"Question: {task.question}",
            "",
            f"Write <{OPEN}>title</{OPEN}> to open a document, and wait: its text comes next. You may do so "
            f"at most {max_calls} times in all, before and between answers.",
            "The question has two readings. In the near one it means the person's own teacher; in the far one, the "
            "teacher of that teacher. The document about the person says of what kind the answer is in both readings. "
            "An answer is one word and is scored on three objectives:",
            f"near: 1 for the right answer in the near reading, {task.broad:g} for its kind.",
            f"far: 1 for the right answer in the far reading, {task.broad:g} for its kind.",
            f"saved: 1, less 1/{FREE} for each different title that you asked for before the answer, whether there is "
            f"such a document or not, and 0 from {FREE} titles on. It counts only if near or far scores.",
            "near and far score only if you first opened every document on the way from the person to the answer.",
            form,
            *[f"{opening}...{closing}" for opening, closing in answer_tags(num_answers)],
        ]
    )
