"""Where no call is wanted: telling a real reply from filler, copies of the prompt and lists of everything."""

from __future__ import annotations

import re

from vpo_envs.tasks.tools.matching import runs, tokens
from vpo_envs.tasks.tools.task import ToolsTask

MIN_WORDS = 3
MOST_COPIED = 0.5
MARKUP = re.compile(r"</?(?:think|tool_call|response|answer(?:_\d+)?)>|<(?:user|obs)>")


def is_real_reply(task: ToolsTask, reply: str | None) -> bool:
    """Whether a reply says something of its own and, where the task can tell, the right thing.

    It has at least ``MIN_WORDS`` different words and no tags, at most half of its runs of words are copied from the
    prompt (what a good reply quotes does not count), and it says all that the task wants mentioned and nothing of what
    it must avoid.
    """
    if reply is None or MARKUP.search(reply):
        return False
    words = tokens(reply)
    if len({word for word in words if word[0].isalnum()}) < MIN_WORDS:
        return False
    said = set(words)
    if not all(said.issuperset(tokens(text)) for text in task.mention):
        return False
    if any(said.issuperset(tokens(text)) for text in task.avoid):
        return False
    own = runs(words)
    copied = sum([run in task.passages for run in own])
    return copied <= MOST_COPIED * len(own)
