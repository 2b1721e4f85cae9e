"""Rows of published data sets, written from tasks of our own."""

from __future__ import annotations

from typing import Any

from vpo_envs import MuSiQueTask


def write_published(task: MuSiQueTask) -> dict[str, Any]:
    """Return a task as a row of MuSiQue-Ans, without its cap on citations, which the schema does not have."""
    support = set(task.support)
    return {
        "id": task.id,
        "paragraphs": [
            {
                "idx": paragraph.number,
                "title": paragraph.title,
                "paragraph_text": paragraph.text,
                "is_supporting": paragraph.number in support,
            }
            for paragraph in task.paragraphs
        ],
        "question": task.question,
        "question_decomposition": [
            {"id": i, "question": hop.question, "answer": hop.answer, "paragraph_support_idx": hop.paragraph}
            for i, hop in enumerate(task.hops)
        ],
        "answer": task.answers[0],
        "answer_aliases": list(task.answers[1:]),
        "answerable": True,
    }
