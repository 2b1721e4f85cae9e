"""The one list of measures: what a pool of answers is worth to a search, prompt by prompt.

The table that training ends with, ``vpo eval``, ``vpo compare`` and the validation rows of a run all read it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.estimators.weights import draw_weights
from vpo_agent.measure.metrics import best_at_k, coverage, diversity, hypervolume, mean_ranked
from vpo_agent.measure.pool import ROUNDING, Floats, Pool
from vpo_envs import Status
from vpo_envs.common.wording import counted
from vpo_envs.pareto import non_dominated, set_utility

REPORT_WEIGHTS = 4096
"""Weight vectors behind every utility, the same for every method and step. They are a Sobol net: against the exact
integral, sets of up to 10 vectors in 2 to 5 objectives, the corners of the simplex among them, are off by at most 3e-4
(root mean square 8e-5 in 5 objectives, less in fewer), below the last digit that tables show. With a quarter as many
weight vectors three corners are off by 7e-4."""
SHOWN_K = (1, 3, 10, 30, 100)
MEAN_REWARD = "mean reward"
"""What a row of an objective means."""
SOLVED_WITHIN = 0.02
"""An answer solves a prompt if its scalar reward comes this near to the optimum of the exact front."""
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


class Ranked(NamedTuple):
    """Expected utilities under the report's weightings, from which every utility of a pool follows.

    Scores w·r are sorted for each weighting w, then averaged over weightings: see
    :func:`vpo_agent.measure.metrics.mean_ranked`.
    """

    answers: Floats
    """Of single answers, ascending, (N, R·m)."""
    rollouts: Floats
    """Of the best answer of each rollout, ascending, (N, R)."""
    fronts: Floats | None
    """Of the exact front as a whole, (N,)."""


def measures(
    pool: Pool,
    k: int | None = None,
    threshold: float | None = None,
    *,
    together: int | None = None,
    budgets: Sequence[int] = (),
    ranked: Ranked | None = None,
) -> list[Measure]:
    """Measure a pool, in the order of tables; measures that are unknown for the pool are left out.

    Args:
        pool: The pool.
        k: The largest k of best@k, utility@k and pass@k; all answers of the pool by default.
        threshold: The scalar reward that passes. If it is ``None`` and exact fronts are known, an answer passes within
            0.02 of the prompt's optimum.
        together: Measures "by rollouts" are at multiples of this number of answers, itself a multiple of m; m by
            default. Pools whose rollouts hold different numbers of answers compare at a common one.
        budgets: Numbers of generated tokens per prompt at which to state the utility.
        ranked: What :func:`rank` returns for the pool, if it is known already.

    Raises:
        ValueError: ``k`` exceeds the number of answers, or the threshold is not finite.
    """
    ranked = rank(pool) if ranked is None else ranked
    rewards, active = pool.active_rewards(), pool.active
    n, rollouts, m, d = rewards.shape
    answers, status = rewards.reshape(n, rollouts * m, d), pool.status.reshape(n, rollouts * m)
    units = {"answer": "answer", "rollout": f"rollout of {counted(m, 'answer')}"}
    units["pool"] = f"pool of {counted(rollouts * m, 'answer')}"
    found = _search(pool, ranked, check_k(pool, k), passes(pool, threshold), together or m, budgets)

    def add(name: str, unit: str, better: Better, values: Floats | None, meaning: str, headline: bool = True) -> None:
        if values is not None:
            found.append(Measure(name, units[unit], better, meaning, headline, values))

    utility, pool_utility = ranked.rollouts.mean(axis=1), ranked.answers[:, -1]
    add("expected utility", "rollout", "higher", utility, "best w·r, averaged over weights w uniform on the simplex")
    add("pool utility", "pool", "higher", pool_utility, "expected utility of all answers together", False)
    if ranked.fronts is not None:
        meaning = "utility of the exact front minus "
        add("regret", "rollout", "lower", ranked.fronts - utility, f"{meaning}expected utility")
        add("pool regret", "pool", "lower", ranked.fronts - pool_utility, f"{meaning}pool utility")

    vectors = [one[:, counts] for one, counts in zip(answers, active, strict=True)]
    reached = [one[non_dominated(one)] for one in vectors]
    sizes = np.array([float(len(one)) for one in reached])
    bounded = not pool.outside()
    volumes = _volumes(reached) if bounded else None
    add("hypervolume", "pool", "higher", volumes, "share of the box from −0.1 to 1 that the answers dominate")
    if pool.fronts is not None:
        fronts = [front[:, counts] for front, counts in zip(pool.fronts, active, strict=True)]
        pairs = list(zip(fronts, reached, strict=True))
        covered, near = ([coverage(*both, tolerance) for both in pairs] for tolerance in (ROUNDING, NEAR + ROUNDING))
        highest = _volumes(fronts) if bounded else None
        add("front hypervolume", "pool", "", highest, "that of the exact front, the highest possible", False)
        add("coverage", "pool", "higher", np.array(covered), "share of the exact front's points that answers attain")
        meaning = f"the same, if an answer may fall short by {NEAR} in every objective"
        add(f"coverage within {NEAR}", "pool", "higher", np.array(near), meaning, False)
    meaning = "distinct reward vectors that no other answer dominates"
    add("non-dominated vectors", "pool", "higher", sizes, meaning, False)
    add("diversity", "pool", "higher", diversity(answers), "mean L1 distance between reward vectors")
    if m > 1:
        spread = diversity(rewards).mean(axis=1)
        add("set diversity", "rollout", "higher", spread, "mean L1 distance between the reward vectors of one rollout")

    unreadable = np.isin(status, (Status.MISSING, Status.UNPARSABLE)).mean(axis=1)
    if pool.tokens is not None:
        add("tokens", "rollout", "", pool.tokens.mean(axis=1), "generated tokens of a response", False)
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
    taken = {one.name for one in found}
    for column, objective in enumerate(pool.objectives):
        add(free_name(objective, taken), "answer", "higher", answers[:, :, column].mean(axis=1), MEAN_REWARD)
    return found


def report_weights(active: NDArray[np.bool_]) -> Floats:
    """Return the weight vectors behind every utility of a prompt with these ``active`` objectives (d,): (K, d)."""
    return _report_weights(tuple(active.tolist()))


@lru_cache(maxsize=256)
def _report_weights(active: tuple[bool, ...]) -> Floats:
    mask = np.array([active])
    keys = np.zeros(1, dtype=np.uint64)
    drawn = draw_weights(keys, num_objectives=len(active), num_weights=REPORT_WEIGHTS, active=mask)
    weights: Floats = drawn[0].astype(np.float64)
    weights.flags.writeable = False
    return weights


def rank(pool: Pool) -> Ranked:
    """Return the expected utilities of a pool's answers, rollouts and fronts, sorted under each weighting."""
    rewards = pool.active_rewards()
    n, rollouts, m, d = rewards.shape
    weights = [report_weights(active) for active in pool.active]
    answers, sets = np.empty((n, rollouts * m)), np.empty((n, rollouts))
    for prompt, (vectors, directions) in enumerate(zip(rewards, weights, strict=True)):
        scores = directions @ vectors.reshape(-1, d).T
        answers[prompt] = mean_ranked(scores)
        sets[prompt] = mean_ranked(scores.reshape(-1, rollouts, m).max(axis=2)) if m > 1 else answers[prompt]
    fronts = None
    if pool.fronts is not None:
        fronts = np.array([set_utility(*pair) for pair in zip(pool.fronts, weights, strict=True)])
    return Ranked(answers, sets, fronts)


