"""Thoughts of reasoning models: where in a response they are, so that a draft in them is no answer.

Thoughts run from an opening mark, such as ``<think>``, to its closing one, or to the end of the text if that is
missing. Where a chat template writes the opening mark, a response holds the closing one alone, and what stands before
it is thoughts. Inside an answer marks are text: some tasks ask for an answer that contains them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TAGS = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think", "longcat_think")
OWN_CLOSING = {
    **{f"<{tag}>": f"</{tag}>" for tag in TAGS},
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|channel>thought": "<channel|>",
    "<unused94>": "<unused95>",
}
"""Opening marks, each with a closing mark that has no other use."""
SHARED_CLOSING = {f"<|channel|>{channel}<|message|>": "<|end|>" for channel in ("analysis", "commentary")}
"""Opening marks whose closing mark has other uses too."""
CLOSING = {**OWN_CLOSING, **SHARED_CLOSING}
MASK = "\0"
"""Replaces each character of thoughts."""
MARKS = (*CLOSING, *CLOSING.values())
HINTS = ("think", "THINK", "thought", "reasoning", "<|channel", "<unused9", "channel|>")
"""Each mark contains one of these; most texts contain none."""
_MARK_OR_TAG = re.compile("|".join([*map(re.escape, MARKS), r"</?answer(?:_\d+)?>"]))
_STRAY = frozenset(OWN_CLOSING.values())


class Thoughts(NamedTuple):
    """A text without its thoughts."""

    masked: str
    """The text with :data:`MASK` for each character of a thought and of its marks; as long as the text."""
    unclosed: bool
    """Whether the text ends inside a thought."""


def find_thoughts(text: str) -> Thoughts:
    """Find the thoughts in a response; the time is linear in its length."""
    if not any(hint in text for hint in HINTS):
        return Thoughts(text, unclosed=False)
    found = list(_MARK_OR_TAG.finditer(text))
    ends = _ends_of_answers(found)
    spans: list[tuple[int, int]] = []
    closing, opened, answer_end = "", 0, -1
    for number, mark in enumerate(found):
        if closing:
            if mark.group() == closing:
                spans.append((opened, mark.end()))
                closing = ""
        elif number < answer_end:
            continue
        elif number in ends:
            answer_end = ends[number]
        elif mark.group() in CLOSING:
            closing, opened = CLOSING[mark.group()], mark.start()
        elif mark.group() in _STRAY:
            spans = [(0, mark.end())]
    if closing:
        spans.append((opened, len(text)))
    return Thoughts(_masked(text, spans) if spans else text, unclosed=bool(closing))


def _ends_of_answers(found: list[re.Match[str]]) -> dict[int, int]:
    """Return the closing tag of each opening tag that begins an answer, both by their numbers in ``found``.

    An opening tag begins one if the next tag of its name closes it.
    """
    ends: dict[int, int] = {}
    following: dict[str, int] = {}
    for number in range(len(found) - 1, -1, -1):
        tag = found[number].group()
        if tag in MARKS:
            continue
        name = tag.strip("</>")
        if not tag.startswith("</") and name in following and found[following[name]].group().startswith("</"):
            ends[number] = following[name]
        following[name] = number
    return ends


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], MASK * (end - start)]
        done = end
    return "".join([*parts, text[done:]])
