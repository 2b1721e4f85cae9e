"""The one list of measures: what a pool of answers is worth to a search, prompt by prompt.

The table that training ends with, ``vpo eval``, ``vpo compare`` and the validation rows of a run all read it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.estimators.weights import draw_weights
from vpo_agent.pareto.fronts import additive_epsilon, coverage, hypervolume, igd_plus, non_dominated
from vpo_agent.pareto.metrics import best_at_k, best_at_k_of_sets, diversity
from vpo_agent.pareto.pool import Floats, Pool, counted
from vpo_envs import Status
from vpo_envs.pareto import set_utility

REPORT_WEIGHTS = 1024
"""Weight vectors behind every utility, the same for every method and step. They are a Sobol net: against the exact
integral, single sets of up to 12 vectors in 3 to 5 objectives are off by 2e-4 (root mean square)."""
SHOWN_K = (1, 3, 10, 30, 100)
SOLVED_WITHIN = 0.02
"""An answer solves a prompt if its scalar reward comes this near to the optimum of the exact front."""
ROUNDING = 1e-6
"""Rewards are stored in 32 bits, thresholds are not."""
NEAR_FRONT = 0.1
"""By how much an answer may fall short in every objective and still be near a point of the front."""

Better = Literal["higher", "lower", ""]


class Measure(NamedTuple):
    """One measure of one pool."""

    name: str
    unit: str
    """What one value is of, such as ``"rollout of 3 answers"`` or ``"pool of 30 answers"``."""
    better: Better
    meaning: str
    headline: bool
    """Whether the table that training ends with shows it."""
    values: Floats
    """One number per prompt, (N,)."""


class _View:
    """A pool with the intermediate results that several measures share."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.rewards = pool.active_rewards()
        self.answers = self.rewards.reshape(len(self.rewards), -1, self.rewards.shape[-1])
        self.status = pool.status.reshape(len(self.rewards), -1)

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """Weight vectors on each prompt's active objectives, (N, K, d)."""
        active = self.pool.active
        keys = np.zeros(len(active), dtype=np.uint64)
        return draw_weights(keys, num_objectives=active.shape[1], num_weights=REPORT_WEIGHTS, active=active)

    @cached_property
    def rollout_utility(self) -> Floats:
        return np.array(
            [
                np.mean([set_utility(one, weights) for one in sets])
                for sets, weights in zip(self.rewards, self.weights, strict=True)
            ]
        )

    @cached_property
    def pool_utility(self) -> Floats:
        return np.array([set_utility(*both) for both in zip(self.answers, self.weights, strict=True)])

    @cached_property
    def front_utility(self) -> Floats:
        assert self.pool.fronts is not None
        return np.array([set_utility(*both) for both in zip(self.pool.fronts, self.weights, strict=True)])

    @cached_property
    def reached(self) -> list[Floats]:
        """The distinct non-dominated vectors of each prompt, over its active objectives."""
        active = [vectors[:, counts] for vectors, counts in zip(self.answers, self.pool.active, strict=True)]
        return [vectors[non_dominated(vectors)] for vectors in active]

    @cached_property
    def fronts(self) -> list[Floats]:
        """The exact front of each prompt, over its active objectives."""
        assert self.pool.fronts is not None
        return [front[:, counts] for front, counts in zip(self.pool.fronts, self.pool.active, strict=True)]

    def against_front(self, measure: Callable[[Floats, Floats], float]) -> Floats:
        return np.array([measure(*both) for both in zip(self.fronts, self.reached, strict=True)])

    def share(self, *codes: Status) -> Floats:
        """The share of each prompt's answers with one of the statuses."""
        return np.asarray(np.isin(self.status, codes).mean(axis=1))


class _Definition(NamedTuple):
    name: str
    unit: Literal["rollout", "pool", "answer"]
    better: Better
    meaning: str
    function: Callable[[_View], Floats | None]
    """``None``: the measure is unknown for this pool and left out."""
    headline: bool = False
    needs_front: bool = False


