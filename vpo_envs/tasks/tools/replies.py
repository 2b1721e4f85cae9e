"""Where no call is wanted: real replies, as opposed to filler, copies of the prompt, evasions and lists of facts."""

from __future__ import annotations

import re

from vpo_envs.tasks.tools.matching import runs, tokens
from vpo_envs.tasks.tools.task import ToolsTask

MIN_WORDS = 3
MOST_COPIED = 0.5
MARKUP = re.compile(r"</?(?:think|tool_call|response|answer(?:_\d+)?)>|<(?:user|obs)>")
SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]?")

PLAIN = frozenset(
    tokens(
        """
        a above according all also am an and any are as asked asking assistance at back based be been by can
        certainly conversation course days dear did done exactly find following for found free from further
        gave get given glad got had hand happy has have hello help here here's hi i i'm in information into is it
        it's its just know let like listed me mentioned more my need noted now number of ok okay on one our out
        output per please provided question recorded reply request requested response result
        results returned right said see sent service set shown shows so stated sure tell thank thanks that that's
        the them then there these they this to today told tool up us use user value was we welcome were what which
        will with yes you you're you've your yours
        """
    )
)
"""Words that a reply may use besides those of the conversation. No sentence of such words denies what it states."""
DENYING = frozenset({"without", "false"})
"""Words of the conversation that a reply may not use, since they deny."""


def is_real_reply(task: ToolsTask, reply: str | None) -> bool:
    """Return whether a reply says something of its own and, where the task can tell, states the right thing.

    It has at least ``MIN_WORDS`` different words and no tags, and at most half of its runs of words are copied from the
    prompt (what the gold reply quotes does not count). Where the task says what to mention, it mentions that and
    nothing that is to be avoided, outside questions, and in plain words, which leave no way to deny or hedge it.
    """
    if reply is None or MARKUP.search(reply):
        return False
    words = tokens(reply)
    if len({word for word in words if word[0].isalnum()}) < MIN_WORDS:
        return False
    if task.mention and not _states(task, reply):
        return False
    own = runs(words)
    copied = sum([run in task.passages for run in own])
    return copied <= MOST_COPIED * len(own)


def _states(task: ToolsTask, reply: str) -> bool:
    said = set(tokens("".join([part for part in SENTENCE.findall(reply.replace("’", "'")) if not part.endswith("?")])))
    return (
        all(said.issuperset(tokens(text)) for text in task.mention)
        and not any(said.issuperset(tokens(text)) for text in task.avoid)
        and said <= (PLAIN | task.words) - DENYING
    )
