"""The part of OpenAI's protocol that is spoken: requests as they come in, and what goes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Text = Annotated[str, Field(min_length=1)]
# Every new token is compared with all of them.
StopString = Annotated[str, Field(min_length=1, max_length=256)]


class RequestError(Exception):
    """A request that is refused: the HTTP status, and the body that says why.

    Args:
        status: HTTP status, 4xx or 5xx.
        message: One sentence, for a person.
        param: The field at fault.
        code: A word for programs.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """The JSON that OpenAI's clients read errors from."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class StreamOptions(BaseModel):
    """What a stream carries besides the answers."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class _Request(BaseModel):
    """What both endpoints take; unsupported fields that would change the answers are refused, all others ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None
    include_stop_str_in_output: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def token_limit(self) -> int | None:
        """Most tokens of an answer, where the request says so."""
        return self.max_tokens

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name, harmless in _UNSUPPORTED.items():
                if values.get(name) not in harmless:
                    raise ValueError(f"{name} is not supported by this server: leave it out")
        return values


class CompletionRequest(_Request):
    """The body of ``POST /v1/completions``."""

    prompt: Text | list[Text] | list[int] | list[list[int]]


class MessagePart(BaseModel):
    """A piece of a message; only text is understood."""

    model_config = ConfigDict(strict=True, frozen=True)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a chat."""

    model_config = ConfigDict(strict=True, frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[MessagePart]

    @property
    def text(self) -> str:
        """What it says."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(_Request):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    continue_final_message: bool | None = None

    @property
    def token_limit(self) -> int | None:
        """Most tokens of an answer, where the request says so; the newer name wins."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


# What would change the answers, with the values that ask for nothing.
_UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "presence_penalty": (None, 0),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tools": (None, []),
    "top_logprobs": (None, 0),
}

R = TypeVar("R", bound=_Request)


def read_request(kind: type[R], body: bytes) -> R:
    """Check the body of a request.

    Raises:
        RequestError: It is not JSON, or not what ``kind`` describes.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    # Of a union every branch complains; the field is the part of the place that means something to the caller.
    param = str(first["loc"][0]) if first["loc"] else None
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        raise RequestError(400, f"the body is not valid JSON in UTF-8: {message.removeprefix('Invalid JSON: ')}")
    raise RequestError(400, f"{param}: {message}" if param else message, param=param)


def event(data: Mapping[str, Any] | str) -> bytes:
    """One server-sent event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def choice(chat: bool, index: int, text: str, finish: str | None, *, delta: bool = False, first: bool = False) -> Any:
    """One answer, or a piece of one in a stream.

    Args:
        chat: Whether it is a message or plain text.
        index: Which answer.
        text: What it says.
        finish: Why it ended.
        delta: Whether it is a piece.
        first: Whether it is the first piece of its answer, which names the role.
    """
    fields: dict[str, Any] = {"index": index}
    if not chat:
        fields["text"] = text
    elif delta:
        fields["delta"] = {**({"role": "assistant"} if first else {}), "content": text}
    else:
        fields["message"] = {"role": "assistant", "content": text}
    return {**fields, "finish_reason": finish, "logprobs": None}


def usage(prompt_tokens: Sequence[int], answer_tokens: int) -> dict[str, int]:
    """How many tokens were read and drawn."""
    read = sum(prompt_tokens)
    return {"prompt_tokens": read, "completion_tokens": answer_tokens, "total_tokens": read + answer_tokens}
