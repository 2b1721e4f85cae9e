"""A response that an endpoint writes in turns: the environment replies to its calls, and each turn is one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vpo_agent.rollouts.replies import Answer
from vpo_envs.contract.turns import Turns
from vpo_envs.text import split_turns, written_by_model


@dataclass
class Dialogue:
    """One response while an endpoint writes it; without an environment that replies it has one turn."""

    max_new_tokens: int
    """Most tokens that the model may write, over all turns."""
    turns: Turns | None = None
    """How the environment replies; ``None`` if it does not."""
    text: str = ""
    """What was written so far, with the replies."""
    answers: list[Answer] = field(default_factory=list)
    """What the endpoint sent in each turn."""
    written: int = 0
    """Tokens of :attr:`text` that the model wrote, as far as the endpoint states them."""
    is_over: bool = False
    truncated: bool = False

    @property
    def tokens_left(self) -> int:
        """Most tokens of the next turn."""
        return self.max_new_tokens - self.written

    def take(self, answer: Answer) -> None:
        """Append a turn up to its first call, with the reply to it; without a call the response has ended."""
        self.answers.append(answer)
        if self.turns is None:
            self.text = answer.text
            self._end(truncated=answer.truncated)
            return
        turn = self.turns.take(self.text, answer.text)
        self.text = turn.response
        if answer.tokens is not None:
            # What the model wrote behind a call is not part of the response.
            self.written += -(-answer.tokens * turn.end // max(1, len(written_by_model(answer.text))))
        if turn.reply is None and not (answer.awaits_reply and not turn.is_cut):
            self._end(truncated=turn.is_cut or answer.truncated)
        elif self.tokens_left < 1:
            self._end(truncated=True)

    def cut(self) -> None:
        """End the response where it is, since the endpoint takes no further turn."""
        self._end(truncated=True)

    def _end(self, *, truncated: bool) -> None:
        self.is_over, self.truncated = True, truncated

    def messages(self) -> list[dict[str, str]]:
        """Return what was written so far as messages: the model's turns, and the replies as messages of the user."""
        messages = []
        for written, reply in split_turns(self.text):
            if written or reply is not None:
                messages.append({"role": "assistant", "content": written})
            if reply is not None:
                messages.append({"role": "user", "content": reply})
        return messages

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens that were read, over all turns; ``None`` if the endpoint does not say."""
        return known_sum([answer.prompt_tokens for answer in self.answers])

    @property
    def tokens(self) -> int | None:
        """Tokens that were generated, over all turns; ``None`` if the endpoint does not say."""
        return known_sum([answer.tokens for answer in self.answers])


def known_sum(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts, ``None`` if not all are known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
