"""The one list of measures: what a search gains from several answers, prompt by prompt.

The table that training ends with, ``vpo eval``, ``vpo compare`` and the validation rows of a run all read it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
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
"""Number of weightings behind every utility, the same for every method and step. They are a Sobol net. Against the
exact integral, the utilities of sets of up to 10 vectors in 2 to 5 objectives are off by at most 3e-4, corners of the
simplex included. The root mean square is 8e-5 in 5 objectives and less in fewer. Both are below the last digit that
tables show. With a quarter of the weightings, the utility of three corners is off by 7e-4."""
FEW_KINDS = 64
"""Different reward vectors in a pool up to which they are ordered once for all prompts."""
SHOWN_K = (1, 3, 10, 30, 100)
SINGLY, WHOLE = "drawn singly", "in whole responses"
"""How the k answers of best@k and utility@k are drawn from a pool."""
MEAN_REWARD = "mean reward"
"""Meaning of the row of an objective."""
SOLVED_WITHIN = 0.02
"""An answer solves a prompt if its scalar reward comes this near to the optimum of the exact front."""
NEAR = 0.1
"""By how much an answer may fall short in every objective and still be near a point of the front."""

ANSWER = "answer"
"""The unit of measures of single answers."""

Better = Literal["higher", "lower", ""]


class Measure(NamedTuple):
    """One measure of one pool."""

    name: str
    unit: str
    """What one value describes, such as ``"rollout of 3 answers"`` or ``"set of 30 answers"``."""
    better: Better
    meaning: str
    values: Floats
    """Value of the measure for each prompt, (N,)."""
    headline: bool = True
    """Whether the table that training ends with shows it."""
    bounds: str = "0 to 1"
    """The smallest and the largest value, where rewards lie in [0, 1]."""


class Ranked(NamedTuple):
    """Expected utilities under the report's weightings, from which every utility of a pool follows.

    Scores w·r are sorted for each weighting w, then averaged over weightings: see
    :func:`vpo_agent.measure.metrics.mean_ranked`.
    """

    answers: Floats
    """Utilities of single answers, ascending, (N, R·m)."""
    rollouts: Floats
    """Utilities of the best answer of each rollout, ascending, (N, R)."""
    fronts: Floats | None
    """Utility of the whole exact front, (N,)."""


def name_at(kind: str, k: int | str, drawn: str = SINGLY) -> str:
    """Return the name of best@k or utility@k, such as ``"utility@3 in whole responses"``; ``"utility@1"`` for k = 1."""
    return f"{kind}@{k}" if k == 1 else f"{kind}@{k} {drawn}"


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
        threshold: The scalar reward from which an answer solves its task. If it is ``None`` and exact fronts are known,
            an answer solves its task within 0.02 of the optimum.
        together: Measures of whole responses are at multiples of this number of answers, itself a multiple of m; m by
            default. Pools whose responses hold different numbers of answers are compared at a common number.
        budgets: Numbers of generated tokens per prompt at which to state the utility.
        ranked: What :func:`rank` returns for the pool, if it is known already.

    Raises:
        ValueError: ``k`` exceeds the number of answers, or the threshold is not finite.
    """
    ranked = rank(pool) if ranked is None else ranked
    k = check_k(pool, k)
    passed = passes(pool, threshold)
    shown = sorted({*(number for number in SHOWN_K if number < k), k})
    measured = [
        *_by_answers(pool, ranked, shown, together or pool.rewards.shape[2]),
        *_by_tokens(pool, ranked, budgets),
        *_pass_rates(passed, shown),
        *_utilities(pool, ranked),
        *_reward_vectors(pool),
        *_statuses(pool),
    ]
    taken = {measure.name for measure in measured}
    answers = pool.answers()
    for column, objective in enumerate(pool.objectives):
        means = answers[:, :, column].mean(axis=1)
        measured.append(Measure(free_name(objective, taken), ANSWER, "higher", MEAN_REWARD, means))
    return measured


def _rollout_unit(pool: Pool) -> str:
    return f"rollout of {counted(pool.rewards.shape[2], 'answer')}"


