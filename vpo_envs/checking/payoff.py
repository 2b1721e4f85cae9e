"""Whether several answers can score more than one: what VPO can gain over training for a single reward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vpo_envs.checking.conflict import objective_conflict
from vpo_envs.checking.subject import EnvSubject, Floats, Subject
from vpo_envs.common.wording import counted
from vpo_envs.core import UnknownFront
from vpo_envs.pareto import BestSets, best_sets

LITTLE = 0.02
"""Relative gain from a set over one answer up to which a set does not pay."""


class Payoff(NamedTuple):
    """What the best three answers to a prompt gain over the best one, on average over prompts."""

    best: BestSets
    basis: str
    """The answers that the gains are computed from, in words."""

    def __str__(self) -> str:
        set_gain, vector_gain = self.best.set_gain, self.best.vector_gain
        measured = f"the best three answers score {set_gain:.2f} times as much as the best one, over all weightings"
        if set_gain < 1 + LITTLE:
            verdict = f"VPO can hardly pay: {measured}, so one answer serves all weightings and --method grpo is enough"
        elif vector_gain < 1 + LITTLE:
            verdict = (
                f"a set pays, but the vector adds little: {measured}, and as much as the best three by the scalar "
                "reward, so --method max_at_k may be enough"
            )
        else:
            verdict = f"VPO can pay: {measured}, and {vector_gain:.2f} times the best three by the scalar reward"
        return f"{verdict} ({self.basis})"


def payoff(subject: Subject) -> Payoff | str:
    """Return what a set of answers gains on the prompts that are checked, or why that is unknown.

    It follows from the exact fronts of an environment, or from its demonstrations. For reward functions it is measured
    on the answers that the checks have tried: the good answers of each row, changed answers, and good answers to other
    prompts.
    """
    if isinstance(subject, EnvSubject):
        try:
            report = objective_conflict(subject.env, subject.num_tasks)
        except UnknownFront:
            return (
                "whether VPO can pay is unknown: the environment has neither exact fronts nor demonstrations; the "
                "answers of a model show it: vpo eval MODEL"
            )
        kind = "exact fronts" if report.exact else "the best demonstrations"
        return Payoff(report.best, f"{kind} of {counted(report.num_tasks, 'task')}")
    tried = _tried(subject)
    sums = np.zeros(3)
    for vectors, case in zip(tried, subject.cases, strict=True):
        active = ~np.isnan(vectors[0])
        points = subject.scaled(vectors)[:, active]
        points = points[~np.isnan(points).any(axis=1)].clip(0.0, 1.0)
        sums += best_sets(points, case.weights[active] / case.weights[active].sum()) if active.any() else 0.0
    if not sums.any():
        return "whether VPO can pay is unknown: no answer that was tried earns anything"
    basis = f"{sum(map(len, tried)):,} answers that were tried on {counted(len(tried), 'prompt')}"
    return Payoff(BestSets(*(sums / len(tried)).tolist()), basis)


def _tried(subject: Subject) -> list[Floats]:
    """Return the vectors of the answers that were tried on each prompt, (n, d), the good ones first."""
    return [np.concatenate(vectors) for vectors in zip(subject.good, subject.changed, subject.others, strict=True)]
