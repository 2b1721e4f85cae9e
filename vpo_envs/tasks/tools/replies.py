"""Tell real replies, wanted where no call is, from filler, copies of the prompt, evasions and lists of facts."""

from __future__ import annotations

import re

from vpo_envs.tasks.tools.matching import runs, tokens
from vpo_envs.tasks.tools.task import ToolsTask

MIN_WORDS = 3
MOST_COPIED = 0.5
MARKUP = re.compile(r"</?(?:think|tool_call|response|answer(?:_\d+)?)>|<(?:user|obs)>")
SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]?")

SOURCE = "(?:the|our|your) (?:conversation|results?|output|reply|response|tool|service|record)(?: above)?"
REMARK = (
    "sure|yes|certainly|of course|ok|okay|thank you|thanks|(?:happy|glad) to help|here (?:it is|you are)"
    f"|(?:according to|based on|as in|from) {SOURCE}|as {SOURCE} (?:shows?|states?)|as (?:shown|stated|listed) above"
    "|you are welcome|(?:please )?let me know if you need anything else|if you need anything else let me know"
)
SUBJECT = (
    "(?:it|that|this|(?:the|your)(?: requested)?(?: ,)++"
    f"(?: you asked for| in question)?(?: (?:(?:returned|given|shown|listed) )?(?:by|in|from) {SOURCE})?)"
)
STATEMENT = f"(?:you asked for |here is )?{SUBJECT}(?: is| was)?(?: ,)*+(?: !)++(?: ,)*+"
PLAIN = re.compile(f"(?:(?:{REMARK}|{STATEMENT})(?: |$))+")
"""Statements of the fact and polite remarks. ``!`` is a word of the fact, ``,`` any other of the gold reply."""
HELP = "(?:do|help(?: you)?(?: with)?)"
QUESTION = re.compile(
    f"(?:(?:is there|do you need|would you like|(?:can|could|may|shall) i {HELP}) )?(?:any|some)thing else"
    f"(?: (?:that )?(?:i (?:can|could|may) {HELP}|you need))?(?: for you)?(?: today)?"
    "|does (?:that|this) help|what (?:is|was) (?:the|your)(?: ,)++"
)
"""The only questions that a reply may ask: any other can deny the fact or list further ones."""
KEPT = frozenset({"it", "that", "this", "the", "your", "you", "is", "was"})


def is_real_reply(task: ToolsTask, reply: str | None) -> bool:
    """Return whether a reply says something of its own and, where the task can tell, states the right thing.

    It has at least ``MIN_WORDS`` different words and no tags, and at most half of its runs of words are copied from the
    prompt (what the gold reply quotes does not count). Where the task says what to mention, it mentions that and
    nothing that it must avoid. It then consists of questions that match ``QUESTION`` and, apart from them, of
    statements that match ``PLAIN`` as a whole.
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
    parts = SENTENCE.findall(reply.casefold().replace("’", "'").replace("'s ", " is ").replace("'re ", " are "))
    questions = [tokens(part) for part in parts if part.endswith("?")]
    said = tokens("".join([part for part in parts if not part.endswith("?")]))
    facts = set(tokens(" ".join(task.mention)))
    others = set(tokens(task.reply or "")) - facts - KEPT
    return (
        facts.issubset(said)
        and not any(set(said).issuperset(tokens(text)) for text in task.avoid)
        and PLAIN.fullmatch(_form(said, facts, others)) is not None
        and all(QUESTION.fullmatch(_form(words, facts, others)) for words in questions)
    )


def _form(words: list[str], facts: set[str], others: set[str]) -> str:
    """Return words as ``PLAIN`` and ``QUESTION`` read them."""
    return " ".join("!" if word in facts else "," if word in others else word for word in words)
