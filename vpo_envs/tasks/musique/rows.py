"""Reads and writes MuSiQue's published schema (Trivedi et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from envs_data.readers import BadRow
from vpo_envs.tasks.musique.task import MAX_HOPS, Hop, MuSiQueTask, Paragraph


class _Published(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Paragraph(_Published):
    idx: int
    title: str
    paragraph_text: str


class _Step(_Published):
    question: str
    answer: str
    paragraph_support_idx: int


class _Row(_Published):
    id: str
    paragraphs: list[_Paragraph] = Field(min_length=1)
    question: str = Field(min_length=1)
    question_decomposition: list[_Step] = Field(min_length=1, max_length=MAX_HOPS)
    answer: str
    answer_aliases: list[str] | None = None
    answerable: bool = True


def read_published(raw: Mapping[str, Any]) -> MuSiQueTask:
    """Return the task of a row of MuSiQue-Ans.

    Aliases may be null; blank or repeated ones are dropped.

    Raises:
        BadRow: Another schema, or an unanswerable question, as in MuSiQue-Full.
        ValidationError: The row does not fit the schema.
    """
    if "paragraphs" not in raw and "question_decomposition" not in raw:
        raise BadRow("", "unknown schema: a row of MuSiQue-Ans has id, paragraphs, question_decomposition and others")
    if raw.get("answerable") is False:
        raise BadRow("answerable", "the question has no answer in its paragraphs: use the rows of MuSiQue-Ans")
    row = _Row.model_validate(dict(raw))
    aliases = [alias for alias in row.answer_aliases or [] if any(map(str.isalnum, alias))]
    return MuSiQueTask(
        id=row.id,
        question=row.question,
        paragraphs=tuple(Paragraph(number=p.idx, title=p.title, text=p.paragraph_text) for p in row.paragraphs),
        hops=tuple(
            Hop(question=step.question, answer=step.answer, paragraph=step.paragraph_support_idx)
            for step in row.question_decomposition
        ),
        answers=tuple(dict.fromkeys([row.answer, *aliases])),
    )
