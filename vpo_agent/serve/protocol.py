"""The supported part of OpenAI's protocol: the bodies of requests and responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException

Text = Annotated[str, Field(min_length=1)]
# Each new token is compared with all stop strings.
StopString = Annotated[str, Field(min_length=1, max_length=256)]


UNSUPPORTED: Mapping[str, Any] = {
    "best_of": 1,
    "echo": False,
    "frequency_penalty": 0,
    "functions": [],
    "logit_bias": {},
    "logprobs": False,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "suffix": "",
    "tools": [],
    "top_logprobs": 0,
}
"""Unsupported fields that would change the answers, each with the default that is accepted."""


class RequestError(HTTPException):
    """A refused request: HTTP status, message, offending field and machine-readable code."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        # The unread rest of a body must not be parsed as the next request.
        headers = {503: {"Retry-After": "1"}, 408: {"Connection": "close"}, 413: {"Connection": "close"}}
        super().__init__(status, message, headers.get(status))
        self._fields = {"param": param, "code": code}

    def body(self) -> dict[str, Any]:
        """Return the error as JSON in OpenAI's form."""
        kind = "server_error" if self.status_code >= 500 else "invalid_request_error"
        return {"error": {"message": self.detail, "type": kind, **self._fields}}


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        # Clients send null for fields that they leave out.
        return {name: value for name, value in values.items() if value is not None} if type(values) is dict else values


class StreamOptions(_Body):
    """Options of a stream."""

    include_usage: bool = False


class SamplingRequest(_Body):
    """The fields of both endpoints; unsupported fields that would change the answers are refused, others ignored."""

    model: str = "default"
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: int = Field(1, ge=1)
    temperature: float = Field(1.0, ge=0, le=100, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] = []
    include_stop_str_in_output: bool = False
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, values: Any) -> Any:
        for name, harmless in UNSUPPORTED.items() if isinstance(values, dict) else ():
            if values.get(name) not in (None, harmless):
                raise ValueError(f"{name} is not supported by this server: leave it out")
        return values


class CompletionRequest(SamplingRequest):
    """The body of ``POST /v1/completions``."""

    prompt: Text | list[Text] | list[int] | list[list[int]]


class MessagePart(_Body):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: str


class Message(_Body):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[MessagePart]

    @property
    def text(self) -> str:
        """The text of all parts."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(SamplingRequest):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    # The newer name wins.
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, validation_alias=AliasChoices("max_completion_tokens", "max_tokens")
    )
    continue_final_message: bool = False


R = TypeVar("R", bound=SamplingRequest)


def read_request(kind: type[R], body: bytes) -> R:
    """Parse and check the body of a request.

    Raises:
        RequestError: It is not JSON, or a field is missing or wrong.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    # Each branch of a union reports an error, and all start with the name of the field.
    param = str(first["loc"][0]) if first["loc"] else None
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        raise RequestError(400, f"the body is not valid JSON in UTF-8: {message.removeprefix('Invalid JSON: ')}")
    raise RequestError(400, f"{param}: {message}" if param else message, param=param)


def event(data: Mapping[str, Any] | str) -> bytes:
    """Encode a server-sent event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def choice(chat: bool, index: int, text: str, finish: str | None, *, delta: bool = False, first: bool = False) -> Any:
    """Return an answer or, with ``delta``, a piece of it in a stream; the first piece names the role."""
    fields: dict[str, Any] = {"index": index}
    if not chat:
        fields["text"] = text
    elif delta:
        fields["delta"] = {**({"role": "assistant"} if first else {}), "content": text}
    else:
        fields["message"] = {"role": "assistant", "content": text}
    return {**fields, "finish_reason": finish, "logprobs": None}
