"""The one list of measures: what a pool of answers is worth to a search, prompt by prompt.

The table that training ends with, ``vpo eval``, ``vpo compare`` and the validation rows of a run all read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
NEAR = 0.1
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


def measures(pool: Pool, k: int | None = None, threshold: float | None = None) -> list[Measure]:
    """Measure a pool, in the order of tables; measures that are unknown for the pool are left out.

    ``k`` is the largest of best@k and pass@k, all answers of the pool by default. An answer passes with the scalar
    reward ``threshold``; if it is ``None`` and exact fronts are known, within 0.02 of the prompt's optimum.

    Raises:
        ValueError: ``k`` exceeds the number of answers, or the threshold is not finite.
    """
    rewards, active = pool.active_rewards(), pool.active
    n, rollouts, m, d = rewards.shape
    answers, status = rewards.reshape(n, rollouts * m, d), pool.status.reshape(n, rollouts * m)
    units = {"answer": "answer", "rollout": f"rollout of {counted(m, 'answer')}"}
    units["pool"] = f"pool of {counted(rollouts * m, 'answer')}"
    found = _search(pool, check_k(pool, k), passes(pool, threshold))

    def add(name: str, unit: str, better: Better, values: Floats | None, meaning: str, headline: bool = True) -> None:
        if values is not None:
            found.append(Measure(name, units[unit], better, meaning, headline, values))

    keys = np.zeros(n, dtype=np.uint64)
    weights = draw_weights(keys, num_objectives=d, num_weights=REPORT_WEIGHTS, active=active)
    utility = np.stack([_utilities(rewards[:, rollout], weights) for rollout in range(rollouts)]).mean(axis=0)
    pool_utility = _utilities(answers, weights)
    add("expected utility", "rollout", "higher", utility, "best w·r, averaged over weights w uniform on the simplex")
    add("pool utility", "pool", "higher", pool_utility, "expected utility of all answers together")
    if pool.fronts is not None:
        best = _utilities(pool.fronts, weights)
        add("regret", "rollout", "lower", best - utility, "utility of the exact front minus expected utility")
        add("pool regret", "pool", "lower", best - pool_utility, "utility of the exact front minus pool utility")

    vectors = [one[:, counts] for one, counts in zip(answers, active, strict=True)]
    reached = [one[non_dominated(one)] for one in vectors]
    sizes = np.array([float(len(one)) for one in reached])
    add("hypervolume", "pool", "higher", _volumes(reached), "share of the box from −0.1 to 1 that the answers dominate")
    if pool.fronts is not None:
        fronts = [front[:, counts] for front, counts in zip(pool.fronts, active, strict=True)]
        pairs = list(zip(fronts, reached, strict=True))
        covered, near = ([coverage(*both, tolerance) for both in pairs] for tolerance in (ROUNDING, NEAR + ROUNDING))
        missed, epsilon = ([measure(*both) for both in pairs] for measure in (igd_plus, additive_epsilon))
        add("front hypervolume", "pool", "", _volumes(fronts), "that of the exact front, the highest possible", False)
        add("coverage", "pool", "higher", np.array(covered), "share of the exact front's points that answers attain")
        meaning = f"the same, if an answer may fall short by {NEAR} in every objective"
        add(f"coverage within {NEAR}", "pool", "higher", np.array(near), meaning, False)
        add("IGD+", "pool", "lower", np.array(missed), "mean distance by which answers miss a point of the exact front")
        meaning = "what every reward would have to gain to attain the whole front"
        add("additive epsilon", "pool", "lower", np.array(epsilon), meaning, False)
    meaning = "distinct reward vectors that no other answer dominates"
    add("non-dominated vectors", "pool", "higher", sizes, meaning, False)
    add("diversity", "pool", "higher", diversity(answers), "mean L1 distance between reward vectors")
    if m > 1:
        spread = diversity(rewards).mean(axis=1)
        add("set diversity", "rollout", "higher", spread, "mean L1 distance between the reward vectors of one rollout")

    unreadable = np.isin(status, (Status.MISSING, Status.UNPARSABLE)).mean(axis=1)
    repeated = (status == Status.DUPLICATE).mean(axis=1)
    worthless = ((status == Status.OK) & (answers == 0).all(axis=2)).mean(axis=1)
    add("answers unreadable", "answer", "lower", unreadable, "share that is missing or unparsable")
    add("answers repeated", "answer", "lower", repeated, "share that repeats an answer of the same rollout")
    add("answers worth zero", "answer", "lower", worthless, "share that is readable and new, yet earns nothing", False)
    for name, code, meaning in (
        ("answers timed out", Status.TIMED_OUT, "share that exceeded the scorer's time limit"),
        ("answers without a score", Status.INVALID, "share whose scorer failed; counted as zero"),
    ):
        if (status == code).any():
            add(name, "answer", "lower", (status == code).mean(axis=1), meaning)
    for column, objective in enumerate(pool.objectives):
        add(objective, "answer", "higher", answers[:, :, column].mean(axis=1), "mean reward")
    return found


def _utilities(sets: Iterable[Floats], weights: NDArray[np.float32]) -> Floats:
    """Return the expected utility of one set (n, d) for each prompt, (N,)."""
    return np.array([set_utility(one, directions) for one, directions in zip(sets, weights, strict=True)])


def _volumes(sets: Sequence[Floats]) -> Floats | None:
    """Return hypervolumes; ``None`` if one takes too long, since a mean over the other prompts would mislead."""
    found = [hypervolume(vectors) for vectors in sets]
    return None if None in found else np.array(found, dtype=np.float64)


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
    """Return 1 for each answer that passes and 0 for each other, (N, R·m); ``None`` where nothing says what passes."""
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
    """Return the largest k to show: the one asked for if the pool holds as many answers, or all answers."""
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
