"""The part of OpenAI's protocol that is served: requests, and the choices of a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from envs_data.parsing import parse_json
from vpo_agent.policy.chat import ChatFormat, read_tokens
from vpo_agent.policy.decoding import Row, uniform_numbers
from vpo_agent.policy.language_model import LMPolicy
from vpo_envs.common.thoughts import find_thoughts
from vpo_envs.text import as_text

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
Stops = Annotated[
    list[Stop], Field(max_length=64), BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop)
]


class Message(BaseModel):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class TemplateSettings(BaseModel):
    """What a request asks of the chat template."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    enable_thinking: bool | None = None
    """Whether to ask for thoughts; as the server was told if ``None``."""
    thinking: bool | None = None
    """Whether to ask for thoughts, under the name that other templates use."""


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
    chat_template_kwargs: TemplateSettings = TemplateSettings()
    user: str = ""


def read_request(body: bytes) -> CompletionRequest:
    """Read the body of a request; raise a ValueError that names the first field that is wrong."""
    sent = parse_json(body)
    if not isinstance(sent, dict):
        raise ValueError("the body must be a JSON object")
    try:
        json.dumps(sent, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("the body has half of a surrogate pair, which is not a character") from None
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


def chat_of(request: CompletionRequest, policy: LMPolicy) -> ChatFormat:
    """Return how a request wants chats to be written; ValueError if it asks for thoughts and the template has none."""
    asked = request.chat_template_kwargs
    thinking = asked.thinking if asked.enable_thinking is None else asked.enable_thinking
    return policy.chat if thinking in (None, policy.chat.thinking) else ChatFormat(policy.tokenizer, thinking=thinking)


def encode(request: CompletionRequest, chat: ChatFormat) -> list[int]:
    """Return the tokens of the prompt; a chat goes through the model's template.

    Without a template the texts of the messages are separated by empty lines, so that a single message is the prompt
    itself.
    """
    messages = [message.model_dump() for message in request.messages]
    beginning = ""
    if request.continue_final_message:
        if len(messages) < 2 or messages[-1]["role"] != "assistant":
            raise ValueError("continue_final_message: the last message must be the assistant's, after another one")
        # The template writes the mark itself.
        beginning = messages.pop()["content"].removeprefix(chat.opened)
    if chat.is_chat and messages:
        for message in messages:
            message["role"] = message["role"].replace("developer", "system")
        (tokens,) = chat.encode_texts([chat.apply(messages) + beginning])
    else:
        (tokens,) = chat.encode_plain([(request.prompt or as_text(messages)) + beginning])
    if not tokens:
        raise ValueError("the prompt has no tokens: give it some text")
    return tokens


def make_rows(request: CompletionRequest, policy: LMPolicy, chat: ChatFormat, limit: int) -> list[Row]:
    """Return the ``n`` rows that a request samples, of at most ``limit`` tokens."""
    stops, before = _stops(request, chat), _text_before(request, chat)
    # Each character of a stop string may take four tokens.
    window = 4 * max(map(len, stops), default=0) + CONTEXT

    def ends(tokens: list[int]) -> bool:
        if not stops:
            return False
        (tail,) = read_tokens(policy.tokenizer, [tokens[-window:]])
        if not any(stop in tail for stop in stops):
            return False
        (text,) = read_tokens(policy.tokenizer, [tokens])
        return _first_stop(before, text, stops) is not None

    rows = []
    for number in range(request.n):
        seed = np.random.SeedSequence(None if request.seed is None else [request.seed % 2**64, number])
        rows.append(Row(limit, uniform_numbers(seed), request.temperature, request.top_p, ends))
    return rows


def make_choice(
    request: CompletionRequest, policy: LMPolicy, chat: ChatFormat, prompt: Sequence[int], row: Row
) -> dict[str, Any]:
    """Return an answer in the form of its endpoint; its log-probabilities are those that it was sampled with.

    Where the template opens thoughts, the answer to a chat begins with their mark.
    """
    is_chat = bool(request.messages)
    text, finish = _sampled_text(request, policy, prompt, row), row.finish_reason
    found = _first_stop(_text_before(request, chat), text, _stops(request, chat))
    if found is not None:
        position, stop = found
        kept = request.include_stop_str_in_output and stop in request.stop
        end = position + len(stop) if kept else position
        text, finish = text[:end], "stop"
    if is_chat and not request.continue_final_message:
        text = chat.opened + text
    answer: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    log_probs = None if request.logprobs is False else _log_probs(policy, row, is_chat)
    return {**answer, "finish_reason": finish, "logprobs": log_probs}


def _stops(request: CompletionRequest, chat: ChatFormat) -> list[str]:
    """Return the texts that end an answer; in a chat, the end of a turn where that is no token of its own."""
    turn_end = chat.turn_end_text if request.messages else ""
    return [*request.stop, *([turn_end] if turn_end else [])]


def _text_before(request: CompletionRequest, chat: ChatFormat) -> str:
    """Return what stands before a sampled text in the assistant's message."""
    begun = request.messages[-1].content if request.continue_final_message else ""
    return chat.opened + begun.removeprefix(chat.opened) if request.messages else ""


def _first_stop(before: str, text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """Return the first stop string of a text after ``before``, and where it is; stops inside thoughts do not count."""
    said = find_thoughts(before + text).masked[len(before) :]
    return min(((said.index(stop), stop) for stop in stops if stop in said), default=None)


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
