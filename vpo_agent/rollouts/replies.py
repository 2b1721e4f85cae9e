"""What the replies of OpenAI's protocol hold: answers, and which field of a request is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from vpo_envs.common.thoughts import find_thoughts

THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""Fields of a message that hold thoughts, and types of its parts that do."""
MOST_TOKENS = 2**31 - 1
"""Largest number of tokens that is believed of a reply: what a pool can store for an answer."""


class Answer(NamedTuple):
    """One response of the model, cut after the closing tag of its last answer."""

    text: str
    prompt_tokens: int | None
    """Tokens of the prompt that were read for it; ``None`` if the endpoint does not say."""
    tokens: int | None
    """Tokens that were generated for it, including tokens after the cut; ``None`` if the endpoint does not say."""
    truncated: bool
    """Whether it ran into the limit of tokens, or ended inside its thoughts."""
    stopped_in_thoughts: bool = False
    """Whether it ended inside its thoughts, and not by the limit."""
    awaits_reply: bool = False
    """Whether the server has stopped at a tag that ends a turn; the model would write on."""


def refused_field(message: str, body: dict[str, Any]) -> str | None:
    """Return the field of a body that the endpoint's message refuses and that may be left out, if any.

    A temperature may be left out only if it is 1, the protocol's default.
    """
    words = set(re.findall(r"\w+", message.lower()))
    if "max_completion_tokens" in words and "max_tokens" in body:
        return "max_tokens"
    for field, mentions in (
        ("stop", {"stop", "include_stop_str_in_output"}),
        ("seed", {"seed"}),
        ("temperature", {"temperature"}),
    ):
        is_default = field != "temperature" or body.get(field) == 1
        if mentions & words and field in body and is_default:
            return field
    # Messages about n have no common form, and n is the likeliest of what is left.
    return "n" if "n" in body else None


def read_answers(reply: dict[str, Any], closing: str, count: int) -> list[Answer]:
    """Return the answers of a reply, at most ``count``, each cut after the first tag ``closing`` outside thoughts.

    A reply states its tokens as a whole. They are divided between its answers in proportion to the lengths of the
    texts, so that the sum is right.
    """
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise ValueError("a reply without choices")
    choices = choices[:count]
    texts = [_text(choice) for choice in choices]
    said = [find_thoughts(text) for text in texts]
    usage = reply.get("usage")
    prompt_tokens = _token_count(usage, "prompt_tokens")
    shares = _divided(_token_count(usage, "completion_tokens"), [len(text) + 1 for text in texts])
    answers = []
    for choice, text, thoughts, tokens in zip(choices, texts, said, shares, strict=True):
        end = thoughts.masked.find(closing)
        in_thoughts = end < 0 and (thoughts.unclosed or (not text.strip() and _has_thoughts(choice)))
        at_limit = choice.get("finish_reason") == "length"
        answer = Answer(
            text=text if end < 0 else text[: end + len(closing)],
            prompt_tokens=prompt_tokens,
            tokens=tokens,
            truncated=at_limit or in_thoughts,
            stopped_in_thoughts=in_thoughts and not at_limit,
        )
        answers.append(answer)
        # A prompt is read once for all answers of a request.
        prompt_tokens = None if prompt_tokens is None else 0
    return answers


def _has_thoughts(choice: dict[str, Any]) -> bool:
    """Return whether a choice has thoughts apart from its text, under one of the names that servers use."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    kinds = {part.get("type") for part in parts if isinstance(part, dict)}
    return bool(kinds.intersection(THOUGHTS)) or any(message.get(name) for name in THOUGHTS)


def _text(choice: dict[str, Any]) -> str:
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else choice.get("text")
    if content is None and (isinstance(message, dict) or "text" in choice):
        # A refusal, or a limit that was reached while the model was still thinking.
        return ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        # Parts of a message. Those that are thoughts have a type of their own.
        content = "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise ValueError("a choice without text")
    return content


def _token_count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _divided(total: int | None, weights: Sequence[int]) -> list[int | None]:
    """Divide a total in proportion to weights, rounded so that the shares add up; ``None`` if the total is unknown."""
    if total is None:
        return [None] * len(weights)
    ends = [total * weight_so_far // sum(weights) for weight_so_far in accumulate(weights)]
    return [end - start for start, end in pairwise([0, *ends])]
