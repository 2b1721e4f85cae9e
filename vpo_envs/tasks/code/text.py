"""The prompt that asks for programs, and reading the program out of an answer."""

from __future__ import annotations

import json
import re

from vpo_envs.core import Unparsable
from vpo_envs.tasks.code.task import CodeKind, CodeTask, CodeTest
from vpo_envs.text import answer_tags

MAX_SOURCE_CHARS = 65_536

FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)([^`\n]*+)$", re.MULTILINE)
"""A line that opens a fenced block, or closes one where no text follows the fence. It never backtracks, so a long row
of tildes takes linear time."""


def code_prompt(task: CodeTask, num_answers: int) -> str:
    """Return the statement, its examples, and the form of the answers."""
    parts = [f"# {task.title}" if task.title else "", task.statement.strip()]
    for number, test in enumerate(task.tests[: task.shown], start=1):
        parts.append(example(task.kind, task.entry, number, test))
    if task.kind == "stdin":
        parts.append("Write a complete Python program that reads standard input and writes standard output.")
    elif task.entry:
        parts.append(f"Write Python code that defines `{task.entry}`; it is called with the arguments of each test.")
    else:
        parts.append("Write Python code that defines what the statement asks for.")
    if task.starter_code.strip():
        parts.append(f"Start from this code:\n```python\n{task.starter_code.strip()}\n```")
    parts.append(_wanted(task, num_answers))
    return "\n\n".join(part for part in parts if part)


def example(kind: CodeKind, entry: str, number: int, test: CodeTest) -> str:
    """Return a test as an example of the prompt."""
    given, wanted = test.input, test.output
    if kind == "stdin":
        return f"Example {number}, input:\n{given.rstrip()}\nOutput:\n{wanted.rstrip()}"
    if kind == "call":
        arguments = ", ".join(repr(value) for value in json.loads(given))
        return f"Example {number}: {entry}({arguments}) gives {json.loads(wanted)!r}"
    return f"Example {number}: {given} gives {wanted}"


def _wanted(task: CodeTask, num_answers: int) -> str:
    tags = [f"{opening}…{closing}" for opening, closing in answer_tags(num_answers)]
    if num_answers == 1:
        return f"Put the whole code, and nothing else, inside {tags[0]}. Only the standard library is available."
    reading = " The statement can be read in several ways: let the attempts follow different readings."
    return (
        f"Make {num_answers} different attempts, each complete by itself: {', '.join(tags)}. Put code and nothing else "
        "inside each tag. Each attempt is tested separately, so attempts that differ in their approach are worth more "
        f"than copies.{reading if task.readings else ''} Only the standard library is available."
    )


def read_source(text: str) -> str:
    """Return the program inside an answer: the last fenced block if there is one, else the whole text.

    Raises:
        Unparsable: There is no program, or it is too long.
    """
    block = _last_fenced_block(text) if "```" in text or "~~~" in text else None
    source = (text if block is None else block).strip("\r\n").rstrip()
    if not source.strip():
        raise Unparsable("the answer holds no code")
    if len(source) > MAX_SOURCE_CHARS:
        raise Unparsable(f"the code is longer than {MAX_SOURCE_CHARS} characters")
    return source


def _last_fenced_block(text: str) -> str | None:
    """Return the content of the last fenced block, in linear time; ``None`` if no block is closed.

    A block ends at the next line that holds the same fence and nothing else. A fence that is never closed is text.
    """
    fences = list(FENCE.finditer(text))
    # From the end, so that the next fence that closes each one is looked up and not searched for.
    closing: dict[str, int] = {}
    ends: list[int | None] = [None] * len(fences)
    for i in reversed(range(len(fences))):
        fence, info = fences[i].groups()
        ends[i] = closing.get(fence)
        if not info.strip(" \t"):
            closing[fence] = i
    block, last = None, -1
    for i, (fence, end) in enumerate(zip(fences, ends, strict=True)):
        if i > last and end is not None:
            block = text[fence.end() + 1 : fences[end].start()]
            last = end
    return block
