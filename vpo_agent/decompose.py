"""Few objectives for many criteria of a pool: found, measured by what they keep, and told in tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.summary import worth_of_answers, worth_of_fronts
from vpo_agent.pages.page import markdown_table
from vpo_agent.report.tables import number
from vpo_envs import Decomposition, Finder, Status, decompose
from vpo_envs.pareto import COARSE, BestSets, best_set, non_dominated, set_utility, spread_weights
from vpo_envs.wording import counted

DRAWS = 16
"""Choices among answers that are equal to the chooser, over which a utility is averaged."""


class Kept(NamedTuple):
    """What the objectives keep of the criteria among the answers to one prompt, or the means over prompts."""

    vectors: float
    """Share of the distinct vectors of criteria that the objectives still tell apart."""
    choice: float
    """Expected utility, under weights uniform on the criteria, of the three answers that the objectives choose."""
    scalar: float
    """The same of the three that the mean of the criteria chooses."""


class PoolReport(NamedTuple):
    """A decomposition of a pool's criteria, measured on that pool."""

    variance: float
    """Share of the criteria's variance within prompts that a linear function of the objectives explains."""
    kept: Kept
    criteria: BestSets
    """What a set and the vector are worth among the answers, under the criteria."""
    objectives: BestSets
    """The same under the objectives."""
    fronts: tuple[BestSets, BestSets] | None
    """Both on the exact fronts; ``None`` if they are unknown."""


def decompose_pool(pool: Pool, num_objectives: int, by: Finder) -> Decomposition:
    """Decompose the objectives of a pool's environment, from the answers that were scored.

    Raises:
        ValueError: See :func:`vpo_envs.decompose`.
    """
    scored = pool.status == Status.OK
    if not scored.any():
        raise ValueError("the pool holds no answer with the status ok: sample one from a model that knows the task")
    prompts = np.broadcast_to(np.arange(len(pool.indices))[:, None, None], scored.shape)
    return decompose(
        pool.active_rewards()[scored],
        num_objectives,
        by,
        prompts=prompts[scored],
        criteria=pool.objectives,
        env=str(pool.source.get("env", "")),
    )


def measure_decomposition(pool: Pool, decomposition: Decomposition) -> PoolReport:
    """Measure what a decomposition keeps of a pool.

    Raises:
        ValueError: The decomposition is of other criteria than the pool's objectives, or weighs none of those that are
            active for one of the prompts.
    """
    decomposition.check(pool.objectives, str(pool.source.get("env", "")), "the pool")
    active = decomposition.active(pool.active)
    if not active.any(axis=1).all():
        empty = pool.indices[active.any(axis=1).argmin()]
        raise ValueError(
            f"none of the {len(decomposition.objectives)} objectives is active for prompt {empty}, which has only "
            f"{pool.active.sum(axis=1).min()} of the {len(pool.objectives)} criteria: ask for more objectives"
        )
    prompts = zip(pool.active_rewards(), pool.status == Status.OK, pool.active, active, strict=True)
    found, deviations = [], []
    for rewards, scored, criteria, objectives in prompts:
        if scored.any():
            answers = rewards[scored]
            mapped = decomposition.apply(answers)
            found.append(what_is_kept(answers[:, criteria], mapped[:, objectives]))
            deviations.append((answers - answers.mean(axis=0), mapped - mapped.mean(axis=0)))
    fronts = None
    if pool.fronts is not None and decomposition.monotone:
        before, after = worth_of_fronts(pool), worth_of_fronts(mapped_pool(pool, decomposition))
        fronts = (before, after) if before and after else None
    return PoolReport(
        explained_variance(*map(np.concatenate, zip(*deviations, strict=True))),
        Kept(*np.mean(found, axis=0).tolist()),
        worth_of_answers(pool),
        worth_of_answers(mapped_pool(pool, decomposition)),
        fronts,
    )


def what_is_kept(criteria: Floats, objectives: Floats) -> Kept:
    """Compare answers under all criteria, (n, c), with the same answers under few objectives, (n, d)."""
    of_all, of_few = (len(np.unique(vectors.round(6), axis=0)) for vectors in (criteria, objectives))
    mean = criteria.mean(axis=1, keepdims=True)
    return Kept(of_few / of_all, utility_of_choice(criteria, objectives), utility_of_choice(criteria, mean))


