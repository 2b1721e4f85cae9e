"""Rows of ToolRL's rlla data as tasks: chat rows from parquet files, and raw instruction, input and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envs_data.readers import BadRow
from vpo_envs.core import Unparsable
from vpo_envs.tasks.tools.task import ToolCall, ToolsTask, read_attempt


def read_rlla_row(raw: Mapping[str, Any]) -> ToolsTask:
    """Return the task of a row.

    Two schemas are supported. Raw: ``instruction``, ``input``, ``output``. Chat: ``prompt``, a list of messages with
    ``role`` and ``content``, one of them the system's, and ``reward_model`` with the gold attempt as ``ground_truth``.
    The gold attempt makes calls or replies.
    """
    if "output" in raw:
        gold_field, gold = "output", _text(raw, "output")
        instructions, dialogue = _text(raw, "instruction"), _text(raw, "input")
    elif "prompt" in raw:
        model = raw.get("reward_model")
        if not isinstance(model, Mapping):
            raise BadRow("reward_model", f"expected an object with ground_truth, got {_kind(model)}")
        gold_field, gold = "reward_model.ground_truth", _text(model, "ground_truth", "reward_model.")
        instructions, dialogue = _read_chat(raw["prompt"])
    else:
        raise BadRow("", "unknown schema: a row has instruction, input and output, or prompt and reward_model")
    try:
        attempt = read_attempt(gold)
    except Unparsable as error:
        raise BadRow(gold_field, str(error)) from None
    if not attempt.well_formed:
        raise BadRow(gold_field, "the gold attempt is not <think>, then well-formed calls or a response")
    if not attempt.calls:
        if not attempt.response:
            raise BadRow(gold_field, "the gold attempt makes no call and its response is empty")
        return ToolsTask(instructions=instructions, dialogue=dialogue, reply=attempt.response)
    if not all(call.name for call in attempt.calls):
        raise BadRow(gold_field, "a gold call has no name")
    calls = tuple(ToolCall(name=call.name, parameters=call.arguments) for call in attempt.calls)
    return ToolsTask(instructions=instructions, dialogue=dialogue, calls=calls)


def _read_chat(prompt: object) -> tuple[str, str]:
    """Return the system message, and the other messages joined."""
    if not isinstance(prompt, Sequence) or isinstance(prompt, str):
        raise BadRow("prompt", f"expected a list of messages, got {_kind(prompt)}")
    system: list[str] = []
    others: list[str] = []
    for number, message in enumerate(prompt):
        if not isinstance(message, Mapping):
            raise BadRow(f"prompt.{number}", f"expected a message with role and content, got {_kind(message)}")
        if message.get("role") == "assistant" and message.get("content") is None:
            continue  # it made calls and said nothing
        content = _text(message, "content", f"prompt.{number}.")
        (system if message.get("role") == "system" else others).append(content)
    if not system or not others:
        raise BadRow("prompt", "expected a system message with the tools and a user message")
    return "\n\n".join(system), "\n\n".join(others)


def _text(row: Mapping[str, Any], field: str, prefix: str = "") -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise BadRow(prefix + field, f"expected text, got {'empty text' if isinstance(value, str) else _kind(value)}")
    return value.strip()


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
