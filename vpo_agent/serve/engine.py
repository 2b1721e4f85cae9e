"""The queue in front of the one decoder: requests join its batch between two tokens."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue

import torch

from vpo_agent.policy.decoding import Row
from vpo_agent.policy.language_model import LMPolicy


class Job(Future[None]):
    """The rows that continue one prompt; done when all of them have ended."""

    def __init__(self, prompt: Sequence[int], rows: Sequence[Row]) -> None:
        super().__init__()
        self.prompt, self.rows, self.waiting = prompt, rows, deque(rows)


class Engine:
    """Samples the rows of all jobs in one batch, of at most ``most_rows``, from a thread that owns the policy's model.

    An answer depends on its prompt, settings and seed, not on the rest of the batch, up to the rounding of the model's
    arithmetic.
    """

    def __init__(self, policy: LMPolicy, most_rows: int) -> None:
        self.policy, self._most_rows = policy, most_rows
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
        """Takes jobs; ``None`` ends the engine and fails those that are not done."""
        self._decoder = policy.decoder()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        jobs: list[Job] = []
        while True:
            while not jobs or not self.queue.empty():
                job = self.queue.get()
                if job is None:
                    return _end(jobs, RuntimeError("the server is stopping"))
                jobs.append(job)
            try:
                self._advance([job for job in jobs if not job.cancelled()])
                _end(ended := [job for job in jobs if job.cancelled() or all(row.finish for row in job.rows)])
            # Out of memory, or a bug: the jobs in the batch fail, and the next ones are served.
            except Exception as error:
                self._decoder = self.policy.decoder()
                _end(ended := [job for job in jobs if len(job.waiting) < len(job.rows)], error)
            jobs = [job for job in jobs if job not in ended]

    @torch.no_grad()
    def _advance(self, jobs: Sequence[Job]) -> None:
        """Let rows of one job join the batch, and sample a token for each row."""
        first = next((job for job in jobs if job.waiting), None)
        room = self._most_rows - sum(row.finish is None for row in self._decoder.rows)
        if first is not None and self._decoder.open and room > 0:
            joining = [first.waiting.popleft() for _ in range(min(room, len(first.waiting)))]
            model = self.policy.cached_model
            self._decoder.join(model.read(*model.pad([first.prompt])), [0] * len(joining), joining)
        self._decoder.step()


def _end(jobs: Sequence[Job], error: Exception | None = None) -> None:
    for job in jobs:
        for row in job.rows:
            row.finish = row.finish or "stop"
        if job.set_running_or_notify_cancel():
            job.set_exception(error) if error else job.set_result(None)
