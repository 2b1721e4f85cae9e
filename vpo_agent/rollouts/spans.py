"""Maps tokens to answers: which tokens belong to which answer, and which token closes the last one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vpo_envs.text import answer_spans, answer_tags

CHUNK = 32
"""Tokens between the places of a response whose text length is kept."""


def closing_token(tokenizer: Any, num_answers: int) -> int | None:
    """Return the token that is the last closing tag of ``num_answers`` answers; ``None`` if the tag is several."""
    closing = answer_tags(num_answers)[-1][1]
    ids: list[int] = tokenizer(closing, add_special_tokens=False)["input_ids"]
    return ids[0] if len(ids) == 1 and tokenizer.decode(ids) == closing else None


def token_credit(tokenizer: Any, ids: Tensor, mask: Tensor, credit: Tensor) -> Tensor:
    """Spread the credit of answers, (B, m), over their tokens: those with a character of the answer or of its tags.

    Other tokens, such as reasoning before the answers, get nothing. Responses and their mask are (B, T), padded on the
    right; the credit as spread is (B, T).
    """
    out = torch.zeros(mask.shape, dtype=credit.dtype)
    for row, (padded, length) in enumerate(zip(ids.tolist(), mask.sum(1).tolist(), strict=True)):
        end_of = token_ends(tokenizer, padded[:length])
        text = tokenizer.decode(padded[:length], skip_special_tokens=True)
        for answer, span in enumerate(answer_spans(text, credit.shape[1])):
            if span is not None:
                first = bisect_right(range(length), span[0], key=end_of)
                last = bisect_left(range(length), span[1], key=end_of)
                out[row, first : last + 1] = credit[row, answer]
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
