"""The turns of a response: a model calls, its environment replies, and the model writes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vpo_envs.common.thoughts import find_thoughts
from vpo_envs.text import REPLY_START, Call, calls_of, last_call, split_turns, with_reply, written_by_model


@dataclass(frozen=True)
class Turns:
    """How the responses to one task are interrupted by replies of the environment."""

    tags: tuple[str, ...]
    """Names of the tags whose closing ends a turn, such as ``("open",)``."""
    max_calls: int
    """Most calls of a response; one more ends it."""
    respond: Callable[[Sequence[Call]], str | None]
    """Returns the reply to the last of the calls of a response; ``None`` if there is nothing to say."""

    @property
    def closing_tags(self) -> tuple[str, ...]:
        """The tags that end a turn."""
        return tuple(f"</{tag}>" for tag in self.tags)

    def reply(self, response: str) -> str | None:
        """Return the reply to a response that ends in a call; ``None`` if it ends otherwise, or nothing is to be said.

        ``response`` holds the replies so far, see :func:`~vpo_envs.text.with_reply`.
        """
        call = last_call(split_turns(response)[-1][0])
        if call is None or call.tag not in self.tags:
            return None
        return self.respond([*calls_of(response), call])

    def may_call(self, response: str) -> bool:
        """Return whether a response, which holds the replies so far, may have one more."""
        return response.count(REPLY_START) < self.max_calls

    def read(self, response: str, action: str) -> tuple[str, str | None]:
        """Continue a response, which holds the replies so far, with an action.

        The action may hold replies as well, which count if they are those that the environment gives.

        Returns:
            The response up to the first call without its reply, and that reply; or the whole of it, and ``None``.
        """
        for piece, claimed in split_turns(action):
            written = written_by_model(piece)
            call = self.first_call(response, written)
            if call is None:
                response += written
                continue
            end, reply = call
            called = response + written[:end]
            if claimed != reply or written[end:].strip() or not self.may_call(called):
                return called, reply
            response = with_reply(called, reply)
        return response, None

    def first_call(self, response: str, written: str) -> tuple[int, str] | None:
        """Find the first call of ``written``, which continues ``response``, to which there is a reply.

        Returns:
            Where the call ends in ``written``, and the reply; ``None`` without such a call.
        """
        said = find_thoughts(written).masked
        end = 0
        while ends := [at + len(tag) for tag in self.closing_tags if (at := said.find(tag, end)) >= 0]:
            end = min(ends)
            reply = self.reply(response + written[:end])
            if reply is not None:
                return end, reply
        return None
