"""What one pool is worth, prompt by prompt: every number that tables and figures show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.pareto.evaluate import measures
from vpo_agent.pareto.front_metrics import additive_epsilon, hypervolume, igd_plus
from vpo_agent.pareto.metrics import best_at_k, best_at_k_of_sets, coverage, non_dominated
from vpo_agent.pareto.pool import Floats, Pool
from vpo_envs import Status

SOLVED_WITHIN = 0.02
"""A prompt is solved by an answer whose scalar reward comes this near to the optimum of its exact front."""
ROUNDING = 1e-6
"""Rewards are kept in 32 bits, thresholds are not."""
NEAR_FRONT = 0.1
"""How much an answer may lack in every objective and still be near a point of the front."""
CURVE_POINTS = 24

Better = Literal["higher", "lower", ""]


class Measure(NamedTuple):
    """What a row of a table means."""

    group: str
    better: Better
    meaning: str


@dataclass(frozen=True)
class Summary:
    """The measures of one pool."""

    pool: Pool
    k: int
    """Largest k shown."""
    values: dict[str, Floats]
    """By name, one number per prompt, (N,)."""
    ks: NDArray[np.int_]
    """Numbers of answers, (c,)."""
    best: Floats
    """best@k over answers, (N, c)."""
    passed: Floats | None
    """pass@k over answers, (N, c); ``None`` without a threshold."""
    set_ks: NDArray[np.int_]
    """Numbers of answers that whole rollouts bring, multiples of m, (s,)."""
    best_of_sets: Floats
    """best@k with whole rollouts as the unit drawn, (N, s)."""
    optimum: Floats | None
    """The best scalar reward on the exact front, (N,)."""
    threshold: str
    """What passes, in words; empty where nothing is asked."""


def answers_of(pool: Pool) -> Floats:
    """All answers of each prompt, inactive objectives at zero, (N, R·m, d)."""
    n, rollouts, m, d = pool.rewards.shape
    masked = pool.rewards.astype(np.float64) * pool.active[:, None, None, :]
    return np.asarray(masked.reshape(n, rollouts * m, d))


def check_k(pool: Pool, k: int | None, name: str = "the pool") -> int:
    """The largest k to show: the one asked for, or all answers of the pool.

    Raises:
        ValueError: It is below 1, or more than the pool holds.
    """
    _, rollouts, m, _ = pool.rewards.shape
    if k is None:
        return int(rollouts * m)
    if not 1 <= k <= rollouts * m:
        raise ValueError(
            f"k={k} needs as many answers to each prompt, but {name} holds {rollouts * m} ({rollouts} rollouts of "
            f"{m}): choose k from 1 to {rollouts * m}, or sample more"
        )
    return k


def summarise(pool: Pool, k: int | None = None, threshold: float | None = None) -> Summary:
    """Measure a pool.

    Args:
        pool: The pool.
        k: Largest k of the curves and of the table; all answers of the pool by default.
        threshold: The scalar reward that passes. Where it is ``None`` and the exact fronts are known, what comes
            within 0.02 of the prompt's optimum passes.

    Raises:
        ValueError: ``k`` is more than the pool holds, or the threshold is not finite.
    """
    k = check_k(pool, k)
    n, rollouts, m, _ = pool.rewards.shape
    answers = answers_of(pool)
    scalar = np.einsum("nad,nd->na", answers, pool.scalar_weights)
    best_possible = None
    if pool.fronts is not None:
        pairs = zip(pool.fronts, pool.scalar_weights, strict=True)
        best_possible = np.array([float((front @ weights).max()) for front, weights in pairs])
    words, least = _threshold(threshold, best_possible, n)
    ks = np.unique(np.geomspace(1, k, CURVE_POINTS).round().astype(int))
    passes = None if least is None else (scalar >= least[:, None] - ROUNDING).astype(np.float64)
    counts = np.unique(np.geomspace(1, max(1, k // m), CURVE_POINTS).round().astype(int))
    sets = scalar.reshape(n, rollouts, m)
    return Summary(
        pool=pool,
        k=k,
        values=_values(pool, answers, scalar, passes, k),
        ks=ks,
        best=np.stack([best_at_k(scalar, int(one)) for one in ks], axis=1),
        passed=None if passes is None else np.stack([best_at_k(passes, int(one)) for one in ks], axis=1),
        set_ks=counts * m,
        best_of_sets=np.stack([best_at_k_of_sets(sets, int(count)) for count in counts], axis=1),
        optimum=best_possible,
        threshold=words,
    )


def meaning(name: str) -> Measure:
    """What the measure ``name`` of :attr:`Summary.values` says."""
    if name.startswith("best@"):
        if name.endswith("by rollouts"):
            return Measure("Search", "higher", "the same with whole rollouts as the unit drawn")
        return Measure("Search", "higher", "expected best scalar reward of k answers")
    if name.startswith("pass@"):
        return Measure("Search", "higher", "chance that one of k answers passes")
    return MEANINGS.get(name, Measure("Objectives", "higher", "mean over all answers"))


MEANINGS = {
    "expected utility": Measure("Front", "higher", "mean best w·r of one rollout, w uniform on the simplex"),
    "regret": Measure("Front", "lower", "utility of the exact front less that of one rollout"),
    "pool utility": Measure("Front", "higher", "mean best w·r of the whole pool"),
    "pool regret": Measure("Front", "lower", "utility of the exact front less that of the pool"),
    "hypervolume": Measure("Front", "higher", "share of the box from −0.1 to 1 that the pool dominates"),
    "front hypervolume": Measure("Front", "", "the same of the exact front: the most there is"),
    "coverage": Measure("Front", "higher", "share of the exact front's points that the pool attains"),
    f"coverage within {NEAR_FRONT}": Measure("Front", "higher", "the same, short by at most 0.1 in every objective"),
    "IGD+": Measure("Front", "lower", "mean distance by which the pool misses a point of the front"),
    "additive epsilon": Measure("Front", "lower", "what every reward lacks, at worst, to attain the whole front"),
    "non-dominated vectors": Measure("Spread", "higher", "distinct reward vectors that no other answer beats"),
    "diversity": Measure("Spread", "higher", "mean L1 distance between the reward vectors of the pool"),
    "set diversity": Measure("Spread", "higher", "the same within one rollout"),
    "answers unreadable": Measure("Answers", "lower", "missing or unparsable"),
    "answers repeated": Measure("Answers", "lower", "the same answer again in one rollout"),
    "answers worth zero": Measure("Answers", "lower", "readable and new, yet zero in every objective"),
    "answers timed out": Measure("Answers", "lower", "ran out of the scorer's time"),
    "answers without a score": Measure("Answers", "lower", "the scorer failed; counted as zero"),
}
GROUPS = ("Search", "Front", "Spread", "Answers", "Objectives")


def _threshold(threshold: float | None, optimum: Floats | None, prompts: int) -> tuple[str, Floats | None]:
    if threshold is not None:
        if not np.isfinite(threshold):
            raise ValueError(f"the threshold of pass@k is a finite number, got {threshold}")
        return f"a scalar reward of {threshold:g} or more", np.full(prompts, threshold)
    if optimum is not None:
        return f"a scalar reward within {SOLVED_WITHIN} of the prompt's optimum", optimum - SOLVED_WITHIN
    return "", None


def _values(pool: Pool, answers: Floats, scalar: Floats, passes: Floats | None, k: int) -> dict[str, Floats]:
    n, rollouts, m, _ = pool.rewards.shape
    common = measures(pool)
    out: dict[str, Floats] = {}
    shown = sorted({1, *(one for one in (3, 10, 30, 100) if one < k), k})
    for one in shown:
        out[f"best@{one}"] = best_at_k(scalar, one)
    if m > 1:
        for count in sorted({1, max(1, k // m)}):
            sets = scalar.reshape(n, rollouts, m)
            out[f"best@{count * m} by rollouts"] = best_at_k_of_sets(sets, count)
    if passes is not None:
        for one in shown:
            out[f"pass@{one}"] = best_at_k(passes, one)
    for name in ("expected utility", "regret", "pool utility", "pool regret"):
        if name in common:
            out[name] = common[name]
    out.update(_front_values(pool, answers))
    for name in ("diversity", "set diversity"):
        if name == "diversity" or m > 1:
            out[name] = common[name]
    status = pool.status.reshape(n, -1)
    out["answers unreadable"] = common["answers unreadable"]
    out["answers repeated"] = common["answers repeated"]
    out["answers worth zero"] = ((status == Status.OK) & (answers == 0).all(axis=2)).mean(axis=1)
    for name, code in (("answers timed out", Status.TIMED_OUT), ("answers without a score", Status.INVALID)):
        if (status == code).any():
            out[name] = (status == code).mean(axis=1)
    for column, name in enumerate(pool.objectives):
        out[name] = answers[:, :, column].mean(axis=1)
    return out


def _front_values(pool: Pool, answers: Floats) -> dict[str, Floats]:
    """Measures of each prompt's distinct non-dominated vectors, over its active objectives."""
    n = len(answers)
    rows: dict[str, list[float | None]] = {}
    for i in range(n):
        reached = answers[i][:, pool.active[i]]
        reached = reached[non_dominated(reached)]
        found: dict[str, float | None] = {"hypervolume": hypervolume(reached)}
        if pool.fronts is not None:
            front = pool.fronts[i][:, pool.active[i]]
            found["front hypervolume"] = hypervolume(front)
            found["coverage"] = coverage(front, reached)
            found[f"coverage within {NEAR_FRONT}"] = coverage(front, reached, NEAR_FRONT + ROUNDING)
            found["IGD+"] = igd_plus(front, reached)
            found["additive epsilon"] = additive_epsilon(front, reached)
        found["non-dominated vectors"] = float(len(reached))
        for name, value in found.items():
            rows.setdefault(name, []).append(value)
    # A hypervolume that takes too long on one prompt has no mean over the prompts.
    return {
        name: np.array(values, dtype=np.float64) for name, values in rows.items() if all(v is not None for v in values)
    }
