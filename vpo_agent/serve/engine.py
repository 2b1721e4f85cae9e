"""Continuous batching: one thread owns the model, and requests join the batch between tokens."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from vpo_agent.policy.decoding import Row, uniform_numbers
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.serve.text import GrowingText
from vpo_envs.wording import counted

PREFILL_TOKENS = 16384
"""Maximum number of prompt tokens, including padding, that join the batch at once; a longer prompt joins alone."""


@dataclass(frozen=True)
class Piece:
    """New text of one answer."""

    index: int
    """Number of the answer; the answers to the first prompt come first."""
    text: str
    finish: Literal["stop", "length"] | None
    """Why the answer has ended; ``None`` while it continues."""
    tokens: int
    """Tokens sampled so far, including the end-of-sequence token."""


@dataclass(eq=False)
class Request:
    """A request for ``n`` answers to each prompt."""

    prompts: Sequence[Sequence[int]]
    n: int
    deliver: Callable[[Piece | Exception], None]
    """Called from the engine's thread when an answer ends or, in a stream, has new text."""
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    """Only tokens of the smallest set with this probability are drawn."""
    stop: Sequence[str] = ()
    keep_stop: bool = False
    seed: int | None = None
    """Seed of the random numbers; ``None``: a new one each time."""
    stream: bool = False
    continues: bool = False
    """Whether an answer continues the prompt's text and keeps its leading space."""
    cancelled: bool = False

    @property
    def answers(self) -> int:
        """Total number of answers."""
        return self.n * len(self.prompts)


class Busy(RuntimeError):
    """The queue is full."""


class Stopped(RuntimeError):
    """The engine has been closed."""


class Engine:
    """Samples the answers to all requests in one batch of one policy.

    An answer depends on its prompt, settings and seed, not on the rest of the batch, up to the rounding of the model's
    arithmetic, which may differ between batches of different shapes.

    Args:
        policy: Nothing else may use or change its model until the engine is closed.
        max_rows: Most answers in the batch.
        max_waiting: Most answers in the queue.
    """

    def __init__(self, policy: LMPolicy, *, max_rows: int = 64, max_waiting: int = 1024) -> None:
        self.policy = policy
        self.max_rows = max_rows
        self.max_waiting = max_waiting
        self._changed = threading.Condition()
        self._waiting: deque[_Answer] = deque()
        self._closing = False
        self._fresh_seeds = np.random.SeedSequence()
        self._decoder = policy.decoder()
        self._answers: list[_Answer] = []
        """The answers in the batch."""
        self._thread = threading.Thread(target=self._run, name="vpo-serve-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request; its ``deliver`` is called with the answers, or once with an error.

        Raises:
            Busy: Too many answers are waiting.
            Stopped: The engine has been closed.
        """
        with self._changed:
            if self._closing:
                raise Stopped("the server is shutting down")
            if self.waiting and self.waiting + request.answers > self.max_waiting:
                waiting = counted(self.waiting, "waiting answer")
                raise Busy(f"the queue has {waiting}, of at most {self.max_waiting}: try again later")
            for index, seed in enumerate(self._fresh_seeds.spawn(request.answers)):
                self._waiting.append(_Answer(request, index, self.policy.tokenizer, seed))
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        """Drop the unfinished answers of a request without delivering more."""
        with self._changed:
            request.cancelled = True
            self._waiting = deque(answer for answer in self._waiting if answer.request is not request)

    def close(self, *, wait: bool = True) -> None:
        """Fail all requests with :class:`Stopped` and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if wait:
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether requests are being answered."""
        return self._thread.is_alive() and not self._closing

    @property
    def waiting(self) -> int:
        """Number of answers in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of answers in the batch."""
        return len(self._answers)

    def _run(self) -> None:
        self.policy.model.eval()
        while True:
            with self._changed:
                while not (self._waiting or self._answers or self._closing):
                    self._changed.wait()
                if self._closing:
                    self._fail(Stopped("the server is shutting down"), everything=True)
                    return
            try:
                with torch.no_grad():
                    self._advance()
            # Out of memory, or a bug: the requests in the batch fail, and the next ones are served.
            except Exception as error:
                with self._changed:
                    self._fail(error)

    def _advance(self) -> None:
        """Let answers join the batch, sample a token for each, and deliver new text."""
        for answer in self._answers:
            if answer.request.cancelled:
                answer.finish = "stop"
        self._answers = [answer for answer in self._answers if not answer.finish]
        self._join()
        self._decoder.step()
        for answer in self._answers:
            answer.deliver()
        self._answers = [answer for answer in self._answers if not answer.finish]

    def _join(self) -> None:
        """Move as many answers from the queue into the batch as fit."""
        prompts: list[Sequence[int]] = []
        which: list[int] = []
        joining: list[_Answer] = []
        with self._changed:
            while self._waiting and self._decoder.open and len(self._answers) + len(joining) < self.max_rows:
                prompt = self._waiting[0].prompt
                if not prompts or prompt is not prompts[-1]:
                    padded = max(map(len, [*prompts, prompt])) * (len(prompts) + 1)
                    if prompts and padded > PREFILL_TOKENS:
                        break
                    prompts.append(prompt)
                which.append(len(prompts) - 1)
                joining.append(self._waiting.popleft())
        if joining:
            # Added before the model runs, so that its failure is delivered to them.
            self._answers += joining
            model = self.policy.cached_model
            self._decoder.join(model.read(*model.pad(prompts)), which, joining)

    def _fail(self, error: Exception, *, everything: bool = False) -> None:
        """Deliver an error to the requests in the batch and empty the batch."""
        failed = {answer.request for answer in [*self._answers, *(self._waiting if everything else ())]}
        self._waiting = deque(answer for answer in self._waiting if answer.request not in failed)
        for request in failed:
            if not request.cancelled:
                request.cancelled = True
                request.deliver(error)
        self._answers = []
        self._decoder = self.policy.decoder()


class _Answer(Row):
    """An answer in the batch, with the text of its tokens."""

    def __init__(self, request: Request, index: int, tokenizer: Any, seed: np.random.SeedSequence) -> None:
        if request.seed is not None:
            seed = np.random.SeedSequence([request.seed % 2**64, index % request.n])
        super().__init__(request.max_tokens, uniform_numbers(seed), request.temperature, request.top_p, self._stops)
        self.request = request
        self._index = index
        self.prompt = request.prompts[index // request.n]
        before = self.prompt if request.continues else ()
        self._text = GrowingText(tokenizer, before, request.stop, request.keep_stop)
        # Without stop strings or a stream, text is only needed at the end.
        self._follows = bool(request.stop) or request.stream
        self._read = 0

    def deliver(self) -> None:
        """Deliver new text, or the whole answer when it ends."""
        if self.finish:
            if not self._text.stopped:
                # An end-of-sequence token has no text.
                self._text.push(*self.tokens[self._read : len(self.tokens) - (self.finish == "stop")], last=True)
            if self._text.stopped:
                self.finish = "stop"
        elif not self.request.stream:
            return
        piece = self._text.release(last=self.finish is not None)
        if self.finish or piece:
            self.request.deliver(Piece(self._index, piece, self.finish, len(self.tokens)))

    def _stops(self, tokens: list[int]) -> bool:
        if self._follows:
            self._text.push(*tokens[self._read :])
            self._read = len(tokens)
        return self._text.stopped
