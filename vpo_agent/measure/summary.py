"""A pool measured: its measures, its curves along answers or tokens, and the gains from a set and from the vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.measures import SOLVED_WITHIN, WHOLE, Measure, Ranked, check_k, measures, name_at, passes, rank
from vpo_agent.measure.metrics import best_at_k, best_at_k_whole
from vpo_agent.measure.pool import Floats, Pool
from vpo_envs.pareto import BestSets, best_sets

CURVE_POINTS = 24
BY_TOKENS = "utility by generated tokens"


class Curve(NamedTuple):
    """One measure along k, or along the number of generated tokens."""

    ks: NDArray[Any]
    """Numbers of answers, or of tokens per prompt, (c,)."""
    values: Floats
    """(N, c)."""


@dataclass(frozen=True)
class Summary:
    """The measures and curves of one pool."""

    pool: Pool
    k: int
    """Largest k shown."""
    measures: dict[str, Measure]
    """Measures by name, in the order of tables."""
    curves: dict[str, Curve]
    """Curves by name: utility@k and best@k, drawn singly and, if m > 1, in whole responses, see
    :func:`~vpo_agent.measure.measures.name_at`; ``"pass@k"`` if it is known what solves a task;
    :data:`BY_TOKENS` in whole responses if tokens are known."""
    optimum: Floats | None
    """The best scalar reward on the exact front, (N,)."""
    front_utility: Floats | None
    """The expected utility of the exact front, the highest that utility@k can reach, (N,)."""
    threshold: str
    """Scalar reward with which an answer solves its task, in words; empty if it is unknown."""
    ranked: Ranked
    """The expected utilities from which utility@k follows."""

    def at_k(self, kind: Literal["utility", "best"], k: int) -> Floats:
        """Return utility@k or best@k in whole responses if m divides ``k``, else with answers drawn singly, (N,)."""
        if kind == "utility":
            return best_at_k_whole(self.ranked.answers, self.ranked.rollouts, k)
        scalar = self.pool.scalar()
        return best_at_k_whole(scalar.reshape(len(scalar), -1), scalar.max(axis=2), k)

    def ceilings(self) -> dict[str, float | None]:
        """Return the mean over prompts of what the exact fronts allow, or ``None`` for both if they are unknown."""
        both = {"optimum": self.optimum, "front_utility": self.front_utility}
        return {name: None if values is None else float(values.mean()) for name, values in both.items()}


def summarise(
    pool: Pool,
    k: int | None = None,
    threshold: float | None = None,
    *,
    together: int | None = None,
    budgets: Sequence[int] = (),
) -> Summary:
    """Measure a pool; arguments and errors as for :func:`vpo_agent.measure.measures.measures`."""
    k = check_k(pool, k)
    scalar, ranked = pool.scalar(), rank(pool)
    n, _, m = scalar.shape
    passed, optimum = passes(pool, threshold), pool.optimum()
    curves = {
        name_at("utility", "k"): _curve(ranked.answers, k),
        name_at("best", "k"): _curve(scalar.reshape(n, -1), k),
    }
    if passed is not None:
        curves["pass@k"] = _curve(passed, k)
    rollouts = max(1, k // m)
    if m > 1:
        curves[name_at("utility", "k", WHOLE)] = _curve(ranked.rollouts, rollouts, m)
        curves[name_at("best", "k", WHOLE)] = _curve(scalar.max(axis=2), rollouts, m)
    if pool.tokens is not None:
        curves[BY_TOKENS] = _curve(ranked.rollouts, rollouts, float(pool.tokens.mean()))
    measured = measures(pool, k, threshold, together=together, budgets=budgets, ranked=ranked)
    words = ""
    if threshold is not None:
        words = f"a scalar reward of {threshold:g} or more"
    elif optimum is not None:
        words = f"a scalar reward within {SOLVED_WITHIN} of the prompt's optimum"
    return Summary(
        pool=pool,
        k=k,
        measures={measure.name: measure for measure in measured},
        curves=curves,
        optimum=optimum,
        front_utility=ranked.fronts,
        threshold=words,
        ranked=ranked,
    )


def _curve(scores: Floats, most: int, unit: float = 1) -> Curve:
    """Return the best of 1 to ``most`` of the scores (N, n), against their number in units of ``unit``."""
    counts = np.unique(np.geomspace(1, most, CURVE_POINTS).round().astype(int))
    return Curve(counts * unit, np.stack([best_at_k(scores, count) for count in counts], axis=1))


def gains_of_answers(pool: Pool) -> BestSets:
    """Return the utilities of the best answer and of the best three of a pool, on average over prompts.

    ``set_gain`` and ``vector_gain`` of the result are ratios of these means among the answers that this model gives.
    For a decision about training, the pool is that of the base.
    """
    return _mean_of_best_sets(pool, list(pool.answers()))


def gains_of_fronts(pool: Pool) -> BestSets | None:
    """Return these utilities for the exact fronts, which bound what training can gain; ``None`` if they are unknown."""
    return None if pool.fronts is None else _mean_of_best_sets(pool, pool.fronts)


def _mean_of_best_sets(pool: Pool, sets: Sequence[Floats]) -> BestSets:
    prompts = zip(sets, pool.scalar_weights, pool.active, strict=True)
    of_prompts = [best_sets(points[:, active], weights[active]) for points, weights, active in prompts]
    return BestSets(*np.mean(of_prompts, axis=0).tolist())
