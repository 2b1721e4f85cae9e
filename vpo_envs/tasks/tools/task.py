"""A request with its tools: what the model is told, and what a right attempt looks like."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, model_validator

from vpo_envs.core import Frozen, Task, Unparsable
from vpo_envs.tasks.tools.matching import passages

MAX_CALLS = 64
"""Maximum number of calls of one attempt."""
NUM_REQUESTS = 4
"""Number of sub-requests of a task in conflict mode."""
MAX_DEPTH = 32
"""Maximum nesting depth of a call's arguments."""


def stated(requests: Iterable[Iterable[Any]]) -> str:
    """Return the values of sub-requests, whatever their order."""
    return str(sorted(str(list(values)) for values in requests))


def _plain_arguments(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    freeze(arguments)
    json.dumps(arguments, allow_nan=False)
    return arguments


def freeze(value: Any, level: int = 1) -> Hashable:
    """Return a JSON value in a hashable form: 1 and 1.0 stay equal, and 1 and true stay different.

    Raises:
        Unparsable: Lists and objects nested deeper than ``MAX_DEPTH``.
    """
    if isinstance(value, dict | list):
        if level > MAX_DEPTH:
            raise Unparsable(f"lists and objects nested deeper than {MAX_DEPTH}")
        if isinstance(value, dict):
            return frozenset([(key, freeze(inner, level + 1)) for key, inner in value.items()])
        return tuple([freeze(inner, level + 1) for inner in value])
    if isinstance(value, bool):
        return b"true" if value else b"false"
    plain: str | int | float | None = value
    return plain


def by_name(calls: Iterable[tuple[str, dict[str, JsonValue]]]) -> dict[str, list[dict[str, JsonValue]]]:
    """Group the arguments of calls by the tool's name."""
    grouped: dict[str, list[dict[str, JsonValue]]] = {}
    for name, arguments in calls:
        grouped.setdefault(name, []).append(arguments)
    return grouped


Arguments = Annotated[dict[str, JsonValue], AfterValidator(_plain_arguments)]
"""Arguments of a call by name: plain JSON without infinities, not nested too deeply."""


class ToolCall(Frozen):
    """One call: the tool's name and its arguments by parameter name."""

    name: str = Field(min_length=1)
    parameters: Arguments


class Offer(Frozen):
    """A tool that can serve a sub-request."""

    tool: str = Field(min_length=1)
    price: int = Field(ge=1)
    """Credits that a call costs."""
    accuracy: float = Field(gt=0.0, le=1.0)
    """Score of the sub-request if this tool serves it."""


class SubRequest(Frozen):
    """One part of the request, and the tools that can do it."""

    arguments: Arguments
    offers: tuple[Offer, ...] = Field(min_length=1)


class Market(Frozen):
    """Sub-requests that together cost more than the budget."""

    requests: tuple[SubRequest, ...] = Field(min_length=NUM_REQUESTS, max_length=NUM_REQUESTS)
    budget: int = Field(ge=1)
    """Credits that all calls of one attempt may cost in total."""

    @model_validator(mode="after")
    def _offers_a_tool_once(self) -> Market:
        tools = [offer.tool for request in self.requests for offer in request.offers]
        repeated = [tool for tool in tools if tools.count(tool) > 1]
        if repeated:
            raise ValueError(f"tool {repeated[0]!r} is offered more than once")
        return self

    @cached_property
    def prices(self) -> dict[str, int]:
        """Price of a call to each tool."""
        return {offer.tool: offer.price for request in self.requests for offer in request.offers}


class ToolsTask(Task):
    """One request with its tools.

    Exactly one of ``calls``, ``reply`` and ``market`` defines a right attempt: these calls, a reply without calls, or
    any trade-off between sub-requests that the budget allows.
    """

    instructions: str = Field(min_length=1)
    """Role, tools and format of an attempt: ToolRL's system prompt."""
    dialogue: str = Field(min_length=1)
    """The conversation so far, ending with the user's turn."""
    calls: tuple[ToolCall, ...] = Field((), max_length=MAX_CALLS)
    """The gold calls; empty if no call is wanted."""
    reply: str | None = None
    """The gold reply, if no call is wanted."""
    mention: tuple[str, ...] = ()
    """What a reply must say."""
    avoid: tuple[str, ...] = ()
    """What a reply must not say."""
    exact: bool = False
    """Whether texts in arguments must equal the gold ones; otherwise they earn the F1 of their tokens."""
    market: Market | None = None
    """The trade-off of conflict mode."""

    @model_validator(mode="after")
    def _wants_one_thing(self) -> ToolsTask:
        given = [self.calls != (), self.reply is not None, self.market is not None]
        if sum(given) != 1:
            raise ValueError("a tools task states exactly one of calls, reply and market")
        if self.reply is not None and not self.reply.strip():
            raise ValueError("the reply is empty")
        return self

    @property
    def canonical(self) -> str:
        """The values that a generated request states: the names of its tools and their parameters are arbitrary."""
        wanted = [call.parameters for call in self.calls] if self.exact else []
        wanted += [part.arguments for part in self.market.requests] if self.market else []
        return stated(part.values() for part in wanted) if wanted else super().canonical

    @cached_property
    def gold(self) -> dict[str, list[dict[str, JsonValue]]]:
        """Arguments of the gold calls to each tool."""
        return by_name([(call.name, call.parameters) for call in self.calls])

    @cached_property
    def passages(self) -> frozenset[tuple[str, ...]]:
        """Runs of words of the prompt that the gold reply does not have: a reply full of them is a copy."""
        return passages(f"{self.instructions}\n{self.dialogue}") - passages(self.reply or "")
