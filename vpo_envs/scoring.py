"""Score answers in this thread, or in a pool of threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numpy as np

from vpo_envs.core import RewardBatch, VectorTextEnv

ScorerPool = Literal["none", "threads"]

AnyEnv = VectorTextEnv[Any, Any, Any]

CHUNKS_PER_WORKER = 4
"""Parts per worker that a batch is cut into, so that one part with slow answers does not hold up the others."""


class Scorer(NamedTuple):
    """Scores with an environment's own methods, in parallel if there is a pool; the scores are the same."""

    pool: ScorerPool = "none"
    """``"threads"`` is for scorers that wait for a subprocess or a server."""
    workers: int | None = None
    """Size of the pool; ``None`` for a few more than there are processors."""

    def score_batch(
        self, env: AnyEnv, tasks: Sequence[Any], responses: Sequence[str], num_answers: int | None = None
    ) -> RewardBatch:
        """Score responses as :meth:`~vpo_envs.VectorTextEnv.score_batch` of ``env`` does, which raises its errors."""
        if self.pool == "none" or len(tasks) != len(responses) or not tasks:
            return env.score_batch(tasks, responses, num_answers)
        workers = self.workers or min(32, (os.cpu_count() or 1) + 4)
        size = -(-len(tasks) // (CHUNKS_PER_WORKER * workers))
        chunks = range(0, len(tasks), size)
        with ThreadPoolExecutor(workers, thread_name_prefix="scorer") as pool:
            parts = list(
                pool.map(
                    lambda at: env.score_batch(tasks[at : at + size], responses[at : at + size], num_answers), chunks
                )
            )
        rewards, status = (np.concatenate(part) for part in zip(*parts, strict=True))
        return RewardBatch(rewards, status, next((part.failure for part in parts if part.failure), ""))
