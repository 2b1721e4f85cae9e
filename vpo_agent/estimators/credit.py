"""Credit for single answers: token advantages that tell the answers of one rollout apart.

`vpo` gives every token of a rollout the same advantage, whichever answer earned it. `vpo_credit` still maximises the
set score R(S), but compares the tokens of an answer with what could be expected before that answer was written.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from vpo_agent.estimators.registry import EPSILON, Advantages, centre, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups

_TERM = re.compile(r"(?:(\d*\.?\d+)\*)?(prefix|marginal|own)")


@register_estimator("vpo_credit", answers="set", needs_weights=True)
def vpo_credit(groups: RewardGroups, *, credit: str = "prefix") -> Advantages:
    """Set score of `vpo`, with credit for each answer on its own tokens.

    - "prefix": the score of the answers before s, R(S_<s), cannot depend on the tokens of answer s, so subtracting any
      multiple of it from their advantage adds no bias. The multiple that leaves the least variance is the slope of the
      regression of R(S) on R(S_<s) over the whole batch, one slope for each position s. The residual, standardised
      within the group, replaces the advantage of the tokens of answer s; the credit is the difference between the two.
    - "marginal": the leave-one-out contribution R(S) - R(S without s), standardised within the group at each position
      (SetPO, arXiv 2602.01062, does so for whole samples). Biased: of two equally good answers neither contributes.
    - "own": the scalar reward of answer s under the fixed weights, standardised over all answers of the group. It adds
      an objective, that every answer be good by itself: a failing answer beside a good one is no longer free.

    Where the set scores of a group are equal, "prefix" and "marginal" give no credit. Kinds may be added, each with a
    factor if need be: "prefix+own", "prefix+0.5*own".

    Args:
        groups: the batch.
        credit: "prefix", "marginal", "own", or a sum of them.

    Raises:
        ValueError: an unknown kind of credit.
    """
    values = groups.utilities(groups.drawn_weights())
    scores = _set_scores(values)
    total = torch.zeros_like(groups.rewards[..., 0])
    for term in str(credit).split("+"):
        if not (match := _TERM.fullmatch(term.strip())):
            raise ValueError(
                f"credit must be 'prefix', 'marginal' or 'own', or a sum such as 'prefix+0.5*own'; got {credit!r}"
            )
        factor, kind = match.groups()
        if kind == "own":
            answers = groups.valid[..., None].expand_as(total)
            added = standardise(groups.scalar_scores(), answers, dim=(1, 2))
        else:
            added = _from_other_answers(kind == "prefix", values, scores, groups.valid)
        total += float(factor or 1) * added
    return Advantages(standardise(scores, groups.valid), scores, total)


def _from_other_answers(prefix: bool, values: Tensor, scores: Tensor, valid: Tensor) -> Tensor:
    """Return prefix or marginal credit, (P, G, m), from `utilities` (P, G, m, K) and the set scores (P, G)."""
    num_answers = values.shape[2]
    centred, _, deviation = centre(scores, valid)
    each = []
    for s in range(num_answers):
        if prefix:
            # Nothing precedes the first answer, so its credit is 0.
            known, _, _ = centre(_set_scores(values[:, :, :s]), valid)
            slope = (centred * known).sum() / known.square().sum().clamp(min=EPSILON)
            each.append(standardise(scores - slope * known, valid) - standardise(scores, valid))
        else:
            others = [i for i in range(num_answers) if i != s]
            each.append(standardise(scores - _set_scores(values[:, :, others]), valid))
    return torch.where(deviation[..., None] < EPSILON, 0.0, torch.stack(each, dim=-1))


def _set_scores(values: Tensor) -> Tensor:
    """Return R(S) = 1/K sum_k max_s u_k(s) over the utilities (P, G, m, K), 0 of no answer: (P, G)."""
    return values.amax(dim=2).mean(dim=-1) if values.shape[2] else values.sum(dim=(2, 3))
