"""Vary a parent answer: any causal model can finish a random prefix of it.

In a set of answers the prefix ends inside answer j, the answers before it stay unchanged, and sampling stops at the
closing tag of answer j. One variation is therefore one new answer from every policy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vpo_agent.policy.chat import ChatFormat
from vpo_envs.common.thoughts import find_thoughts
from vpo_envs.text import answer_tags, split_answers


@dataclass(frozen=True)
class Answer:
    """One answer and where it stands in a response."""

    text: str
    """The content of the tag."""
    response: tuple[int, ...]
    """Tokens of the response, through the closing tag of this answer."""
    position: int
    """Which answer of the response, 1 to m."""
    start: int
    """Position of the first token inside the tag."""
    stop: int
    """Position after the last token inside the tag."""


def read_answers(chat: ChatFormat, response: Sequence[int], num_answers: int) -> list[Answer | None]:
    """Find the answers of a response, as :func:`vpo_envs.text.split_answers` does; ``None`` for one that is missing."""
    (text,) = chat.read([response])
    answers: list[Answer | None] = []
    said, contents = find_thoughts(text).masked, split_answers(text, num_answers)
    for number, ((opening, closing), content) in enumerate(zip(answer_tags(num_answers), contents, strict=True)):
        if content is None:
            answers.append(None)
            continue
        begins = said.rfind(opening, 0, said.rfind(closing)) + len(opening)
        start = _tokens_until(chat, response, begins)
        # Trailing blanks are not worth varying.
        stop = _tokens_until(chat, response, begins + len(content.rstrip()), start)
        closed = _tokens_until(chat, response, begins + len(content) + len(closing), stop)
        answers.append(Answer(content, tuple(response[:closed]), number + 1, start, stop))
    return answers


def random_prefix(answer: Answer, rng: np.random.Generator) -> list[int]:
    """Return the response up to a random place inside ``answer``, so that at least its last token is resampled."""
    return list(answer.response[: int(rng.integers(answer.start, max(answer.start, answer.stop - 1) + 1))])


def before(answer: Answer) -> list[int]:
    """Return the response through the opening tag of ``answer``, so that all of it is resampled."""
    return list(answer.response[: answer.start])


def _tokens_until(chat: ChatFormat, response: Sequence[int], characters: int, low: int = 0) -> int:
    """Return how many tokens hold the first ``characters`` characters of the response."""

    def length(count: int) -> int:
        return len(chat.read([response[:count]])[0])

    return bisect_left(range(len(response)), characters, low, key=length)
