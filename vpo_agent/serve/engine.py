"""Continuous batching: one thread owns the model, and requests join the batch between tokens."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vpo_agent.policy.language_model import LMPolicy, draw
from vpo_agent.serve.decoding import make_decoder
from vpo_agent.serve.text import GrowingText

GREEDY_BELOW = 1e-4
"""Temperature under which the most likely token is taken."""

PREFILL_TOKENS = 16384
"""Most prompt tokens, padding included, that join between two tokens; a single longer prompt joins alone."""


@dataclass(frozen=True)
class Sampling:
    """How the answers to one request are drawn."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    """Tokens outside the smallest set with this probability are not drawn."""
    stop: tuple[str, ...] = ()
    keep_stop: bool = False
    seed: int | None = None
    """Of the random numbers; fresh ones where ``None``."""


@dataclass(frozen=True)
class Piece:
    """What is new in one answer."""

    index: int
    """Which answer: those to the first prompt come first."""
    text: str
    finish: Literal["stop", "length"] | None
    """Why the answer has ended; ``None`` where it has not."""
    tokens: int
    """Tokens drawn so far, the end-of-sequence token among them."""


@dataclass(eq=False)
class Request:
    """Prompts and what is wanted of them."""

    prompts: Sequence[Sequence[int]]
    n: int
    sampling: Sampling
    deliver: Callable[[Piece | Exception], None]
    """Called by the engine's thread, for each answer at its end; in a stream, whenever there is new text."""
    stream: bool = False
    continues: bool = False
    """Whether an answer's text is to continue that of its prompt, its leading space included."""
    cancelled: bool = False
    _joined: int = field(default=0, repr=False)

    @property
    def answers(self) -> int:
        """How many answers are wanted in all."""
        return self.n * len(self.prompts)


class Busy(RuntimeError):
    """More answers are waiting than the engine takes."""


class Stopped(RuntimeError):
    """The engine has been closed."""