def _volumes(sets: list[Floats]) -> Floats | None:
    """Their hypervolumes; ``None`` where one takes too long, since a mean over the other prompts would mislead."""
    found = [hypervolume(vectors) for vectors in sets]
    return None if None in found else np.array(found, dtype=np.float64)


def _share_if_any(code: Status) -> Callable[[_View], Floats | None]:
    return lambda view: view.share(code) if (view.status == code).any() else None


DEFINITIONS = (
    _Definition(
        "expected utility",
        "rollout",
        "higher",
        "best w·r of the answers, averaged over weights w uniform on the simplex",
        lambda view: view.rollout_utility,
        headline=True,
    ),
    _Definition(
        "regret",
        "rollout",
        "lower",
        "utility of the exact front minus expected utility",
        lambda view: view.front_utility - view.rollout_utility,
        headline=True,
        needs_front=True,
    ),
    _Definition(
        "pool utility",
        "pool",
        "higher",
        "expected utility of all answers together",
        lambda view: view.pool_utility,
        headline=True,
    ),
    _Definition(
        "pool regret",
        "pool",
        "lower",
        "utility of the exact front minus pool utility",
        lambda view: view.front_utility - view.pool_utility,
        headline=True,
        needs_front=True,
    ),
    _Definition(
        "hypervolume",
        "pool",
        "higher",
        "share of the box from −0.1 to 1 that the answers dominate",
        lambda view: _volumes(view.reached),
        headline=True,
    ),
    _Definition(
        "front hypervolume",
        "pool",
        "",
        "hypervolume of the exact front, the highest possible",
        lambda view: _volumes(view.fronts),
        needs_front=True,
    ),
    _Definition(
        "coverage",
        "pool",
        "higher",
        "share of the exact front's points that the answers attain",
        lambda view: view.against_front(coverage),
        headline=True,
        needs_front=True,
    ),
    _Definition(
        f"coverage within {NEAR_FRONT}",
        "pool",
        "higher",
        f"the same, if an answer may fall short by {NEAR_FRONT} in every objective",
        lambda view: view.against_front(lambda front, reached: coverage(front, reached, NEAR_FRONT + ROUNDING)),
        needs_front=True,
    ),
    _Definition(
        "IGD+",
        "pool",
        "lower",
        "mean distance by which the answers miss a point of the exact front",
        lambda view: view.against_front(igd_plus),
        headline=True,
        needs_front=True,
    ),
    _Definition(
        "additive epsilon",
        "pool",
        "lower",
        "what every reward would have to gain to attain the whole front",
        lambda view: view.against_front(additive_epsilon),
        needs_front=True,
    ),
    _Definition(
        "non-dominated vectors",
        "pool",
        "higher",
        "distinct reward vectors that no other answer dominates",
        lambda view: np.array([float(len(vectors)) for vectors in view.reached]),
    ),
    _Definition(
        "diversity",
        "pool",
        "higher",
        "mean L1 distance between reward vectors",
        lambda view: diversity(view.answers),
        headline=True,
    ),
    _Definition(
        "set diversity",
        "rollout",
        "higher",
        "mean L1 distance between the reward vectors of one rollout",
        lambda view: diversity(view.rewards).mean(axis=1) if view.rewards.shape[2] > 1 else None,
        headline=True,
    ),
    _Definition(
        "answers unreadable",
        "answer",
        "lower",
        "share that is missing or unparsable",
        lambda view: view.share(Status.MISSING, Status.UNPARSABLE),
        headline=True,
    ),
    _Definition(
        "answers repeated",
        "answer",
        "lower",
        "share that repeats an answer of the same rollout",
        lambda view: view.share(Status.DUPLICATE),
        headline=True,
    ),
    _Definition(
        "answers worth zero",
        "answer",
        "lower",
        "share that is readable and new, yet zero in every objective",
        lambda view: ((view.status == Status.OK) & (view.answers == 0).all(axis=2)).mean(axis=1),
    ),
    _Definition(
        "answers timed out",
        "answer",
        "lower",
        "share that exceeded the scorer's time limit",
        _share_if_any(Status.TIMED_OUT),
        headline=True,
    ),
    _Definition(
        "answers without a score",
        "answer",
        "lower",
        "share whose scorer failed; counted as zero",
        _share_if_any(Status.INVALID),
        headline=True,
    ),
)


