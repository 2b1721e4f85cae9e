"""Maps tokens to answers: which tokens belong to which answer, and which token closes the last one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vpo_envs.text import answer_spans, answer_tags, open_answer

CHUNK = 32
"""Tokens between the places of a response whose text length is kept."""


def closing_token(tokenizer: Any, num_answers: int) -> int | None:
    """Return the token that is the last closing tag of ``num_answers`` answers; ``None`` if the tag is several."""
    closing = answer_tags(num_answers)[-1][1]
    ids: list[int] = tokenizer(closing, add_special_tokens=False)["input_ids"]
    return ids[0] if len(ids) == 1 and tokenizer.decode(ids) == closing else None


class AnswerTokens(NamedTuple):
    """Where an answer stands in a response."""

    answer: int
    """Its number, from 0."""
    start: int
    """First character of the text inside its tag."""
    end: int
    """The character after that text."""
    places: range
    """Its tokens: those with a character between the first of the opening tag and the last of the closing one."""


def answer_tokens(
    end_of: Callable[[int], int], length: int, text: str, num_answers: int, *, unfinished: bool = False
) -> list[AnswerTokens]:
    """Return the answers of a response with their tokens.

    Args:
        end_of: The function of :func:`token_ends`.
        length: Tokens of the response.
        text: The response.
        num_answers: m.
        unfinished: Whether an answer whose tag is open at the end counts, with all tokens from that tag on.
    """
    tags = answer_tags(num_answers)
    found = []
    for answer, span in enumerate(answer_spans(text, num_answers)):
        if span is not None:
            first = bisect_right(range(length), span[0], key=end_of)
            last = bisect_left(range(length), span[1], key=end_of)
            opening, closing = tags[answer]
            places = range(first, min(last + 1, length))
            found.append(AnswerTokens(answer, span[0] + len(opening), span[1] - len(closing), places))
    if unfinished and (left := open_answer(text, num_answers)):
        answer, start = left
        places = range(bisect_right(range(length), start, key=end_of), length)
        found.append(AnswerTokens(answer, start + len(tags[answer][0]), len(text), places))
    return found


def token_credit(tokenizer: Any, ids: Tensor, mask: Tensor, credit: Tensor) -> Tensor:
    """Spread the credit of answers over their tokens, those of :func:`answer_tokens`.

    Other tokens, such as reasoning before the answers, get nothing. Credit for each token also reaches those of an
    unfinished answer.

    Responses and their mask are (B, T), padded on the right. The credit is (B, m), or (B, m, L) with one number for
    each token of an answer; as spread it is (B, T).
    """
    out = torch.zeros(mask.shape, dtype=credit.dtype)
    each = credit.dim() == 3
    for row, (padded, length) in enumerate(zip(ids.tolist(), mask.sum(1).tolist(), strict=True)):
        tokens = padded[:length]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        for found in answer_tokens(token_ends(tokenizer, tokens), length, text, credit.shape[1], unfinished=each):
            places = slice(found.places.start, found.places.stop)
            of_answer = credit[row, found.answer]
            out[row, places] = of_answer[: len(found.places)] if each else of_answer
    return out


def token_ends(tokenizer: Any, ids: Sequence[int]) -> Callable[[int], int]:
    """Return a function that gives the characters of the decoded tokens up to the end of the one at a place.

    Each token is decoded a few times with its neighbours, not once for every token behind it, so long responses take
    time linear in their length.
    """

    def text(start: int, stop: int) -> str:
        return str(tokenizer.decode(ids[start:stop], skip_special_tokens=True))

    marks, chars = [0], [0]
    starts = [0]
    """Where the text of each mark's chunk begins: one mark earlier, since a token's text depends on those before it."""
    for place in range(CHUNK, len(ids), CHUNK):
        decoded = text(starts[-1], place)
        # A character may take several tokens, and a mark must not separate them.
        if not decoded.endswith("\N{REPLACEMENT CHARACTER}"):
            chars.append(chars[-1] + len(decoded) - len(text(starts[-1], marks[-1])))
            starts.append(marks[-1])
            marks.append(place)

    def end_of(place: int) -> int:
        mark = bisect_right(marks, place) - 1
        return chars[mark] + len(text(starts[mark], place + 1)) - len(text(starts[mark], marks[mark]))

    return end_of
