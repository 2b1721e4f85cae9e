"""The part of OpenAI's protocol that is served: what a request asks for, and what it gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vpo_agent.policy.decoding import Row, uniform_numbers
from vpo_agent.policy.language_model import LMPolicy

HARMLESS: dict[str, Any] = {"best_of": 1, "echo": False, "suffix": "", "stream": False, "stream_options": {}}
"""Unsupported fields, by the value that leaves them without effect."""
HARMLESS |= {"frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "tools": [], "top_logprobs": 0}
HARMLESS |= {"response_format": {"type": "text"}, "top_k": -1, "min_p": 0, "min_tokens": 0, "ignore_eos": False}
CONTEXT = 8  # Tokens before a text that are enough to decode it.
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Stops = Annotated[list[Stop], BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop)]


class Message(BaseModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class Asked(BaseModel):
    """The body of a request: a ``prompt`` for ``/v1/completions``, or ``messages`` for ``/v1/chat/completions``."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    prompt: str = ""
    messages: list[Message] = []
    model: str = "default"
    n: int = Field(1, ge=1, le=256)
    max_tokens: int = Field(0, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    temperature: float = Field(1.0, ge=0, le=100, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stops = []
    include_stop_str_in_output: bool = False
    logprobs: Annotated[int, Field(ge=0, le=0)] | bool = False
    continue_final_message: bool = False
    add_generation_prompt: bool = True
    user: str = ""


def read(body: bytes) -> Asked:
    """Read the body of a request; raise a ValueError that names the first field that is wrong."""
    sent = json.loads(body)
    if not isinstance(sent, dict):
        raise ValueError("the body must be a JSON object")
    # Clients send null for what they leave out.
    kept = {k: v for k, v in sent.items() if v is not None and (k not in HARMLESS or v != HARMLESS[k])}
    try:
        return Asked.model_validate(kept)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    unknown = first["type"] == "extra_forbidden"
    raise ValueError(f"{first['loc'][0]}: {'not supported by this server: leave it out' if unknown else first['msg']}")


def encode(asked: Asked, policy: LMPolicy) -> list[int]:
    """Return the tokens of the prompt; a chat goes through the model's template with thinking off, as in training.

    Without a template its texts are separated by empty lines, so that a single message is the prompt itself.
    """
    said = [message.model_dump() for message in asked.messages]
    if asked.continue_final_message and [one["role"] for one in said[1:]][-1:] != ["assistant"]:
        raise ValueError("continue_final_message: the last message must be the assistant's, after another one")
    begun = said.pop()["content"] if asked.continue_final_message else ""
    text = asked.prompt or "\n\n".join(one["content"] for one in said if one["content"])
    templated = policy.tokenizer.chat_template is not None and bool(said)
    if templated:
        text = policy.apply_template([{**one, "role": one["role"].replace("developer", "system")} for one in said])
    tokens: list[int] = policy.tokenizer(text + begun, add_special_tokens=not templated, verbose=False)["input_ids"]
    if not tokens:
        raise ValueError("the prompt has no tokens: give it some text")
    return tokens


def make_rows(asked: Asked, policy: LMPolicy, limit: int) -> list[Row]:
    """Return the ``n`` rows that a request samples, of at most ``limit`` tokens."""
    # Each character of a stop string may take four tokens.
    window = 4 * max(map(len, asked.stop), default=0) + CONTEXT

    def ends(tokens: list[int]) -> bool:
        text = policy.tokenizer.decode(tokens[-window:], skip_special_tokens=True) if asked.stop else ""
        return any(stop in text for stop in asked.stop)

    keys = [None if asked.seed is None else [asked.seed % 2**64, i] for i in range(asked.n)]
    seeds = map(np.random.SeedSequence, keys)
    return [Row(limit, uniform_numbers(seed), asked.temperature, asked.top_p, ends) for seed in seeds]


def make_choice(asked: Asked, policy: LMPolicy, prompt: Sequence[int], row: Row) -> dict[str, Any]:
    """Return an answer in the form of its endpoint; its log-probabilities are those that it was sampled with."""
    decode, chat = policy.tokenizer.decode, bool(asked.messages)
    tokens = row.tokens[:-1] if row.tokens[-1] in policy.ending_ids else row.tokens
    # What continues a text keeps its leading space.
    before = [] if chat and not asked.continue_final_message else list(prompt[-CONTEXT:])
    known, whole = (decode(ids, skip_special_tokens=True) for ids in (before, [*before, *tokens]))
    text, finish, log_probs = whole[len(known) :], row.finish, None
    if found := [(text.index(stop), stop) for stop in asked.stop if stop in text]:
        place, stop = min(found)
        text, finish = text[: place + len(stop) * asked.include_stop_str_in_output], "stop"
    if asked.logprobs is not False:
        pieces = [decode([token]) for token in row.tokens]
        log_probs = {"tokens": pieces, "token_logprobs": row.log_probs}
        if chat:
            log_probs = {"content": [{"token": t, "logprob": p} for t, p in zip(pieces, row.log_probs, strict=True)]}
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {**said, "finish_reason": finish, "logprobs": log_probs}
