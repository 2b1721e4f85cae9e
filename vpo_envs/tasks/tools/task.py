"""A request with its tools: what the model is told, what a right attempt looks like, and reading attempts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, JsonValue, model_validator

from envs_data.parsing import finite_number, without_repeats
from vpo_envs.core import Frozen, Task, Unparsable
from vpo_envs.tasks.generation import worded
from vpo_envs.tasks.tools.matching import passages
from vpo_envs.text import answer_tags

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
    """Return a JSON value in a hashable form: 1 and 1.0 stay equal, and 1 and true stay different."""
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
        """The values that a generated request states, or what its reply says and must not say.

        The names of the tools and their parameters are arbitrary.
        """
        if self.mention:
            return f"{self.reply} {sorted(self.avoid)}"
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


class ShownTool(NamedTuple):
    """A tool as the prompt lists it."""

    name: str
    description: str
    parameters: tuple[tuple[str, str, str], ...]
    """Key, type and description of each."""


FORMAT = """\
An attempt looks like this:
<think> your reasoning </think>
<tool_call>
{"name": "name of a tool", "parameters": {"name of a parameter": "value"}}
</tool_call>
<response> your reply to the user </response>"""

PAPER_RULES = (
    "Always begin with <think>. Then make all the calls that the request needs, one JSON object per line in "
    "<tool_call>, or reply in <response>, or both.",
    "Give every parameter a value of its type, exactly as the user stated it.",
    "If the conversation already contains what the user asks for, call no tool: state it in one plain sentence.",
)


def instructions(tools: Sequence[ShownTool], rules: Sequence[str]) -> str:
    """Return the system prompt: role, tools, format and rules."""
    lines = ["You help a user by calling tools. These are the tools:"]
    for number, tool in enumerate(tools, start=1):
        parameters = {
            key: {"type": json_type, "description": description} for key, json_type, description in tool.parameters
        }
        lines += [
            f"{number}. Name: {tool.name}",
            f"Description: {tool.description}",
            f"Parameters: {json.dumps(parameters)}",
        ]
    return "\n".join([*lines, "", FORMAT, "", "Rules:", *(f"- {rule}" for rule in rules)])


class Wording(NamedTuple):
    """One way to ask for attempts, with their ``{count}``."""

    one: str
    several: str
    together: str
    """Sentence on how several attempts are judged, if one attempt can score everything."""
    trade_offs: str
    """Sentence on how several attempts are judged, if the credits do not cover all sub-requests."""
    scored: str
    """Sentence on what scores, for tasks that want calls or a reply."""


WORDINGS = (
    Wording(
        "Write one complete attempt, starting with <think>, between these tags:",
        "Write {count} different complete attempts, each starting with <think> and between its own tags.",
        "They are judged together, and only the best counts, so let them differ where you are unsure:",
        "They are judged together: under each weighting of the sub-requests only the best of them counts, so let them "
        "differ in which sub-requests they serve, and how well:",
        "An attempt scores for its format, the names of the tools that it calls, the names of the arguments and their "
        "values; without calls, for a right reply.",
    ),
    Wording(
        "Give one whole attempt in the tags below. It starts with <think>:",
        "Give {count} whole attempts that differ, each in tags of its own and with <think> at its start.",
        "Only the best of them counts, so make them different where the request leaves you in doubt:",
        "For each weighting of the sub-requests the best of them counts alone: serve different sub-requests, or the "
        "same ones with other tools:",
        "Scored are the format, which tools are called, how the arguments are named, and what values they have; where "
        "no call is needed, the reply.",
    ),
    Wording(
        "Your attempt belongs between these tags, all of it, from <think> on:",
        "There is room for {count} attempts, each complete from <think> on and different from the others.",
        "The best one is what counts:",
        "What counts is the best one for each weighting of the sub-requests, so vary what they serve and how well:",
        "Four things count: a correct format, the right tools, the right names of arguments and the right values. If "
        "nothing has to be called, the right reply counts.",
    ),
)


def full_prompt(task: ToolsTask, num_answers: int) -> str:
    """Return the instructions, the conversation and the tags to fill in."""
    wording = worded(task, WORDINGS)
    tags = [f"{opening} an attempt {closing}" for opening, closing in answer_tags(num_answers)]
    if num_answers == 1:
        wanted = wording.one
    else:
        judged = wording.together if task.market is None else wording.trade_offs
        wanted = f"{wording.several.format(count=num_answers)} {judged}"
    scored = [wording.scored] if task.market is None else []
    return "\n\n".join([task.instructions, task.dialogue, *scored, "\n".join([wanted, *tags])])


THINK, END_THINK = "<think>", "</think>"
CALLS, END_CALLS = "<tool_call>", "</tool_call>"
RESPONSE, END_RESPONSE = "<response>", "</response>"

END_OF_THINKING = re.compile(r"</think>\s*+(?=<tool_call>|<response>)")
BLANK = re.compile(r"\s*")


class Call(NamedTuple):
    """One call that was read."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The calls and the response of an attempt, without its thinking.

    Two attempts are equal if they make the same calls, in any order, and are both well-formed or both not; without
    calls, if they also give the same response.
    """

    key: Hashable
    """What equality compares."""
    calls: tuple[Call, ...] = field(compare=False)
    response: str | None = field(compare=False)
    well_formed: bool = field(compare=False)


def read_attempt(text: str) -> Attempt:
    """Read an attempt.

    Thinking ends at the last ``</think>`` directly before ``<tool_call>`` or ``<response>``, so tags mentioned in the
    thinking are part of it. Calls are JSON objects one after another; a tag inside one of their strings is part of the
    string. A well-formed attempt is ``<think>…</think>``, then ``<tool_call>…</tool_call>`` with at least one call,
    then ``<response>…</response>``, at least one of the last two, and nothing else. The readable part of an ill-formed
    one is still scored, on everything but its format. Reading takes time linear in the length of the text.
    """
    body, well_formed = _without_thinking(text.strip())
    calls: list[Call] = []
    keys: list[Hashable] = []
    if body.startswith(CALLS):
        calls, keys, end, clean = _read_calls(body, len(CALLS))
        body = body[end:].lstrip()
        well_formed = well_formed and clean and bool(calls)
    response = None
    if body.startswith(RESPONSE):
        closing = body.rfind(END_RESPONSE)
        if closing >= 0:
            response = body[len(RESPONSE) : closing].strip()
            body = body[closing + len(END_RESPONSE) :]
    if not calls and response is None:
        raise Unparsable("neither a tool call nor a response after the thinking")
    well_formed = well_formed and not body
    key = (well_formed, frozenset(Counter(keys).items()) if keys else response)
    return Attempt(key, tuple(calls), response, well_formed)


def write_attempt(
    calls: Sequence[tuple[str, dict[str, Any]]], response: str | None = None, *, thinking: str = "I read the request."
) -> str:
    """Return an attempt in the format that :func:`read_attempt` reads, with the name and arguments of each call."""
    parts = [f"{THINK}{thinking}{END_THINK}"]
    if calls:
        lines = [json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False) for name, arguments in calls]
        parts += [CALLS, *lines, END_CALLS]
    if response is not None:
        parts.append(f"{RESPONSE}{response}{END_RESPONSE}")
    return "\n".join(parts)


def _without_thinking(text: str) -> tuple[str, bool]:
    """Return what follows the thinking, and whether the thinking has both tags."""
    ends = [match.end() for match in END_OF_THINKING.finditer(text)]
    if ends:
        return text[ends[-1] :], text.startswith(THINK)
    if text.startswith(THINK):
        raise Unparsable("neither a tool call nor a response after the thinking")
    return text, False


def _read_calls(body: str, start: int) -> tuple[list[Call], list[Hashable], int, bool]:
    """Return the calls from ``start`` on, their frozen forms, where they end, and whether nothing else was there."""
    calls: list[Call] = []
    keys: list[Hashable] = []
    clean = True
    while True:
        start = BLANK.match(body, start).end()  # type: ignore[union-attr]  # it always matches
        if body.startswith(END_CALLS, start):
            return calls, keys, start + len(END_CALLS), clean
        try:
            value, start = DECODER.raw_decode(body, start)
        except (ValueError, RecursionError):
            # The end of this object is unknown, so the rest cannot be read.
            return calls, keys, len(body), False
        try:
            match value:
                case {"name": str(name), "parameters": dict() | None as given} if len(value) == 2:
                    arguments = given or {}  # null stands for no arguments
                    keys.append((name.strip(), freeze(arguments)))
                    calls.append(Call(name.strip(), arguments))
                case _:
                    clean = False
        except Unparsable:
            clean = False
        if len(calls) > MAX_CALLS:
            raise Unparsable(f"more than {MAX_CALLS} calls")


# The values of a name that is given twice would be ambiguous.
DECODER = json.JSONDecoder(object_pairs_hook=without_repeats, parse_float=finite_number, parse_constant=finite_number)
