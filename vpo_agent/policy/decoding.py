"""The sampling loop: rows join, get one token at a time, and leave when they have ended.

Training, search and serving all sample with it. Each row has its own random numbers and settings, so its tokens depend
on its prompt and numbers, not on other rows, up to the rounding of the model's arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vpo_agent.policy.cached_model import Prompts
from vpo_agent.policy.chat import read_tokens
from vpo_agent.policy.row_cache import RowCache
from vpo_envs.common.thoughts import find_thoughts

GREEDY_BELOW = 1e-4
"""Below this temperature a row takes the most likely token."""
LOOK_EVERY_GPU = 8
"""Tokens that a GPU samples before the host looks at them, for which it must wait until the GPU has finished.

Rows that have ended in the meantime are sampled on for nothing. Neither cost was measured on a GPU.
"""


@dataclass(eq=False)
class Row:
    """A response that is being sampled."""

    limit: int
    """Maximum number of tokens."""
    uniforms: Iterator[float]
    """Random numbers in [0, 1), one for each token."""
    temperature: float = 1.0
    """Divides the logits, >= 0."""
    top_p: float = 1.0
    """Only tokens of the smallest set with this probability are drawn."""
    stop: Callable[[list[int]], bool] = lambda tokens: False
    """Whether the row ends with the last of these tokens; called after each except an end-of-sequence token."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    """Log-probability of each token under the tempered distribution."""
    finish_reason: Literal["stop", "length"] | None = None
    """Why the row has ended."""


class ClosingTag:
    """A stop rule: the row's text holds a closing tag, such as ``</answer>``, of one or several tokens.

    Args:
        tokenizer: Decodes the tokens in question.
        closing: The tag; its last character occurs in it once.
        texts: The text of each token of the model's vocabulary by itself; special tokens that are no text have none.
        turn_end: Text that ends a turn if no single token does; empty without.
        opened: The mark of thoughts with which every response begins, though the model does not write it.
    """

    def __init__(
        self, tokenizer: Any, closing: str, texts: Sequence[str], *, turn_end: str = "", opened: str = ""
    ) -> None:
        self._tokenizer, self._closing, self._turn_end, self._opened = tokenizer, closing, turn_end, opened
        endings = [closing, *([turn_end] if turn_end else [])]
        # Each token of an ending holds at least one of its characters.
        self._window = max(map(len, endings))
        self.last_tokens = frozenset(
            token
            for ending in endings
            for token, text in enumerate(texts)
            for place in re.finditer(re.escape(ending[-1]), text)
            if ending.endswith(text[: place.end()]) or ending in text
        )
        """The tokens that an ending may end within; text is decoded only after these."""

    def __call__(self, tokens: Sequence[int], beginning: Sequence[int] = ()) -> bool:
        """Whether the last token completes the tag outside thoughts, or the end of a turn.

        Args:
            tokens: All tokens of a response so far, or the tokens after ``beginning``.
            beginning: The tokens before them.
        """
        if tokens[-1] not in self.last_tokens:
            return False
        (tail,) = read_tokens(self._tokenizer, [tokens[-self._window :]])
        if self._turn_end and self._turn_end in tail:
            return True
        if self._closing not in tail:
            return False
        (text,) = read_tokens(self._tokenizer, [[*beginning, *tokens]])
        return self._closing in find_thoughts(self._opened + text).masked[-len(tail) - 1 :]


class Decoder:
    """Samples tokens for the rows in a model's cache, all rows at a time."""

    def __init__(self, rows: RowCache, ending: Iterable[int], *, look_every: int = 1) -> None:
        self.rows: list[Row] = []
        self._cache = rows
        self._ending = frozenset(ending)
        self._look_every = look_every
        self._logits = torch.empty(0)
        self._tokens: Tensor | None = None
        """The last token of each row until the model has read it."""

    @property
    def open(self) -> bool:
        """Whether rows may join now."""
        return self._cache.open or all(row.finish_reason for row in self.rows)

    def join(self, prompts: Prompts, which: Sequence[int], rows: Sequence[Row]) -> None:
        """Add rows, each with the index of the prompt that it continues."""
        self._advance(drop_all=True)
        running = len(self.rows)
        self.rows += rows
        logits = self._cache.join(prompts, which)
        self._logits = torch.cat([self._logits, logits]) if running else logits
        self._read_settings()

    def run(self, on_tokens: Callable[[int], None] | None = None) -> None:
        """Sample until every row has ended; ``on_tokens`` is called with the tokens so far of a row that still runs."""
        while running := self.step(self._look_every):
            if on_tokens is not None:
                on_tokens(len(running[0].tokens))

    @torch.no_grad()
    def step(self, most: int = 1) -> list[Row]:
        """Sample up to ``most`` tokens for each row that has not ended, and return those rows."""
        self._advance()
        running = [row for row in self.rows if not row.finish_reason]
        if not running:
            return running
        count = min(most, max(row.limit - len(row.tokens) for row in running))
        uniforms = self._uniforms(count)
        drawn = []
        for uniforms_of_token in uniforms:
            if self._tokens is not None:
                self._logits = self._cache.append(self._tokens)
            self._tokens, log_probs = self._draw(uniforms_of_token)
            drawn.append(torch.stack([self._tokens.double(), log_probs.double()]))
        # The only place where the host waits for the device; one copy, in a format that holds both.
        for tokens, log_probs in torch.stack(drawn).tolist():
            for row, token, log_prob in zip(self.rows, tokens, log_probs, strict=True):
                if row.finish_reason:
                    continue
                row.tokens.append(int(token))
                row.log_probs.append(log_prob)
                if token in self._ending or row.stop(row.tokens):
                    row.finish_reason = "stop"
                elif len(row.tokens) == row.limit:
                    row.finish_reason = "length"
        return running

    @torch.no_grad()
    def _advance(self, *, drop_all: bool = False) -> None:
        """Remove ended rows if there are enough or ``drop_all``, and let the model read the last tokens."""
        rows = self.rows
        ended = sum(row.finish_reason is not None for row in rows)
        if ended and (drop_all or ended == len(rows) or ended * self._cache.leaving_share >= len(rows)):
            # The last rows take the places of those that leave, so that little is copied.
            stay = len(rows) - ended
            last = (place for place in range(stay, len(rows)) if not rows[place].finish_reason)
            order = [next(last) if rows[place].finish_reason else place for place in range(stay)]
            self._cache.keep(order)
            self.rows = [rows[place] for place in order]
            if self._tokens is not None:
                stayed = torch.tensor(order, dtype=torch.long).to(self._logits.device, non_blocking=True)
                self._tokens = self._tokens[stayed]
            self._read_settings()
        if self._tokens is not None and self.rows:
            self._logits = self._cache.append(self._tokens)
        self._tokens = None

    def _read_settings(self) -> None:
        """Store the settings of the rows as tensors, (rows, 1), or as ``None`` if no row differs from the default."""
        settings: list[Tensor | None] = []
        for values, default in (
            ([max(row.temperature, GREEDY_BELOW) for row in self.rows], 1.0),
            ([row.temperature < GREEDY_BELOW for row in self.rows], False),
            ([row.top_p for row in self.rows], 1.0),
        ):
            if all(value == default for value in values):
                settings.append(None)
            else:
                settings.append(torch.tensor(values).to(self._logits.device, non_blocking=True)[:, None])
        self._temperatures, self._greedy, self._top_p = settings

    def _uniforms(self, count: int) -> Tensor:
        """The next ``count`` random numbers of each row, (count, rows); 0 beyond its end."""
        numbers = np.zeros((count, len(self.rows)), np.float32)
        for column, row in enumerate(self.rows):
            if not row.finish_reason:
                left = min(count, row.limit - len(row.tokens))
                numbers[:left, column] = list(islice(row.uniforms, left))
        return torch.from_numpy(numbers).to(self._logits.device, non_blocking=True)

    def _draw(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """A token for each row by its random number, (rows,), and its log-probability, (rows,) both."""
        # In float32 whatever the model computes in: bfloat16 would round probabilities to 8 bits.
        logits = self._logits.float()
        probs = torch.softmax(logits if self._temperatures is None else logits / self._temperatures, dim=-1)
        if self._top_p is not None:
            probs = nucleus(probs, self._top_p)
        tokens = draw(probs, uniforms)
        if self._greedy is not None:
            tokens = torch.where(self._greedy[:, 0], logits.argmax(-1), tokens)
        # Rounding can choose a token whose probability is 0 in float32.
        return tokens, probs.gather(1, tokens[:, None])[:, 0].clamp_min(torch.finfo(torch.float32).tiny).log()


def uniform_numbers(seed: np.random.SeedSequence) -> Iterator[float]:
    """Generate the random numbers of one row, without end."""
    rng = np.random.Generator(np.random.Philox(seed))
    while True:
        yield from rng.random(64, dtype=np.float32)


def uniforms_of(places: Sequence[int], rollouts: int, length: int, seed: Sequence[int]) -> np.ndarray:
    """Return random numbers (P * rollouts, length), for each place its part of one stream keyed by ``seed``."""
    key, size = np.random.SeedSequence(list(seed)), rollouts * length
    numbers = np.empty((len(places), size), dtype=np.float32)
    for prompt, place in enumerate(places):
        # The generator moves by counters of eight numbers.
        counters, before = divmod(place * size, 8)
        rng = np.random.Generator(np.random.Philox(key).advance(counters))
        numbers[prompt] = rng.random(before + size, dtype=np.float32)[before:]
    return numbers.reshape(-1, length)


def draw(probs: Tensor, uniform: Tensor) -> Tensor:
    """Sample a token per row, (rows,), by inverting the cumulative distribution at one uniform number.

    Args:
        probs: (rows, vocabulary), of any positive sum.
        uniform: (rows,), in [0, 1).
    """
    # A GPU sums in parallel, and in float32 the result may rise where a token has no probability at all.
    exact = torch.float64 if probs.is_cuda else torch.float32
    cumulative = probs.cumsum(-1, dtype=exact)
    target = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_max(probs.shape[-1] - 1)


def nucleus(probs: Tensor, top_p: Tensor) -> Tensor:
    """Set probabilities outside the smallest set of probability ``top_p`` (rows, 1) to 0; the rest is not rescaled.

    A token belongs to the set if all more likely tokens together do not reach ``top_p`` (Holtzman et al., 2020,
    https://arxiv.org/abs/1904.09751).
    """
    ordered, places = probs.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    outside = (before >= top_p) & (top_p < 1)
    outside[:, 0] = False
    return probs.masked_fill(outside.gather(-1, places.argsort(-1)), 0.0)
