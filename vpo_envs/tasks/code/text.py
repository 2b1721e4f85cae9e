"""The text that asks for programs, and reading the program out of an answer."""

from __future__ import annotations

import json
import re

from vpo_envs.core import Unparsable
from vpo_envs.tasks.code.task import CodeTask
from vpo_envs.text import answer_tags

MAX_SOURCE_CHARS = 65_536

FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


def code_prompt(task: CodeTask, num_answers: int) -> str:
    """The statement, its examples, and what is wanted in which tags."""
    parts = [f"# {task.title}" if task.title else "", task.statement.strip()]
    for number, test in enumerate(task.tests[: task.shown], start=1):
        parts.append(_example(task, number, test.input, test.output))
    if task.kind == "stdin":
        parts.append("Write a complete Python program that reads standard input and writes standard output.")
    elif task.entry:
        parts.append(f"Write Python code that defines `{task.entry}`; it is called with the arguments of each test.")
    else:
        parts.append("Write Python code that defines what is asked for.")
    if task.starter_code.strip():
        parts.append(f"Begin from this code:\n```python\n{task.starter_code.strip()}\n```")
    parts.append(_wanted(task, num_answers))
    return "\n\n".join(part for part in parts if part)


def _example(task: CodeTask, number: int, given: str, wanted: str) -> str:
    if task.kind == "stdin":
        return f"Example {number}, input:\n{given.rstrip()}\nOutput:\n{wanted.rstrip()}"
    if task.kind == "call":
        arguments = ", ".join(repr(value) for value in json.loads(given))
        return f"Example {number}: {task.entry}({arguments}) gives {json.loads(wanted)!r}"
    return f"Example {number}: {given} gives {wanted}"


def _wanted(task: CodeTask, num_answers: int) -> str:
    tags = [f"{opening}…{closing}" for opening, closing in answer_tags(num_answers)]
    if num_answers == 1:
        return f"Put the whole code, and nothing else, inside {tags[0]}. Only the standard library is available."
    reading = " The statement can be read in several ways: let the attempts follow different ones."
    return (
        f"Make {num_answers} different attempts, each of them complete by itself: {', '.join(tags)}. "
        "Inside each tag stands code and nothing else. Each attempt is tested by itself, so attempts that differ in "
        f"their approach are worth more than copies.{reading if task.readings else ''} Only the standard library is "
        "available."
    )


def read_source(text: str) -> str:
    """The program inside an answer: the last fenced block where there is one, else the whole text.

    Raises:
        Unparsable: There is no program, or one that is too long.
    """
    blocks = FENCE.findall(text) if "```" in text or "~~~" in text else []
    source = str(blocks[-1][1]) if blocks else text
    source = source.strip("\r\n").rstrip()
    if not source.strip():
        raise Unparsable("the answer holds no code")
    if len(source) > MAX_SOURCE_CHARS:
        raise Unparsable(f"the code is longer than {MAX_SOURCE_CHARS} characters")
    return source
