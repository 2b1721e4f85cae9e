"""The cards of the environments, which the site shows in place of the table in docs/environments.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from template import DOCS, PAGES, competing, earned

from vpo_envs.text import REPLY_END, REPLY_START

ROW = re.compile(r"^\| \[`(vpo/\S+)`\]\((\w+)\.md\) \| (.*?) \| .* \|$", re.MULTILINE)
TABLE = re.compile(r"^\| environment \|.*?\n\n", re.MULTILINE | re.DOTALL)
PICTURES = dict.fromkeys(["vpo/Maze-v0", "vpo/MazeSteps-v0"], "images/maze.png")
EXCERPT, LINES = 180, 5
"""Characters and lines of an answer on a card."""


class Listed(NamedTuple):
    """A row of the table of environments."""

    env_id: str
    page: str
    """Name of its page in docs/."""
    task: str


def environments() -> list[Listed]:
    """Return the rows of the table of environments."""
    return [Listed(*row) for row in ROW.findall((DOCS / "environments.md").read_text(encoding="utf-8"))]


def with_gallery(text: str) -> str:
    """Return the page of all environments with cards in place of its table."""
    lines = [line for listed in environments() for line in card(listed)]
    cards = "\n".join(["::::{container} cards gallery", *lines, "::::", "", ""])
    return TABLE.sub(lambda _: cards, text, count=1)


def card(listed: Listed) -> Iterator[str]:
    """Yield the lines of a card: the task, and two answers to one that compete."""
    yield ":::{container} card"
    yield from (f"[**{listed.env_id}**]({listed.page}.md)", "", f"{listed.task[0].upper()}{listed.task[1:]}.", "")
    if listed.env_id in PICTURES:
        yield from (f"![Two answers that compete]({PICTURES[listed.env_id]})", "")
    examples = {shown[0].env_id: shown[0] for shown in PAGES.values()}
    if shown := examples.get(listed.env_id):
        task = competing(shown)
        yield "```{raw} html"
        for _, answer, rewards in task.answers[:2]:
            cells = "".join(f'<i style="--reward: {reward:.3g}"></i>' for reward in rewards)
            strip = f'<div class="strip" aria-hidden="true">{cells}</div>' if cells else ""
            yield f'<div class="competing"><code>{escape(excerpt(answer))}</code>{strip}'
            yield f"<p>{escape(earned(task.objectives, rewards))}</p></div>"
        yield "```"
    yield ":::"


def excerpt(answer: str) -> str:
    """Return the beginning of an answer, without what it says to itself and without replies."""
    told = re.sub(f"{REPLY_START}.*?{REPLY_END}", " … ", answer, flags=re.DOTALL)
    told = re.sub(r"<think>.*?</think>|</?tool_call>", "", told, flags=re.DOTALL)
    whole = "\n".join(line for line in told.splitlines() if line.strip())
    shown = "\n".join(whole.splitlines()[:LINES])[:EXCERPT].rstrip()
    return shown if shown == whole.rstrip() else f"{shown} …"