class Engine:
    """Answers requests with one policy, as many at a time as there is room for.

    An answer depends on its prompt, the sampling and the seed, not on what else is in the batch, up to the rounding of
    the model's arithmetic, which may depend on the shape of the batch.

    Args:
        policy: Its model must not be used or changed by anything else until the engine is closed.
        max_rows: Most answers that are decoded together.
        max_waiting: Most answers that wait for a place.
    """

    def __init__(self, policy: LMPolicy, *, max_rows: int = 64, max_waiting: int = 1024) -> None:
        self.policy = policy
        self.max_rows = max_rows
        self.max_waiting = max_waiting
        self._changed = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._closing = False
        self._fresh_seeds = np.random.SeedSequence()
        self._ending = frozenset(policy._end_tokens())
        self._rows: list[_Row] = []
        self._logits = torch.empty(0, 0)
        self._decoder = make_decoder(policy)
        self._thread = threading.Thread(target=self._run, name="vpo-serve-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Put a request into the queue; its ``deliver`` is called with the answers, or once with what went wrong.

        Raises:
            Busy: Too many answers are waiting.
            Stopped: The engine has been closed.
        """
        with self._changed:
            if self._closing:
                raise Stopped("the server is shutting down")
            if self.waiting and self.waiting + request.answers > self.max_waiting:
                raise Busy(f"{self.waiting} answers are waiting, of at most {self.max_waiting}: try again later")
            self._waiting.append(request)
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        """Drop what is left of a request; nothing more is delivered."""
        with self._changed:
            request.cancelled = True
            if request in self._waiting:
                self._waiting.remove(request)

    def close(self, *, wait: bool = True) -> None:
        """Fail what is running or waiting with :class:`Stopped`, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if wait:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether requests are taken and answered."""
        return self._thread.is_alive() and not self._closing

    @property
    def waiting(self) -> int:
        """Answers without a place in the batch."""
        with self._changed:
            return sum(request.answers - request._joined for request in self._waiting)

    @property
    def running(self) -> int:
        """Answers in the batch."""
        return len(self._rows)

    # The thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self.policy.model.eval()
        while True:
            with self._changed:
                while not (self._waiting or self._rows or self._closing):
                    self._changed.wait()
                if self._closing:
                    self._fail(Stopped("the server is shutting down"), everything=True)
                    return
            try:
                with torch.no_grad():
                    self._advance()
            # Out of memory, or a bug: those in flight are told, and the next ones are served.
            except Exception as error:
                with self._changed:
                    self._fail(error)

    def _advance(self) -> None:
        """Let rows join and draw a token for each."""
        self._remove({i for i, row in enumerate(self._rows) if row.request.cancelled})
        self._join()
        if not self._rows:
            return
        tokens = draw_tokens(self._logits, [row.request.sampling for row in self._rows], [r.rng for r in self._rows])
        drawn = zip(self._rows, tokens.tolist(), strict=True)
        ended = {i for i, (row, token) in enumerate(drawn) if self._take(row, token)}
        if ended:
            kept = self._remove(ended)
            tokens = tokens[torch.tensor(kept, dtype=torch.long, device=tokens.device)]
        if self._rows:
            self._logits = self._decoder.step(tokens)

    def _join(self) -> None:
        """Move requests from the queue into the batch, as many as there is room for."""
        prompts: list[Sequence[int]] = []
        copies: list[int] = []
        rows: list[_Row] = []
        with self._changed:
            while self._waiting and self._decoder.open and len(self._rows) + len(rows) < self.max_rows:
                request = self._waiting[0]
                which, first = divmod(request._joined, request.n)
                prompt = request.prompts[which]
                padded = max(map(len, [*prompts, prompt])) * (len(prompts) + 1)
                if prompts and padded > PREFILL_TOKENS:
                    break
                count = min(request.n - first, self.max_rows - len(self._rows) - len(rows))
                prompts.append(prompt)
                copies.append(count)
                rows += [self._new_row(request, which, place) for place in range(first, first + count)]
                request._joined += count
                if request._joined == request.answers:
                    self._waiting.popleft()
        if rows:
            # Known as running before the model is asked, so that they hear of it where it fails.
            self._rows += rows
            logits = self._decoder.join(prompts, copies)
            self._logits = torch.cat([self._logits, logits]) if len(self._logits) else logits

    def _new_row(self, request: Request, which: int, place: int) -> _Row:
        sampling, prompt = request.sampling, request.prompts[which]
        seed = self._fresh_seeds.spawn(1)[0]
        if sampling.seed is not None:
            seed = np.random.SeedSequence([sampling.seed % 2**64, place])
        before = prompt if request.continues else ()
        text = GrowingText(self.policy.tokenizer, before, sampling.stop, sampling.keep_stop)
        return _Row(request, which * request.n + place, np.random.Generator(np.random.Philox(seed)), text)

    def _take(self, row: _Row, token: int) -> bool:
        """Give a row its next token, deliver what is new, and say whether the row has ended."""
        sampling, text = row.request.sampling, row.text
        row.tokens += 1
        finish: Literal["stop", "length"] | None = None
        if token in self._ending:
            finish = "stop"
        else:
            row.pending.append(token)
            finish = "length" if row.tokens == sampling.max_tokens else None
        # Without stop strings or a stream the text is needed at the end alone.
        if finish or sampling.stop or row.request.stream:
            text.push(*row.pending)
            row.pending.clear()
        if finish:
            text.finish()
        if text.stopped:
            finish = "stop"
        piece = text.release(last=finish is not None) if finish or row.request.stream else ""
        if finish or piece:
            row.request.deliver(Piece(row.index, piece, finish, row.tokens))
        return finish is not None

    def _remove(self, rows: set[int]) -> list[int]:
        """Remove rows; the former places of those that stay."""
        if not rows:
            return list(range(len(self._rows)))
        order = self._decoder.leave(rows)
        self._rows = [self._rows[i] for i in order]
        self._logits = self._logits[torch.tensor(order, dtype=torch.long, device=self._logits.device)]
        return order

    def _fail(self, error: Exception, *, everything: bool = False) -> None:
        """Tell the requests in flight what went wrong, and start with an empty batch."""
        failed = {row.request for row in self._rows}
        if everything:
            failed.update(self._waiting)
        self._waiting = deque(request for request in self._waiting if request not in failed)
        for request in failed:
            if not request.cancelled:
                request.cancelled = True
                request.deliver(error)
        self._rows = []
        self._logits = torch.empty(0, 0)
        self._decoder = make_decoder(self.policy)


@dataclass(eq=False)
class _Row:
    """An answer in the batch."""

    request: Request
    index: int
    rng: np.random.Generator
    text: GrowingText
    tokens: int = 0
    pending: list[int] = field(default_factory=list)
    """Tokens that are not part of the text yet."""


def draw_tokens(logits: Tensor, settings: Sequence[Sampling], rngs: Sequence[np.random.Generator]) -> Tensor:
    """Draw one token per row, (rows,), from logits (rows, vocabulary), each row with its own settings and numbers."""
    device = logits.device
    uniforms = torch.tensor([rng.random(dtype=np.float32) for rng in rngs], device=device)
    greedy = torch.tensor([s.temperature < GREEDY_BELOW for s in settings], device=device)
    temperatures = torch.tensor([max(s.temperature, GREEDY_BELOW) for s in settings], device=device)
    probs = torch.softmax(logits.float() / temperatures[:, None], dim=-1)
    if any(s.top_p < 1 for s in settings):
        probs = _nucleus(probs, torch.tensor([s.top_p for s in settings], device=device))
    return torch.where(greedy, logits.argmax(-1), draw(probs, uniforms))


def _nucleus(probs: Tensor, top_p: Tensor) -> Tensor:
    """Probabilities with those outside the smallest set of probability ``top_p`` (rows,) at 0; they sum to less than 1.

    A token belongs to the set where the more likely ones do not reach ``top_p`` yet (Holtzman et al., 2020).
    """
    ordered, places = probs.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    outside = (before >= top_p[:, None]) & (top_p < 1)[:, None]
    outside[:, 0] = False
    return probs.masked_fill(outside.gather(-1, places.argsort(-1)), 0.0)