def explained_variance(criteria: Floats, objectives: Floats) -> float:
    """Return the share of the variance of the criteria, (n, c), that is linear in the objectives, (n, d), 0 to 1.

    Both have mean 0. Without any variance it is 1.
    """
    missed = criteria - objectives @ np.linalg.lstsq(objectives, criteria, rcond=None)[0]
    total = float((criteria**2).sum())
    return 1 - float((missed**2).sum()) / total if total > 0 else 1.0


def utility_of_choice(criteria: Floats, objectives: Floats, size: int = 3) -> float:
    """Return the expected utility, under the criteria, of the answers that someone chooses who sees the objectives.

    They choose the set of the highest expected utility under the objectives. Where fewer answers do as well, the best
    under the mean of the objectives complete it, and among answers that are equal to them they choose at random.

    Args:
        criteria: Of n answers, shape (n, c).
        objectives: Of the same answers, shape (n, d).
        size: Number of answers that they choose.
    """
    seen, group = np.unique(objectives.round(9), axis=0, return_inverse=True)
    front = np.flatnonzero(non_dominated(seen))
    chosen = front[best_set(seen[front], size, spread_weights(seen.shape[1], COARSE))]
    weights, rng = spread_weights(criteria.shape[1]), np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        order = rng.permutation(len(criteria))
        firsts = [int(order[np.isin(group.ravel()[order], one).argmax()]) for one in chosen]
        others = [int(one) for one in order if one not in firsts]
        others.sort(key=lambda one: -objectives[one].mean().round(9))
        found.append(set_utility(criteria[[*firsts, *others][:size]], weights))
    return float(np.mean(found))


def mapped_pool(pool: Pool, decomposition: Decomposition) -> Pool:
    """Return the pool with the rewards of a decomposition, as :class:`vpo_envs.Decomposed` gives them."""
    active = decomposition.active(pool.active)
    rewards = decomposition.apply(pool.active_rewards()) * (pool.status == Status.OK)[..., None]
    return Pool(
        rewards=rewards.astype(np.float32),
        status=pool.status,
        active=active,
        scalar_weights=active / np.maximum(active.sum(axis=1, keepdims=True), 1),
        indices=pool.indices,
        objectives=tuple(objective.name for objective in decomposition.objectives),
        fronts=tuple(decomposition.apply(front) for front in pool.fronts)
        if pool.fronts is not None and decomposition.monotone
        else None,
        tasks=pool.tasks,
    )


def described(found: Decomposition) -> str:
    """Return which criteria went where, as a table in Markdown."""
    rows = []
    for objective in found.objectives:
        # The heaviest first, which names a component with many small weights.
        ordered = sorted(objective.weights.items(), key=lambda item: -abs(item[1]))
        rows.append([objective.name, ", ".join(f"{weight:.2f} {name}" for name, weight in ordered)])
    text = f"{counted(len(found.objectives), 'objective')} by {found.by} from {len(found.criteria)} criteria"
    table = markdown_table(["objective", "criteria with their weights"], rows, "ll")
    left = [name for name in found.criteria if not any(name in one.weights for one in found.objectives)]
    return f"{text} of {found.env or 'the pool'}\n\n{table}\n\nIn no objective: {', '.join(left) or 'none'}."


def measured(report: PoolReport, found: Decomposition) -> str:
    """Return what is kept, as a table in Markdown."""
    kept = report.kept
    rows = [
        ["variance between answers to a prompt", "1.000", number(report.variance)],
        ["distinct reward vectors told apart", "1.000", number(kept.vectors)],
        [
            "utility, on the criteria, of the three chosen by them",
            number(report.criteria.three),
            number(kept.choice),
        ],
        ["utility, on the criteria, of the three chosen by their mean", number(kept.scalar), ""],
    ]
    sets = [("among the answers", report.criteria, report.objectives)]
    if report.fronts is not None:
        sets.append(("on the exact fronts", *report.fronts))
    for where, before, after in sets:
        rows.append([f"worth of a set {where}", number(before.set_worth), number(after.set_worth)])
        rows.append([f"worth of the vector {where}", number(before.vector_worth), number(after.vector_worth)])
    heads = ["", f"{len(found.criteria)} criteria", counted(len(found.objectives), "objective")]
    return markdown_table(heads, rows, "lrr")
