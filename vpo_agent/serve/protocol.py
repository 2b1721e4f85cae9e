"""The part of OpenAI's protocol that is served: requests, and the choices of a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vpo_agent.policy.chat import read_tokens
from vpo_agent.policy.decoding import Row, uniform_numbers
from vpo_agent.policy.language_model import LMPolicy

HARMLESS: dict[str, Any] = {
    "best_of": 1,
    "echo": False,
    "frequency_penalty": 0,
    "ignore_eos": False,
    "min_p": 0,
    "min_tokens": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "response_format": {"type": "text"},
    "stream": False,
    "stream_options": {},
    "suffix": "",
    "tools": [],
    "top_k": -1,
    "top_logprobs": 0,
}
"""Unsupported fields, each with the value at which it has no effect."""
CONTEXT = 8
"""Tokens before a text that are enough to decode it."""
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Stops = Annotated[list[Stop], BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop)]


class Message(BaseModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class CompletionRequest(BaseModel):
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


def read_request(body: bytes) -> CompletionRequest:
    """Read the body of a request; raise a ValueError that names the first field that is wrong."""
    sent = json.loads(body)
    if not isinstance(sent, dict):
        raise ValueError("the body must be a JSON object")
    fields = {}
    for name, value in sent.items():
        # Clients send null for what they leave out.
        if value is None or (name in HARMLESS and value == HARMLESS[name]):
            continue
        fields[name] = value
    try:
        return CompletionRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    unknown = first["type"] == "extra_forbidden"
    reason = "not supported by this server: leave it out" if unknown else first["msg"]
    raise ValueError(f"{first['loc'][0]}: {reason}")


def encode(request: CompletionRequest, policy: LMPolicy) -> list[int]:
    """Return the tokens of the prompt; a chat goes through the model's template with thinking off, as in training.

    Without a template the texts of the messages are separated by empty lines, so that a single message is the prompt
    itself.
    """
    messages = [message.model_dump() for message in request.messages]
    beginning = ""
    if request.continue_final_message:
        if len(messages) < 2 or messages[-1]["role"] != "assistant":
            raise ValueError("continue_final_message: the last message must be the assistant's, after another one")
        beginning = messages.pop()["content"]
    if policy.chat.is_chat and messages:
        for message in messages:
            message["role"] = message["role"].replace("developer", "system")
        text = policy.chat.apply(messages)
        (tokens,) = policy.chat.encode_formatted([text + beginning])
    else:
        text = request.prompt or "\n\n".join(message["content"] for message in messages if message["content"])
        (tokens,) = policy.chat.encode_plain([text + beginning])
    if not tokens:
        raise ValueError("the prompt has no tokens: give it some text")
    return tokens


def make_rows(request: CompletionRequest, policy: LMPolicy, limit: int) -> list[Row]:
    """Return the ``n`` rows that a request samples, of at most ``limit`` tokens."""
    # Each character of a stop string may take four tokens.
    stops = _stops(request, policy)
    window = 4 * max(map(len, stops), default=0) + CONTEXT

    def ends(tokens: list[int]) -> bool:
        if not stops:
            return False
        (text,) = read_tokens(policy.tokenizer, [tokens[-window:]])
        return any(stop in text for stop in stops)

    rows = []
    for number in range(request.n):
        seed = np.random.SeedSequence(None if request.seed is None else [request.seed % 2**64, number])
        rows.append(Row(limit, uniform_numbers(seed), request.temperature, request.top_p, ends))
    return rows


def make_choice(request: CompletionRequest, policy: LMPolicy, prompt: Sequence[int], row: Row) -> dict[str, Any]:
    """Return an answer in the form of its endpoint; its log-probabilities are those that it was sampled with."""
    chat = bool(request.messages)
    text, finish = _sampled_text(request, policy, prompt, row), row.finish_reason
    found = [(text.index(stop), stop) for stop in _stops(request, policy) if stop in text]
    if found:
        position, stop = min(found)
        kept = request.include_stop_str_in_output and stop in request.stop
        end = position + len(stop) if kept else position
        text, finish = text[:end], "stop"
    answer: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    log_probs = None if request.logprobs is False else _log_probs(policy, row, chat)
    return {**answer, "finish_reason": finish, "logprobs": log_probs}


def _stops(request: CompletionRequest, policy: LMPolicy) -> list[str]:
    """Return the texts that end an answer; in a chat, the end of a turn where that is no token of its own."""
    turn_end = policy.chat.turn_end_text if request.messages else ""
    return [*request.stop, *([turn_end] if turn_end else [])]


def _sampled_text(request: CompletionRequest, policy: LMPolicy, prompt: Sequence[int], row: Row) -> str:
    """Return the text of a row; a text that continues another one keeps its leading space."""
    tokens = row.tokens[:-1] if row.tokens[-1] in policy.ending_ids else row.tokens
    continues = not request.messages or request.continue_final_message
    context = list(prompt[-CONTEXT:]) if continues else []
    before, whole = read_tokens(policy.tokenizer, [context, [*context, *tokens]])
    return whole[len(before) :]


def _log_probs(policy: LMPolicy, row: Row, chat: bool) -> dict[str, Any]:
    tokens = [policy.tokenizer.decode([token]) for token in row.tokens]
    if not chat:
        return {"tokens": tokens, "token_logprobs": row.log_probs}
    pairs = zip(tokens, row.log_probs, strict=True)
    return {"content": [{"token": token, "logprob": log_prob} for token, log_prob in pairs]}
