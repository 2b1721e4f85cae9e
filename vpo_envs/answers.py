"""Answer sets in text: ``<answer_1>…</answer_1>`` to ``<answer_m>…</answer_m>``; plain ``<answer>`` where m is 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=64)
def answer_tags(num_answers: int) -> tuple[tuple[str, str], ...]:
    """Opening and closing tag of each of ``num_answers`` answers."""
    if num_answers == 1:
        return (("<answer>", "</answer>"),)
    return tuple((f"<answer_{i}>", f"</answer_{i}>") for i in range(1, num_answers + 1))


def split_answers(response: str, num_answers: int) -> list[str | None]:
    """What stands inside each of the wanted tags, by position; ``None`` where no complete tag is.

    Of several complete blocks with one tag the last counts, so a draft in the reasoning does no harm. A block runs from
    an opening tag to the next closing one, with no second opening tag between. Text outside tags is never an answer.
    The time is linear in the length of the response.
    """
    return [
        None if span is None else response[span[0] + len(opening) : span[1] - len(closing)]
        for span, (opening, closing) in zip(answer_spans(response, num_answers), answer_tags(num_answers), strict=True)
    ]


def answer_spans(response: str, num_answers: int) -> list[tuple[int, int] | None]:
    """Where each answer stands, tags included: first character and the one after the last; ``None`` where it lacks."""
    spans: list[tuple[int, int] | None] = []
    for opening, closing in answer_tags(num_answers):
        start = response.rfind(opening, 0, max(0, response.rfind(closing)))
        end = response.find(closing, start + len(opening)) + len(closing)
        spans.append(None if start < 0 else (start, end))
    return spans


def format_answers(answers: Sequence[str | None], num_answers: int | None = None) -> str:
    """The inverse of :func:`split_answers`: answers in their tags, one a line; missing ones are left out.

    Args:
        answers: What stands inside each tag, in order; at most ``num_answers`` of them.
        num_answers: m, which decides the names of the tags; ``len(answers)`` where ``None``.
    """
    tags = answer_tags(len(answers) if num_answers is None else num_answers)
    blocks = [
        f"{opening}{text}{closing}" for (opening, closing), text in zip(tags, answers, strict=False) if text is not None
    ]
    return "\n".join(blocks)
