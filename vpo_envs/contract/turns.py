"""The turns of a response: a model calls, its environment replies, and the model writes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vpo_envs.common.thoughts import find_thoughts
from vpo_envs.text import REPLY_START, Call, calls_of, last_call, split_turns, with_reply, written_by_model


class TakenTurn(NamedTuple):
    """A response after one more turn."""

    response: str
    """The response up to the first call of the turn, with the reply to it; without a call all of it."""
    end: int
    """Characters of what the model wrote that were taken."""
    reply: str | None = None
    """The reply to the call; ``None`` without one."""
    is_cut: bool = False
    """Whether the turn makes one call too many, which gets no reply and ends the response."""


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

    def take(self, response: str, text: str) -> TakenTurn:
        """Continue a response, which holds the replies so far, with what a model wrote in one turn."""
        written = written_by_model(text)
        call = self._first_call(response, written)
        if call is None:
            return TakenTurn(response + written, len(written))
        end, reply = call
        called = response + written[:end]
        if response.count(REPLY_START) >= self.max_calls:
            return TakenTurn(called, end, is_cut=True)
        return TakenTurn(with_reply(called, reply), end, reply)

    def take_messages(self, messages: Iterable[str]) -> TakenTurn:
        """Return the response that a model's messages make, each of which goes on after the reply to the one before.

        A message without a reply is the last. Without messages the response is empty.
        """
        turn = TakenTurn("", 0)
        for text in messages:
            turn = self.take(turn.response, text)
            if turn.reply is None:
                break
        return turn

    def play(self, text: str) -> str:
        """Return what a model writes, with a reply to each of its calls."""
        response = ""
        for written, _ in split_turns(text):
            while written:
                turn = self.take(response, written)
                response, written = turn.response, written[turn.end :]
        return response

    def read(self, response: str, action: str) -> TakenTurn:
        """Continue a response, which holds the replies so far, with an action.

        The action may hold replies as well, which count if they are those that the environment gives. What follows the
        first call without its reply is not read.
        """
        for piece, claimed in split_turns(action):
            turn = self.take(response, piece)
            is_replied_to = claimed == turn.reply and not written_by_model(piece)[turn.end :].strip()
            if turn.is_cut or (turn.reply is not None and not is_replied_to):
                return turn
            response = turn.response
        return turn

    def _first_call(self, response: str, written: str) -> tuple[int, str] | None:
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
