"""Where responses end: the closing tag of the last answer, which may be several tokens, cut in many ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor


class ClosingTag:
    """A stop rule: the row's text holds a closing tag, such as ``</answer>``.

    Args:
        tokenizer: Decodes the tokens in question.
        closing: The tag; ``<`` is its first character alone and ``>`` its last.
        texts: The text of each token of the model's vocabulary by itself; special tokens have none.
    """

    def __init__(self, tokenizer: Any, closing: str, texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._closing = closing
        self._texts = texts
        self.most_tokens = len(closing)
        """Maximum number of tokens in a tag, since each holds at least one of its characters."""

    def __call__(self, tokens: Sequence[int]) -> bool:
        """Whether the last token completes the tag."""
        if ">" not in self._texts[tokens[-1]]:
            return False
        return self._closing in self._tokenizer.decode(tokens[-self.most_tokens :], skip_special_tokens=True)

    @cached_property
    def moves(self) -> Tensor:
        """The state after each token in each state, (states, vocabulary), int16.

        A state is how many characters of the tag the text ends with; in the last one the tag is complete. Tokens have
        the text that they have by themselves, without the space before a word in some vocabularies, so that a complete
        tag may prove to be none, but none is missed.
        """
        closing = self._closing
        found = np.zeros((len(closing) + 1, len(self._texts)), dtype=np.int16)
        for token, text in enumerate(self._texts):
            if not text:
                found[:, token] = range(len(closing) + 1)
            elif "<" in text or ">" in text or text in closing:
                found[:-1, token] = [self._after(closing[:state] + text) for state in range(len(closing))]
        found[-1] = found[0]
        return torch.from_numpy(found)

    def _after(self, text: str) -> int:
        """The state after a text that begins within the tag or before it."""
        closing = self._closing
        if closing in text:
            return len(closing)
        return next(size for size in range(len(closing) - 1, -1, -1) if text.endswith(closing[:size]))


class Matcher:
    """Follows the tags of running rows on the device, so that text is decoded only for rows that may have ended.

    The time that this saves was not measured on a GPU.
    """

    def __init__(self) -> None:
        self._rules: list[ClosingTag | None] = []
        """The stop rules so far; ``None`` stands for all that are no tags."""
        self._first: list[int] = []
        """The first state of each rule in the table of all."""
        self._table = self._complete = self._states = torch.empty(0, dtype=torch.long)

    def join(self, rules: Sequence[Callable[[list[int]], bool]], vocabulary: int, device: torch.device) -> None:
        """Add rows with these stop rules after the present ones."""
        kinds = [rule if isinstance(rule, ClosingTag) else None for rule in rules]
        for kind in dict.fromkeys(kinds):
            if kind not in self._rules:
                # A rule without a table has one state, in which any token may end the row.
                self._add(kind, torch.zeros(1, vocabulary, dtype=torch.int16) if kind is None else kind.moves, device)
        starts = torch.tensor([self._first[self._rules.index(kind)] for kind in kinds]).to(device)
        self._states = torch.cat([self._states, starts]) if len(self._states) else starts

    def keep(self, order: Tensor) -> None:
        """Keep the rows ``order``, (rows,), in this order."""
        self._states = self._states[order]

    def may_end(self, tokens: Tensor) -> Tensor:
        """Read the next token of each row, and return which rows it may have ended, (rows,)."""
        self._states = self._table[self._states, tokens].long()
        return self._complete[self._states]

    def _add(self, rule: ClosingTag | None, moves: Tensor, device: torch.device) -> None:
        first = len(self._table)
        moves, complete = (moves + first).to(device), (torch.arange(len(moves)) == len(moves) - 1).to(device)
        self._table = torch.cat([self._table, moves]) if first else moves
        self._complete = torch.cat([self._complete, complete]) if first else complete
        self._rules.append(rule)
        self._first.append(first)
