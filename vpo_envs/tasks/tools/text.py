"""The prompt of a request with its tools, and the reader of attempts."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vpo_envs.core import Unparsable
from vpo_envs.tasks.tools.task import MAX_CALLS, ToolsTask, freeze
from vpo_envs.text import answer_tags


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


ONE_GOAL = " and only the best counts, so let them differ where you are unsure"
SEVERAL_GOALS = (
    ": under each weighting of the sub-requests only the best of them counts, so let them differ in which sub-requests "
    "they serve, and how well"
)


def full_prompt(task: ToolsTask, num_answers: int) -> str:
    """Return the instructions, the conversation and the tags to fill in."""
    tags = [f"{opening} an attempt {closing}" for opening, closing in answer_tags(num_answers)]
    if num_answers == 1:
        wanted = "Write one complete attempt, starting with <think>, between these tags:"
    else:
        wanted = (
            f"Write {num_answers} different complete attempts, each starting with <think> and between its own tags. "
            f"They are judged together{ONE_GOAL if task.market is None else SEVERAL_GOALS}:"
        )
    return "\n\n".join([task.instructions, task.dialogue, "\n".join([wanted, *tags])])


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

    Raises:
        Unparsable: Neither a call nor a response can be read, or there are more than ``MAX_CALLS`` calls.
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
                case {"name": str(name), "parameters": dict(arguments)} if len(value) == 2:
                    keys.append((name.strip(), freeze(arguments)))
                    calls.append(Call(name.strip(), arguments))
                case _:
                    clean = False
        except Unparsable:
            clean = False
        if len(calls) > MAX_CALLS:
            raise Unparsable(f"more than {MAX_CALLS} calls")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, but refuse duplicate keys, whose values would be ambiguous."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)
