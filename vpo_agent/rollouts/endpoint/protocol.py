"""The part of OpenAI's protocol that sampling needs: bodies of requests, and what replies hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

MOST_ANSWERS = 32
"""Most answers that one request asks for."""
MOST_TOKENS = 2**31 - 1
"""Most tokens of a reply that are believed, what a pool can store for an answer."""


class Answer(NamedTuple):
    """One response of the model, cut after the closing tag of its last answer."""

    text: str
    prompt_tokens: int | None
    """Tokens of the prompt that were read for it; ``None`` if the endpoint does not say."""
    tokens: int | None
    """Tokens that were generated for it, those behind the cut included; ``None`` if the endpoint does not say."""
    truncated: bool
    """Whether it ran into the limit of tokens."""


@dataclass(frozen=True)
class Dialect:
    """Which form of requests an endpoint takes; what it refuses is left out from then on."""

    chat: bool = True
    """Chat completions; otherwise plain ones, without a chat template."""
    n: bool = True
    """Whether it gives several answers to one request."""
    seed: bool = True
    temperature: bool = True
    limit: str = "max_tokens"
    """Name of the limit of tokens."""
    keeps_stop: bool = False
    """Whether it can end an answer behind a stop string. Without the string in the text, an answer that ended there
    would look like one whose closing tag is missing."""

    @property
    def path(self) -> str:
        """Where requests are sent."""
        return "chat/completions" if self.chat else "completions"

    def body(
        self, model: str, prompt: str, count: int, *, max_tokens: int, temperature: float, seed: int, closing: str
    ) -> dict[str, Any]:
        """Return the body of a request for ``count`` answers, each of which ends at the tag ``closing``."""
        asked = {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        return {
            "model": model,
            **asked,
            self.limit: max_tokens,
            **({"n": count} if count > 1 else {}),
            **({"temperature": temperature} if self.temperature else {}),
            **({"seed": seed} if self.seed else {}),
            **({"stop": [closing], "include_stop_str_in_output": True} if self.keeps_stop else {}),
        }

    def after_refusal(self, message: str, body: dict[str, Any]) -> Dialect | None:
        """Return the dialect without what the endpoint's message refuses; ``None`` if nothing can be left out.

        A temperature can be left out only if it is 1, the protocol's default.
        """
        words = set(re.findall(r"\w+", message.lower()))
        if "max_completion_tokens" in words and "max_tokens" in body:
            return replace(self, limit="max_completion_tokens")
        if {"stop", "include_stop_str_in_output"} & words and "stop" in body:
            return replace(self, keeps_stop=False)
        if "seed" in words and "seed" in body:
            return replace(self, seed=False)
        if "temperature" in words and body.get("temperature") == 1:
            return replace(self, temperature=False)
        # Messages about n have no common form, and n is the likeliest of what is left.
        return replace(self, n=False) if "n" in body else None


def read_answers(reply: Any, closing: str, count: int) -> list[Answer]:
    """Return the answers of a reply, at most ``count``, each cut after the first tag ``closing``.

    The tokens of a reply are divided between its answers in proportion to their lengths, so that their sum is right.

    Raises:
        ValueError: The reply holds no answers.
    """
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices or not all(isinstance(one, dict) for one in choices):
        raise ValueError("sent a reply without choices")
    texts = [_text(choice) for choice in choices[:count]]
    usage = reply.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    generated, read = (_whole(usage.get(name)) for name in ("completion_tokens", "prompt_tokens"))
    tokens = [None] * len(texts) if generated is None else _divide(generated, [len(text) + 1 for text in texts])
    return [
        Answer(
            text=_cut(text, closing),
            # A prompt is read once for all answers of a request.
            prompt_tokens=read if place == 0 or read is None else 0,
            tokens=tokens[place],
            truncated=choice.get("finish_reason") == "length",
        )
        for place, (text, choice) in enumerate(zip(texts, choices, strict=False))
    ]


def _text(choice: dict[str, Any]) -> str:
    message = choice.get("message")
    found = message.get("content") if isinstance(message, dict) else choice.get("text")
    if found is None and (isinstance(message, dict) or "text" in choice):
        # A refusal, or a limit that was reached while the model was still thinking.
        return ""
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        # Parts of a message. Those that are thoughts have a type of their own.
        found = "".join(str(part.get("text", "")) for part in found if part.get("type") == "text")
    if not isinstance(found, str):
        raise ValueError("sent a choice without text")
    return found


def _cut(text: str, closing: str) -> str:
    end = text.find(closing)
    return text if end < 0 else text[: end + len(closing)]


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _divide(total: int, shares: Sequence[int]) -> list[int | None]:
    """Divide a whole number in proportion to ``shares``, in whole numbers with the same sum."""
    ends = [total * sum(shares[:place]) // sum(shares) for place in range(len(shares) + 1)]
    return [end - start for start, end in pairwise(ends)]