def _pool_unit(pool: Pool) -> str:
    _, rollouts, m, _ = pool.rewards.shape
    return f"set of {counted(rollouts * m, 'answer')}"


def _by_answers(pool: Pool, ranked: Ranked, shown: Sequence[int], together: int) -> Iterator[Measure]:
    """Yield best@k and utility@k at the numbers ``shown``, and of whole responses at multiples of ``together``."""
    scalar, m, most = pool.scalar(), pool.rewards.shape[2], shown[-1]
    multiples = {together, most // together * together, *(k for k in shown if k % together == 0)}
    whole = sorted(k for k in multiples if 0 < k <= most) if together > 1 else []
    for kind, meaning, answers, rollouts in (
        ("best", "expected best scalar reward", scalar.reshape(len(scalar), -1), scalar.max(axis=2)),
        (
            "utility",
            "expected best w·r, for an unknown weighting w, uniform on the simplex",
            ranked.answers,
            ranked.rollouts,
        ),
    ):
        for k in shown:
            yield Measure(name_at(kind, k), counted(k, "answer"), "higher", meaning, best_at_k(answers, k))
        for k in whole:
            name, unit = name_at(kind, k, WHOLE), f"{counted(k // m, 'rollout')} of {m}"
            values = best_at_k(rollouts, k // m)
            yield Measure(name, unit, "higher", f"{meaning}, {WHOLE}", values, headline=False)


def _by_tokens(pool: Pool, ranked: Ranked, budgets: Sequence[int]) -> Iterator[Measure]:
    meaning = "utility of as many whole responses as generate these tokens"
    for budget in budgets:
        name, values = f"utility at {budget} tokens", at_tokens(pool, ranked, budget)
        yield Measure(name, f"{budget} tokens", "higher", meaning, values, headline=False)


def _pass_rates(passed: Floats | None, shown: Sequence[int]) -> Iterator[Measure]:
    if passed is None:
        return
    for k in shown:
        values = best_at_k(passed, k)
        yield Measure(
            f"pass@{k}",
            counted(k, "answer"),
            "higher",
            "share of tasks that one of k answers solves",
            values,
            headline=False,
        )


def _utilities(pool: Pool, ranked: Ranked) -> Iterator[Measure]:
    rollout, whole_pool = _rollout_unit(pool), _pool_unit(pool)
    utility, pool_utility = ranked.rollouts.mean(axis=1), ranked.answers[:, -1]
    meaning = "best w·r, averaged over weightings w, uniform on the simplex"
    yield Measure("expected utility", rollout, "higher", meaning, utility)
    meaning = "expected utility of all answers together"
    yield Measure("pool utility", whole_pool, "higher", meaning, pool_utility, headline=False)
    if ranked.fronts is not None:
        meaning = "utility of the exact front minus expected utility"
        yield Measure("regret", rollout, "lower", meaning, ranked.fronts - utility)
        meaning = "utility of the exact front minus the utility of all answers together"
        yield Measure("pool regret", whole_pool, "lower", meaning, ranked.fronts - pool_utility)


def _reward_vectors(pool: Pool) -> Iterator[Measure]:
    """Yield measures of the reward vectors of all answers to a prompt: volumes, share of the front, distances."""
    unit, answers = _pool_unit(pool), pool.answers()
    reached = []
    for vectors, active in zip(answers, pool.active, strict=True):
        points = vectors[:, active]
        reached.append(points[non_dominated(points)])
    is_bounded = not pool.outside()
    if is_bounded and (volumes := _volumes(reached)) is not None:
        meaning = "share of the box from −0.1 to 1 that the answers dominate"
        yield Measure("hypervolume", unit, "higher", meaning, volumes)
    if pool.fronts is not None:
        fronts = [front[:, active] for front, active in zip(pool.fronts, pool.active, strict=True)]
        if is_bounded and (volumes := _volumes(fronts)) is not None:
            meaning = "hypervolume of the exact front, the highest possible"
            yield Measure("front hypervolume", unit, "", meaning, volumes, headline=False)
        pairs = list(zip(fronts, reached, strict=True))
        attained = np.array([coverage(front, points, ROUNDING) for front, points in pairs])
        meaning = "share of the exact front's points that answers attain"
        yield Measure("coverage", unit, "higher", meaning, attained)
        nearly = np.array([coverage(front, points, NEAR + ROUNDING) for front, points in pairs])
        meaning = f"share of the exact front's points that answers miss by at most {NEAR} in every objective"
        yield Measure(f"coverage within {NEAR}", unit, "higher", meaning, nearly, headline=False)
    sizes = np.array([float(len(points)) for points in reached])
    meaning = "distinct reward vectors that no other answer dominates"
    yield Measure("non-dominated vectors", unit, "higher", meaning, sizes, headline=False, bounds="from 1")
    meaning = "mean L1 distance between the reward vectors of two answers"
    yield Measure("diversity", unit, "higher", meaning, diversity(answers), bounds="0 to d")
    if pool.rewards.shape[2] > 1:
        spread = diversity(pool.active_rewards()).mean(axis=1)
        meaning = "mean L1 distance between the reward vectors of two answers of one response"
        yield Measure("set diversity", _rollout_unit(pool), "higher", meaning, spread, bounds="0 to d")


def _statuses(pool: Pool) -> Iterator[Measure]:
    """Yield the tokens of a response, and the shares of answers that earn nothing, each for one reason."""
    answers = pool.answers()
    status = pool.status.reshape(answers.shape[:2])
    if pool.tokens is not None:
        tokens, meaning = pool.tokens.mean(axis=1), "generated tokens of a response"
        yield Measure("tokens", _rollout_unit(pool), "", meaning, tokens, headline=False, bounds="from 0")
    unreadable = np.isin(status, (Status.MISSING, Status.UNPARSABLE)).mean(axis=1)
    yield Measure("answers unreadable", ANSWER, "lower", "share of answers that are missing or unparsable", unreadable)
    repeated = (status == Status.DUPLICATE).mean(axis=1)
    yield Measure(
        "answers repeated", ANSWER, "lower", "share of answers that repeat one of the same response", repeated
    )
    unrewarded = ((status == Status.OK) & (answers == 0).all(axis=2)).mean(axis=1)
    meaning = "share of answers that are readable and new, yet earn nothing"
    yield Measure("answers with zero reward", ANSWER, "lower", meaning, unrewarded, headline=False)
    for name, code, meaning in (
        ("answers timed out", Status.TIMED_OUT, "share of answers that exceeded the scorer's time limit"),
        ("answers without a score", Status.INVALID, "share of answers whose scorer failed; counted as zero"),
    ):
        if (status == code).any():
            yield Measure(name, ANSWER, "lower", meaning, (status == code).mean(axis=1))


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
    n, rollouts, m, _ = rewards.shape
    answers, sets = np.empty((n, rollouts * m)), np.empty((n, rollouts))
    for active in np.unique(pool.active, axis=0):
        alike = (pool.active == active).all(axis=1)
        kinds, numbers = np.unique(rewards[alike].reshape(-1, rewards.shape[3]), axis=0, return_inverse=True)
        if len(kinds) <= FEW_KINDS:
            numbers = numbers.reshape(-1, rollouts, m)
            answers[alike], sets[alike] = _rank_kinds(kinds, numbers, report_weights(active))
        else:
            answers[alike], sets[alike] = _rank_vectors(rewards[alike], report_weights(active))
    fronts = None
    if pool.fronts is not None:
        pairs = zip(pool.fronts, pool.active, strict=True)
        fronts = np.array(
            [_front_utility(front.astype(np.float64).tobytes(), tuple(active.tolist())) for front, active in pairs]
        )
    return Ranked(answers, sets, fronts)


@lru_cache(maxsize=4096)
def _front_utility(front: bytes, active: tuple[bool, ...]) -> float:
    """Return the utility of a front, whose points (n, d) are float64; the pools of a study have the same fronts."""
    return set_utility(np.frombuffer(front).reshape(-1, len(active)), _report_weights(active))


def _rank_vectors(rewards: Floats, directions: Floats) -> tuple[Floats, Floats]:
    """Return the utilities of answers (n, R·m) and rollouts (n, R), from rewards (n, R, m, d) and weightings (K, d)."""
    n, rollouts, m, d = rewards.shape
    answers, sets = np.empty((n, rollouts * m)), np.empty((n, rollouts))
    for prompt, vectors in enumerate(rewards):
        scores = directions @ vectors.reshape(-1, d).T
        answers[prompt] = mean_ranked(scores)
        sets[prompt] = mean_ranked(_best_of_rollout(scores.reshape(-1, rollouts, m))) if m > 1 else answers[prompt]
    return answers, sets


def _rank_kinds(kinds: Floats, numbers: NDArray[np.int64], directions: Floats) -> tuple[Floats, Floats]:
    """Return the same from the different reward vectors (c, d), and the number of each answer's vector, (n, R, m).

    Most weightings order a few vectors alike, and those that do are taken together: under them an answer is as good as
    the rank of its vector, and a rollout as the highest rank of its answers.
    """
    n, rollouts, m = numbers.shape
    scores = directions @ kinds.T
    orders, number_of_order = np.unique(
        np.argsort(scores, axis=1, kind="stable").astype(np.uint8), axis=0, return_inverse=True
    )
    utilities = np.zeros(orders.shape)
    np.add.at(utilities, number_of_order.ravel(), np.sort(scores, axis=1))
    utilities /= len(directions)
    answers, sets = np.zeros((n, rollouts * m)), np.zeros((n, rollouts))
    counts = _counts(numbers.reshape(n, -1), len(kinds))
    for order, utility_of_rank in zip(orders, utilities, strict=True):
        by_rank = np.tile(utility_of_rank, n)
        answers += np.repeat(by_rank, counts[:, order].ravel()).reshape(answers.shape)
        if m > 1:
            best_ranks = _best_of_rollout(np.argsort(order).astype(np.uint8)[numbers])
            sets += np.repeat(by_rank, _counts(best_ranks, len(kinds)).ravel()).reshape(sets.shape)
    return answers, sets if m > 1 else answers


def _counts(numbers: NDArray[Any], kinds: int) -> NDArray[np.int64]:
    """Return how often each number below ``kinds`` is in each row of (n, c), (n, kinds)."""
    n = len(numbers)
    return np.bincount((np.arange(n)[:, None] * kinds + numbers).ravel(), minlength=n * kinds).reshape(n, kinds)


def _best_of_rollout(values: NDArray[Any]) -> NDArray[Any]:
    """Return the maxima over the last axis, which is short; ``max`` is slow along many short rows."""
    return reduce(np.maximum, np.moveaxis(values, -1, 0))


def at_tokens(pool: Pool, ranked: Ranked, budget: float) -> Floats:
    """Return the expected utility of as many whole rollouts as generate ``budget`` tokens per prompt on average, (N,).

    Between c and c + 1 rollouts, c or c + 1 are drawn at random, so the utility is linear in the budget.
    """
    if pool.tokens is None:
        raise ValueError("the sample file does not state how many tokens were generated: sample it again")
    each, rollouts = float(pool.tokens.mean()), ranked.rollouts.shape[1]
    count = budget / each
    if not 1 - ROUNDING <= count <= rollouts + ROUNDING:
        most = each * rollouts
        raise ValueError(
            f"a budget must lie between {each:g} tokens per prompt, which one rollout takes, and {most:g}, which all "
            f"rollouts take; got {budget:g}"
        )
    low = int(np.clip(count, 1, rollouts))
    share = min(max(count - low, 0.0), 1.0)
    values = best_at_k(ranked.rollouts, low)
    return values + share * (best_at_k(ranked.rollouts, low + 1) - values) if low < rollouts else values


def _volumes(sets: Sequence[Floats]) -> Floats | None:
    """Return hypervolumes; ``None`` if one takes too long, since a mean over the other prompts would mislead."""
    volumes = [hypervolume(vectors) for vectors in sets]
    return None if None in volumes else np.array(volumes, dtype=np.float64)


def passes(pool: Pool, threshold: float | None) -> Floats | None:
    """Return 1 for each answer that solves its task, else 0, (N, R·m); ``None`` if nothing says what solves it."""
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
            f"k={k} needs as many answers to each prompt, but the sample file holds {size} "
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
