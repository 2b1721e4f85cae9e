"""Pools of answers for the tests: made of random numbers, with no model."""

from __future__ import annotations

import numpy as np

from vpo_agent.pool import Pool
from vpo_envs import Status

N, R, M, D = 3, 4, 2, 3


def random_pool(seed: int = 0, *, rollouts: int = R, answers: int = M, fronts: bool = True) -> Pool:
    """A pool in which the second prompt has an inactive objective and some answers are marked."""
    rng = np.random.default_rng(seed)
    active = np.ones((N, D), dtype=bool)
    active[1, 2] = False
    weights = rng.dirichlet(np.ones(D), size=N) * active
    status = rng.choice(
        [Status.OK, Status.OK, Status.MISSING, Status.UNPARSABLE, Status.DUPLICATE], (N, rollouts, answers)
    )
    return Pool(
        rewards=rng.random((N, rollouts, answers, D)).astype(np.float32),
        status=status.astype(np.int8),
        active=active,
        scalar_weights=weights / weights.sum(axis=1, keepdims=True),
        indices=np.arange(N),
        objectives=("gold", "silver", "bronze"),
        fronts=tuple(1 + rng.random((count, D)) for count in (1, 2, 3)) if fronts else None,
    )
