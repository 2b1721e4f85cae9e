"""Responses in which the environment replies: all of a batch write a turn, get their replies, and write on.

What was sampled is never tokenized again: the tokens of a reply are put between the tokens of two turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from vpo_agent.policy.chat import ChatFormat
from vpo_agent.policy.samples import SampleRequest, Samples
from vpo_envs.common.thoughts import find_thoughts
from vpo_envs.contract.turns import Turns
from vpo_envs.text import split_turns


@dataclass
class Conversation:
    """One response with the replies in it, while it is being sampled."""

    prompt: int
    """Index of the prompt."""
    number: int
    """Index of the response, which its random numbers go by."""
    turns: Turns
    closing: str
    """The tag that ends the response."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    trained: list[bool] = field(default_factory=list)
    """Whether the policy sampled each token."""
    text: str = ""
    """What was written so far, with the replies."""
    is_over: bool = False
    truncated: bool = False

    def end(self, *, truncated: bool) -> None:
        """End the response."""
        self.is_over, self.truncated = True, truncated

    def add(self, tokens: Sequence[int], log_probs: Sequence[float], *, trained: bool) -> None:
        """Append tokens."""
        self.tokens += tokens
        self.log_probs += log_probs
        self.trained += [trained] * len(tokens)

    def take_turn(self, turn: WrittenTurn, chat: ChatFormat, ending_ids: Collection[int]) -> None:
        """Append a turn that was sampled, and the reply to the call with which it ends."""
        self.add(turn.tokens, turn.log_probs, trained=True)
        [text] = chat.read([turn.tokens])
        taken = self.turns.take(self.text, text)
        self.text = taken.response
        has_ended = turn.tokens[-1] in ending_ids or self.closing in find_thoughts(text).masked
        if taken.reply is not None:
            tokens = reply_tokens(chat, taken.reply)
            self.add(tokens, [0.0] * len(tokens), trained=False)
        elif taken.is_cut or turn.is_cut or has_ended:
            self.end(truncated=taken.is_cut or turn.is_cut)
        # Otherwise it ends in a tag that is no call, or to which there is nothing to say: the model writes on.

    @property
    def stops(self) -> list[str]:
        """The tags that end a turn."""
        return list(dict.fromkeys([self.closing, *self.turns.closing_tags]))


class WrittenTurn(NamedTuple):
    """What a model wrote in one turn."""

    tokens: list[int]
    log_probs: list[float]
    is_cut: bool
    """Whether it ran into its limit."""


SampleTurn = Callable[[Sequence[Conversation], Sequence[int], int], list[WrittenTurn]]
"""Samples the next turn of conversations, each of at most so many tokens; the last argument is the turn's number."""


def take_turns(
    request: SampleRequest,
    prompts: tuple[Tensor, Tensor],
    sample_turn: SampleTurn,
    *,
    chat: ChatFormat,
    ending_ids: Collection[int],
    positions: int | None,
) -> Samples:
    """Sample responses turn by turn, all of them at the same time, until each has ended.

    Args:
        request: What is asked for.
        prompts: Its prompts as tokens, padded on the left, (P, Lp), and their mask.
        sample_turn: Samples a turn.
        chat: The form of the model's prompts.
        ending_ids: Tokens that end a response.
        positions: Most tokens of a prompt and its response together; ``None`` without a limit.
    """
    assert request.turns is not None
    lengths = prompts[1].sum(1).tolist()
    conversations = [
        Conversation(prompt, prompt * request.rollouts + rollout, request.turns[prompt], request.closing_tags[prompt])
        for prompt in range(len(request.prompts))
        for rollout in range(request.rollouts)
    ]
    turn = 0
    running = conversations
    while running:
        limits = []
        for conversation in running:
            limit = request.max_new_tokens - sum(conversation.trained)
            if positions is not None:
                # The last token sampled is never read, so it needs no position.
                limit = min(limit, positions + 1 - lengths[conversation.prompt] - len(conversation.tokens))
            if limit < 1:
                conversation.end(truncated=True)
            else:
                limits.append(limit)
        running = [conversation for conversation in running if not conversation.is_over]
        if running:
            for conversation, written in zip(running, sample_turn(running, limits, turn), strict=True):
                conversation.take_turn(written, chat, ending_ids)
        running = [conversation for conversation in running if not conversation.is_over]
        turn += 1
    return Samples.of(
        prompts,
        [conversation.tokens for conversation in conversations],
        [conversation.log_probs for conversation in conversations],
        [conversation.truncated for conversation in conversations],
        request.temperature,
        [conversation.text for conversation in conversations],
        [conversation.trained for conversation in conversations],
    )


def reply_tokens(chat: ChatFormat, reply: str) -> list[int]:
    """Return the tokens of a reply, with what the chat template puts around it."""
    [tokens] = chat.encode_texts([chat.reply_text(reply)])
    return tokens


def response_tokens(chat: ChatFormat, responses: Sequence[str]) -> tuple[list[list[int]], list[list[bool]]]:
    """Return the tokens of responses with replies in them, and which of them are the model's own."""
    pieces: list[str] = []
    own: list[bool] = []
    counts: list[int] = []
    for response in responses:
        before = len(pieces)
        for number, (written, reply) in enumerate(split_turns(response)):
            # A template may open thoughts before each turn.
            pieces.append(chat.closed + written if number else written)
            own.append(True)
            if reply is not None:
                pieces.append(chat.reply_text(reply))
                own.append(False)
        counts.append(len(pieces) - before)
    encoded = iter(zip(chat.encode_texts(pieces), own, strict=True))
    tokens: list[list[int]] = []
    trained: list[list[bool]] = []
    for count in counts:
        parts = list(islice(encoded, count))
        tokens.append([token for ids, _ in parts for token in ids])
        trained.append([is_own for ids, is_own in parts for _ in ids])
    return tokens, trained
