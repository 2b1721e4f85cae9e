"""Evaluation of a policy on held-out instances: a pool of answers per prompt, and what it is worth to a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.estimators.weights import draw_weights, prompt_key
from vpo_agent.pareto.metrics import (
    BestAtKCurve,
    Interval,
    best_at_k,
    bootstrap_mean,
    diversity,
    paired_bootstrap,
    set_utility,
)
from vpo_agent.pareto.pool import Floats, Pool
from vpo_envs import Status, Task, UnknownFront, VectorTextEnv
from vpo_envs.preferences import in_whole_percent

if TYPE_CHECKING:
    from vpo_agent.rollouts.backends import Sampler
    from vpo_envs.scoring.scorers import Scorer

__all__ = [
    "Comparison",
    "Pool",
    "best_at_k_curve",
    "compare",
    "measures",
    "optimum",
    "sample_pool",
    "table",
]

REPORT_WEIGHTS = 1024
"""Weight vectors behind every reported utility; the same ones for every prompt, method and step."""
BEST_AT = (1, 3, 10, 30)


def sample_pool(
    env: VectorTextEnv[Any, Any, Any],
    sampler: Sampler,
    indices: Sequence[int],
    *,
    rollouts: int,
    max_new_tokens: int,
    temperature: float,
    seed: Sequence[int],
    sample_batch: int = 1024,
    fronts: bool = True,
    scalar_weights: Sequence[float] | None = None,
    state_weights: bool = False,
    source: Mapping[str, Any] | None = None,
    scorer: Scorer | None = None,
) -> Pool:
    """Sample and score ``rollouts`` responses to each of the environment's instances ``indices``.

    Args:
        env: The environment, on the split to evaluate.
        sampler: What samples, a policy or another backend.
        indices: Which instances, N of them.
        rollouts: R, responses to each.
        max_new_tokens: Longest response, in tokens.
        temperature: Of the sampling.
        seed: Numbers that key the random stream.
        sample_batch: Most responses in flight at one time.
        fronts: Whether to solve each instance for its exact front, where the environment can.
        scalar_weights: Fixed weights of the scalar reward, (d,); the task's own where ``None``.
        state_weights: State a weighting of the objectives in each prompt, another one for each rollout, as a policy
            trained with ``goal_conditioned`` expects; uniform on the simplex, the same for every policy.
        source: More of what :attr:`Pool.source` may hold; environment and sampling are noted anyway.
        scorer: Scores the responses with ``env``, which it must know; by default this process does.
    """
    # Torch is slow to import, and a saved pool is read without it.
    from vpo_agent.rollouts.collect import collect

    tasks = [env.task(index) for index in indices]
    rolled = collect(
        env,
        sampler,
        [task for task in tasks for _ in range(rollouts)] if state_weights else tasks,
        rollouts=1 if state_weights else rollouts,
        stated_weights=_goals(env, tasks, rollouts) if state_weights else None,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        sample_batch=sample_batch,
        scorer=scorer,
    )
    texts = rolled.samples.texts
    active = np.stack([env.active(task) for task in tasks])
    if scalar_weights is None:
        fixed = np.stack([env.fixed_weights(task) for task in tasks])
    else:
        fixed = np.asarray(scalar_weights, dtype=np.float64) * active
        fixed = fixed / fixed.sum(axis=1, keepdims=True)
    exact: tuple[Floats, ...] | None = None
    if fronts:
        try:
            exact = tuple(np.array([point.vector for point in env.front(task)], dtype=np.float64) for task in tasks)
        except UnknownFront:
            exact = None
    return Pool(
        rewards=rolled.rewards.reshape(len(tasks), rollouts, *rolled.rewards.shape[2:]),
        status=rolled.status.reshape(len(tasks), rollouts, -1),
        active=active,
        scalar_weights=fixed,
        indices=np.array(indices, dtype=np.int64),
        objectives=env.objective_names,
        fronts=exact,
        responses=tuple(tuple(texts[first : first + rollouts]) for first in range(0, len(texts), rollouts)),
        source={
            **_source(env),
            "tasks": blake2b("".join(task.content_hash() for task in tasks).encode(), digest_size=16).hexdigest(),
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            **(source or {}),
        },
    )


def _source(env: VectorTextEnv[Any, Any, Any]) -> dict[str, Any]:
    """What makes the environment again; of one that was not made by ``gym.make``, id and arguments are not known."""
    known: dict[str, Any] = {"split": env.split, "num_answers": env.num_answers}
    if env.spec is not None:
        kwargs = {name: value for name, value in env.spec.kwargs.items() if name not in (*known, "render_mode")}
        known = {"env": env.spec.id, "env_kwargs": kwargs, **known}
    return known


def measures(pool: Pool) -> dict[str, Floats]:
    """What the pool of each prompt is worth, each an array (N,).

    ``best@k`` is the expected best scalar reward w*·r of k of the pool's answers. ``expected utility`` is
    E_w[max over the answers of one rollout of w·r], averaged over rollouts; its regret is what the exact front
    exceeds it by; the same for the whole pool. ``diversity`` is the mean pairwise L1 distance of the pool's vectors.
    """
    n, rollouts, m, d = pool.rewards.shape
    rewards = pool.rewards.astype(np.float64) * pool.active[:, None, None, :]
    answers = rewards.reshape(n, rollouts * m, d)
    scalar = np.einsum("nad,nd->na", answers, pool.scalar_weights)
    out: dict[str, Floats] = {}
    for column, name in enumerate(pool.objectives):
        out[name] = answers[:, :, column].mean(axis=1)
    for k in BEST_AT:
        if k <= rollouts * m:
            out[f"best@{k}"] = best_at_k(scalar, k)
    weights = _report_weights(pool.active)
    out["expected utility"] = np.array([set_utility(rewards[i], weights[i]).mean() for i in range(n)])
    pooled = np.array([float(set_utility(answers[i], weights[i])) for i in range(n)])
    out["pool utility"] = pooled
    if pool.fronts is not None:
        ideal = np.array([float(set_utility(front, weights[i])) for i, front in enumerate(pool.fronts)])
        out["regret"] = ideal - out["expected utility"]
        out["pool regret"] = ideal - pooled
    out["diversity"] = np.array([float(diversity(answers[i], active=pool.active[i])) for i in range(n)])
    out["set diversity"] = np.array([float(np.mean(diversity(rewards[i], active=pool.active[i]))) for i in range(n)])
    flat = pool.status.reshape(n, -1)
    out["answers unreadable"] = np.isin(flat, (Status.MISSING, Status.UNPARSABLE)).mean(axis=1)
    out["answers repeated"] = (flat == Status.DUPLICATE).mean(axis=1)
    if (flat == Status.INVALID).any():
        # Their zeros are no scores, so a table with this row is to be read with care.
        out["answers without a score"] = (flat == Status.INVALID).mean(axis=1)
    return out


def optimum(pool: Pool) -> float | None:
    """Mean over prompts of the best scalar reward on the exact front; ``None`` where there is no front."""
    if pool.fronts is None:
        return None
    return float(np.mean([(front @ w).max() for front, w in zip(pool.fronts, pool.scalar_weights, strict=True)]))


def best_at_k_curve(pool: Pool, seed: int = 0) -> BestAtKCurve:
    """best@k for every k up to the size of the pool, with 95 % bootstrap bands over prompts."""
    n, rollouts, m, d = pool.rewards.shape
    scalar = np.einsum("nad,nd->na", pool.rewards.reshape(n, rollouts * m, d), pool.scalar_weights)
    ks = np.array(sorted({round(k) for k in np.geomspace(1, rollouts * m, 24)}))
    bands = [bootstrap_mean(best_at_k(scalar, int(k)), seed=seed, resamples=2000) for k in ks]
    return BestAtKCurve(
        ks, np.array([b.mean for b in bands]), np.array([b.low for b in bands]), np.array([b.high for b in bands])
    )


@dataclass(frozen=True)
class Comparison:
    """One measure before and after training, over the same prompts."""

    measure: str
    before: float
    after: float
    difference: Interval
    """After minus before, with the paired 95 % bootstrap interval over prompts."""


def compare(before: Mapping[str, Floats], after: Mapping[str, Floats], seed: int = 0) -> list[Comparison]:
    """Compare :func:`measures` of two pools over the same prompts."""
    return [
        Comparison(
            name,
            float(before[name].mean()),
            float(after[name].mean()),
            paired_bootstrap(before[name], after[name], seed=seed),
        )
        for name in before
        if name in after
    ]


def table(rows: Sequence[Comparison]) -> str:
    """The comparison as a Markdown table."""
    lines = [
        "| measure | before | after | difference | 95 % interval |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        change = row.difference
        lines.append(
            f"| {row.measure} | {row.before:.3f} | {row.after:.3f} | {change.mean:+.3f} "
            f"| [{change.low:+.3f}, {change.high:+.3f}] |"
        )
    return "\n".join(lines)


def _goals(env: VectorTextEnv[Any, Any, Any], tasks: Sequence[Task], rollouts: int) -> Floats:
    """A weighting for each rollout of each task, in whole per cent: (tasks * rollouts, d)."""
    drawn = draw_weights(
        [prompt_key(task.content_hash()) for task in tasks],
        num_objectives=env.reward_dim,
        num_weights=rollouts,
        sampler="iid",
        active=np.stack([env.active(task) for task in tasks]),
    )
    return np.stack([in_whole_percent(weights) for weights in drawn.reshape(-1, env.reward_dim)])


def _report_weights(active: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The fixed weights of every report, restricted to each prompt's active objectives: (N, K, d)."""
    keys = np.zeros(len(active), dtype=np.uint64)
    return draw_weights(keys, num_objectives=active.shape[1], num_weights=REPORT_WEIGHTS, active=active)
