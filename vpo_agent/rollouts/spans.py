"""How tokens and the tags of answers lie to each other: whose answer a token belongs to, and what closes the last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import torch
from torch import Tensor

from vpo_agent.policy.samples import Samples
from vpo_envs.text import answer_spans, answer_tags


def closing_token(tokenizer: Any, num_answers: int) -> int | None:
    """The token that is the last closing tag of ``num_answers`` answers; ``None`` where the tag is several tokens."""
    closing = answer_tags(num_answers)[-1][1]
    ids: list[int] = tokenizer(closing, add_special_tokens=False)["input_ids"]
    return ids[0] if len(ids) == 1 and tokenizer.decode(ids) == closing else None


def token_credit(tokenizer: Any, samples: Samples, credit: Tensor) -> Tensor:
    """Spread the credit of answers over their tokens.

    A token belongs to an answer if any of its characters stands between the first character of the opening tag and the
    last of the closing one. Other tokens, such as reasoning before the answers, get nothing.

    Args:
        tokenizer: What the responses were decoded with.
        samples: B responses.
        credit: (B, m).

    Returns:
        (B, T).
    """
    out = torch.zeros(samples.mask.shape, dtype=credit.dtype)
    lengths = samples.mask.sum(1).tolist()
    for row, (ids, length) in enumerate(zip(samples.ids.tolist(), lengths, strict=True)):
        places = range(length)

        def end_of(place: int, ids: list[int] = ids) -> int:
            """Characters of the response up to the end of this token."""
            return len(tokenizer.decode(ids[: place + 1], skip_special_tokens=True))

        for answer, span in enumerate(answer_spans(samples.texts[row], credit.shape[1])):
            if span is not None:
                first = bisect_right(places, span[0], key=end_of)
                last = bisect_left(places, span[1], key=end_of)
                out[row, first : last + 1] = credit[row, answer]
    return out