def at_tokens(pool: Pool, ranked: Ranked, budget: float) -> Floats:
    """Return the expected utility of as many whole rollouts as generate ``budget`` tokens per prompt on average, (N,).

    Between c and c + 1 rollouts it is that of drawing c or c + 1 at random, which is linear in the budget.
    """
    if pool.tokens is None:
        raise ValueError("the pool does not state how many tokens were generated: sample it again")
    each, rollouts = float(pool.tokens.mean()), ranked.rollouts.shape[1]
    count = budget / each
    if not 1 - ROUNDING <= count <= rollouts + ROUNDING:
        most = each * rollouts
        raise ValueError(f"the pool has {each:g} (one rollout) to {most:g} tokens per prompt (all); got {budget:g}")
    low = int(np.clip(count, 1, rollouts))
    share = min(max(count - low, 0.0), 1.0)
    values = best_at_k(ranked.rollouts, low)
    return values + share * (best_at_k(ranked.rollouts, low + 1) - values) if low < rollouts else values


def _volumes(sets: Sequence[Floats]) -> Floats | None:
    """Return hypervolumes; ``None`` if one takes too long, since a mean over the other prompts would mislead."""
    found = [hypervolume(vectors) for vectors in sets]
    return None if None in found else np.array(found, dtype=np.float64)


def _search(
    pool: Pool, ranked: Ranked, k: int, passed: Floats | None, together: int, budgets: Sequence[int]
) -> list[Measure]:
    """Return best@k, utility@k and pass@k at several k up to the given one."""
    scalar, m = pool.scalar(), pool.rewards.shape[2]
    shown = sorted({*(one for one in SHOWN_K if one < k), k})
    counts = {together, k // together * together, *shown}
    whole = sorted(one for one in counts if one % together == 0 and 0 < one <= k) if together > 1 else []
    found: list[Measure] = []

    def add(name: str, unit: str, meaning: str, values: Floats, headline: bool = False) -> None:
        found.append(Measure(name, unit, "higher", meaning, headline, values))

    for kind, meaning, answers, sets in (
        ("best", "expected best scalar reward", scalar.reshape(len(scalar), -1), scalar.max(axis=2)),
        ("utility", "expected best w·r, for weights w unknown and uniform", ranked.answers, ranked.rollouts),
    ):
        for one in shown:
            add(f"{kind}@{one}", counted(one, "answer"), meaning, best_at_k(answers, one), headline=True)
        for one in whole:
            unit = f"{counted(one // m, 'rollout')} of {m}"
            add(f"{kind}@{one} by rollouts", unit, "the same if rollouts are drawn whole", best_at_k(sets, one // m))
    for budget in budgets:
        meaning = "utility@k of as many whole rollouts as generate these tokens"
        add(f"utility at {budget} tokens", f"{budget} tokens", meaning, at_tokens(pool, ranked, budget))
    if passed is not None:
        for one in shown:
            add(f"pass@{one}", counted(one, "answer"), "chance that an answer passes", best_at_k(passed, one))
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


PREFIX = "reward/"


def free_name(objective: str, taken: Container[str]) -> str:
    """Return the name of an objective's mean: its own, or ``reward/NAME`` where that is taken."""
    return f"{PREFIX}{objective}" if objective in taken else objective


def short_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose objectives, all under ``reward/NAME``, have their own names where no other column does."""
    return {
        free_name(name.removeprefix(PREFIX), row) if name.startswith(PREFIX) else name: value
        for name, value in row.items()
    }
