"""Score answers in this thread, or in several."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from vpo_envs.core import AnyEnv, RewardBatch

CHUNKS_PER_THREAD = 4
"""Parts per thread that a batch is cut into, so that one part with slow answers does not hold up the others."""


def score_batch(
    env: AnyEnv, tasks: Sequence[Any], responses: Sequence[str], num_answers: int | None = None, *, threads: int = 0
) -> RewardBatch:
    """Score responses as :meth:`~vpo_envs.VectorTextEnv.score_batch` of ``env`` does, which raises its errors.

    With several ``threads`` the scores are the same; they are for scorers that wait for a subprocess or a server.
    """
    if not threads or len(tasks) != len(responses) or not tasks:
        return env.score_batch(tasks, responses, num_answers)
    size = -(-len(tasks) // (CHUNKS_PER_THREAD * threads))
    chunks = [slice(at, at + size) for at in range(0, len(tasks), size)]
    with ThreadPoolExecutor(threads, thread_name_prefix="scorer") as pool:
        parts = list(pool.map(lambda part: env.score_batch(tasks[part], responses[part], num_answers), chunks))
    rewards, status = (np.concatenate(part) for part in zip(*parts, strict=True))
    return RewardBatch(rewards, status, next((part.failure for part in parts if part.failure), ""))