def measures(pool: Pool, k: int | None = None, threshold: float | None = None) -> list[Measure]:
    """Measure a pool.

    Args:
        pool: N prompts with R rollouts of m answers each.
        k: Largest k of best@k and pass@k; all answers of the pool by default.
        threshold: The scalar reward that passes, for pass@k. Where it is ``None`` and exact fronts are known, an answer
            passes within 0.02 of the prompt's optimum.

    Returns:
        The measures in the order of tables: search, front, spread, answers, then the mean of each objective.

    Raises:
        ValueError: ``k`` exceeds the number of answers, or the threshold is not finite.
    """
    view = _View(pool)
    _, size, m, _ = pool.rewards.shape
    units = {"answer": "answer", "rollout": f"rollout of {counted(m, 'answer')}"}
    units["pool"] = f"pool of {counted(size * m, 'answer')}"
    found = _search(pool, check_k(pool, k), passes(pool, threshold))
    for name, unit, better, meaning, function, headline, needs_front in DEFINITIONS:
        values = None if needs_front and pool.fronts is None else function(view)
        if values is not None:
            found.append(Measure(name, units[unit], better, meaning, headline, values))
    means = view.answers.mean(axis=1)
    for column, objective in enumerate(pool.objectives):
        found.append(Measure(objective, "answer", "higher", "mean reward", True, means[:, column]))
    return found


def _search(pool: Pool, k: int, passed: Floats | None) -> list[Measure]:
    """Return best@k and pass@k at several k up to the given one."""
    scalar, m = pool.scalar(), pool.rewards.shape[2]
    shown = sorted({*(one for one in SHOWN_K if one < k), k})
    units = {one: counted(one, "answer") for one in shown}
    flat = scalar.reshape(len(scalar), -1)
    meaning = "expected best scalar reward"
    found = [Measure(f"best@{one}", units[one], "higher", meaning, True, best_at_k(flat, one)) for one in shown]
    for count in sorted({1, max(1, k // m)}) if m > 1 else ():
        name, unit = f"best@{count * m} by rollouts", f"{counted(count, 'rollout')} of {m}"
        values = best_at_k_of_sets(scalar, count)
        found.append(Measure(name, unit, "higher", "the same if rollouts are drawn whole", False, values))
    if passed is not None:
        meaning = "chance that an answer passes"
        found += [Measure(f"pass@{one}", units[one], "higher", meaning, False, best_at_k(passed, one)) for one in shown]
    return found


def passes(pool: Pool, threshold: float | None) -> Floats | None:
    """Return 1 for each answer that passes and 0 for each other, (N, R·m); ``None`` where nothing says what passes.

    Raises:
        ValueError: The threshold is not finite.
    """
    least: Floats | float
    if threshold is not None:
        if not np.isfinite(threshold):
            raise ValueError(f"the threshold of pass@k must be a finite number, got {threshold}")
        least = threshold
    else:
        optimum = pool.optimum()
        if optimum is None:
            return None
        least = optimum[:, None] - SOLVED_WITHIN
    return (pool.scalar().reshape(len(pool.indices), -1) >= least - ROUNDING).astype(np.float64)


def check_k(pool: Pool, k: int | None) -> int:
    """Return the largest k to show: the one asked for, or all answers of the pool.

    Raises:
        ValueError: It is below 1, or more than the pool holds.
    """
    _, rollouts, m, _ = pool.rewards.shape
    size = int(rollouts * m)
    if k is None:
        return size
    if not 1 <= k <= size:
        raise ValueError(
            f"k={k} needs as many answers to each prompt, but the pool holds {size} "
            f"({counted(rollouts, 'rollout')} of {m}): choose k from 1 to {size}, or sample more"
        )
    return k
