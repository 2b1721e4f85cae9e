"""Find few objectives among many criteria, from the scores of answers on all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vpo_envs.arguments import check_whole
from vpo_envs.decomposition.linear import ROUNDING, Decomposition, Floats, FoundObjective

Finder = Literal["select", "cluster", "nmf", "pca"]

CONSTANT = 1e-9
NEGLIGIBLE = 0.01
"""Weights of a factor below this share of the whole are dropped."""
RESTARTS = 8
UPDATES = 500


def decompose(
    rewards: NDArray[np.floating],
    num_objectives: int,
    by: Finder = "select",
    *,
    prompts: Sequence[int] | NDArray[np.integer] | None = None,
    criteria: Sequence[str] | None = None,
    env: str = "",
) -> Decomposition:
    """Find ``num_objectives`` objectives that stand for many criteria; nothing is random.

    Criteria that never differ between two answers to the same prompt are left out. The others go into objectives

    - by "select": d of the criteria themselves, each the farthest from those chosen before in its scores of all answers
      (farthest-first traversal, as in informed down-sampling, arXiv 2301.01488), starting from the one that varies
      most.
    - by "cluster": means of criteria that rise and fall together: average linkage on 1 − the correlation of the scores
      within prompts.
    - by "nmf": weighted means of criteria, from a factorisation of the scores into non-negative factors (after
      Liskowski and Krawiec, GECCO 2016; updates of Lee and Seung, 2001). An answer is scored by the weights of a
      factor, each factor's summing to 1, and not by its coordinate in the factorisation, which would not be linear.
    - by "pca": principal components of the differences between answers to the same prompt, each in the direction of
      the better mean score (arXiv 2502.13131, where the differences are those of a chosen and a rejected text's
      features), moved and scaled to [0, 1].

    Args:
        rewards: Scores of n answers on c criteria, shape (n, c), in [0, 1].
        num_objectives: d, from 1 to c.
        by: ``"select"``, ``"cluster"``, ``"nmf"`` or ``"pca"``.
        prompts: The prompt of each answer, shape (n,); one prompt if ``None``.
        criteria: Names of the criteria, c; ``"c1"``, ``"c2"`` and so on if ``None``.
        env: Id of the environment, which the decomposition names.

    Raises:
        ValueError: An unknown method, shapes that do not fit, rewards outside [0, 1], repeated names, more objectives
            than criteria, or fewer criteria that the answers tell apart than objectives.
    """
    if by not in FINDERS:
        raise ValueError(f"unknown way to decompose {by!r}: choose one of {', '.join(get_args(Finder))}")
    scores = np.asarray(rewards, dtype=np.float64)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"rewards must have shape (answers, criteria), neither of them 0; got {scores.shape}")
    n, c = scores.shape
    of = np.zeros(n, dtype=int) if prompts is None else np.unique(np.asarray(prompts), return_inverse=True)[1]
    names = [f"c{i + 1}" for i in range(c)] if criteria is None else list(criteria)
    if len(of) != n or len(names) != c:
        raise ValueError(f"{n} answers on {c} criteria need {n} prompts and {c} names; got {len(of)} and {len(names)}")
    strange = scores[~((scores >= -ROUNDING) & (scores <= 1 + ROUNDING))]
    if strange.size:
        raise ValueError(
            f"rewards must lie in [0, 1], got {strange[0]:g}: scale them, and leave out answers without a score"
        )
    if len(set(names)) < c:
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two criteria are named {repeated!r}: rename one of them")
    check_whole("num_objectives", num_objectives, 1)
    if num_objectives > c:
        raise ValueError(f"{c} criteria can be decomposed into 1 to {c} objectives, got {num_objectives}")
    means = np.zeros((of.max() + 1, c))
    np.add.at(means, of, scores)
    deviations = scores - (means / np.bincount(of)[:, None])[of]
    telling = np.flatnonzero(np.abs(deviations).max(axis=0) > CONSTANT)
    different = len(np.unique(deviations[:, telling].round(9), axis=1).T) if len(telling) else 0
    if different < num_objectives:
        raise ValueError(
            f"the answers tell only {different} of the {c} criteria apart, too few for {num_objectives} objectives: "
            "ask for fewer objectives, or give more answers"
        )
    found = FINDERS[by](scores[:, telling], deviations[:, telling], num_objectives)
    objectives = []
    for place, (weights, offset) in enumerate(found):
        weighed = {names[telling[i]]: float(weights[i]) for i in np.flatnonzero(weights)}
        name = next(iter(weighed)) if by == "select" else f"{by}_{place + 1}"
        objectives.append(FoundObjective(name=name, weights=weighed, offset=offset))
    return Decomposition(criteria=tuple(names), objectives=tuple(objectives), by=by, env=env)


Found = list[tuple[Floats, float]]
"""Weights of the criteria and the offset, for each objective."""


def _select(scores: Floats, deviations: Floats, count: int) -> Found:
    distances = np.abs(scores[:, :, None] - scores[:, None, :]).mean(axis=0)
    chosen = [int((deviations**2).sum(axis=0).argmax())]
    while len(chosen) < count:
        chosen.append(int(distances[chosen].min(axis=0).argmax()))
    return [(np.eye(scores.shape[1])[one], 0.0) for one in chosen]


def _cluster(scores: Floats, deviations: Floats, count: int) -> Found:
    distances = 1 - np.corrcoef(deviations, rowvar=False).reshape(scores.shape[1], -1)
    clusters = [[i] for i in range(scores.shape[1])]
    while len(clusters) > count:
        pairs = [(i, j) for j in range(len(clusters)) for i in range(j)]
        first, second = min(pairs, key=lambda pair: distances[np.ix_(clusters[pair[0]], clusters[pair[1]])].mean())
        clusters[first] += clusters.pop(second)
    return [(np.isin(np.arange(scores.shape[1]), members) / len(members), 0.0) for members in clusters]


def _nmf(scores: Floats, deviations: Floats, count: int) -> Found:
    distinct, repeats = np.unique(scores, axis=0, return_counts=True)
    # Equal answers have equal coordinates, so each distinct one counts by the root of its number in a squared error.
    table = distinct * np.sqrt(repeats)[:, None]
    best, least = (np.empty(0), np.empty(0)), np.inf
    for restart in range(RESTARTS):
        rng = np.random.default_rng(restart)
        coordinates, factors = rng.random((len(table), count)) + 0.1, rng.random((count, table.shape[1])) + 0.1
        for _ in range(UPDATES):
            factors *= (coordinates.T @ table) / np.maximum(coordinates.T @ coordinates @ factors, CONSTANT)
            coordinates *= (table @ factors.T) / np.maximum(coordinates @ factors @ factors.T, CONSTANT)
        error = float(((table - coordinates @ factors) ** 2).sum())
        if error < least - CONSTANT:
            best, least = (coordinates, factors), error
    coordinates, factors = best
    sizes = coordinates.sum(axis=0) * factors.sum(axis=1)
    found: Found = []
    for one in np.argsort(-sizes, kind="stable"):
        weights = factors[one] / max(factors[one].sum(), CONSTANT)
        weights = np.where(weights < NEGLIGIBLE, 0.0, weights)
        found.append((weights / max(weights.sum(), CONSTANT), 0.0))
    return found


def _pca(scores: Floats, deviations: Floats, count: int) -> Found:
    # Up to a factor, the second moments of the differences of answers to one prompt are those of their deviations.
    moments = deviations.T @ deviations
    values, vectors = np.linalg.eigh(moments)
    if (rank := int((values > CONSTANT * values[-1]).sum())) < count:
        raise ValueError(f"the answers differ in only {rank} directions, too few for {count} objectives: ask for fewer")
    found: Found = []
    for vector in vectors.T[::-1][:count]:
        towards_better = float(vector @ moments.sum(axis=1))
        if abs(towards_better) < CONSTANT:
            towards_better = vector[np.abs(vector).argmax()]
        vector = vector * np.sign(towards_better)
        lowest, highest = vector.clip(max=0).sum(), vector.clip(min=0).sum()
        found.append((vector / (highest - lowest), float(-lowest / (highest - lowest))))
    return found


FINDERS: dict[Finder, Callable[[Floats, Floats, int], Found]] = {
    "select": _select,
    "cluster": _cluster,
    "nmf": _nmf,
    "pca": _pca,
}
