"""Process credit: advantages of single tokens from what the answers could still become.

The potential of an unfinished response is E_w max(best_w of the answers so far, V_w(what is written of the next one)),
where V_w is the best that a completion can get. Within an answer each move can only lower it, by the regret of that
move. After the last answer it is the score R of the response.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vpo_agent.estimators.registry import EPSILON, Advantages, centre, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups
from vpo_agent.estimators.set_scores import mixed_scores, utilities

ProcessCredit = Literal["return", "regret"]


@register_estimator("vpo_process", answers="set", needs_weights=True, needs_potentials=True)
def vpo_process(groups: RewardGroups, *, credit: ProcessCredit = "return") -> Advantages:
    """Set score of `vpo`, with credit for each token from the exact values of unfinished answers.

    P_sj is the potential before token j of answer s. Its mean, and that of its falls, is over the rollouts of the group
    with a token at that place. Advantages are divided by their deviation over all tokens of answers in the group.

    - "return": R - mean R - b_s (P_sj - mean P_sj). A potential depends only on what stands before its token, so this
      leaves out the chance of earlier moves without a bias but that of estimating means and slopes from the batch. b_s
      is the slope of the regression of R on P_sj over the batch, which leaves the least variance. With b_s = 1 it is
      the sum of the regrets from this token on, and the slope of the last answer is nearly 1. The potential of an
      earlier answer knows nothing of those after it, so its slope is lower. Groups of equal scores get zeros.
    - "regret": P_s,j+1 - P_sj, less its mean: what this move alone gives away. It has far less noise, but is biased: it
      rates a move by the best that can follow, not by what this policy does next, and an answer by what it adds to
      those before it. It also tells moves apart where all scores are equal.

    Tokens outside the answers keep the advantage of `vpo`.

    Args:
        groups: the batch.
        credit: "return" or "regret".

    Raises:
        ValueError: an unknown kind of credit.
    """
    return _process_credit(groups, mixed_scores(utilities(groups.rewards, groups.drawn_weights())), credit)


@register_estimator("grpo_process", answers="single", needs_potentials=True)
def grpo_process(groups: RewardGroups, *, credit: ProcessCredit = "return") -> Advantages:
    """Scalar reward of `grpo`, with credit for each token from the exact values of unfinished answers.

    It is `vpo_process` with one answer and the fixed weights.
    """
    return _process_credit(groups, groups.scalar_scores().squeeze(-1), credit)


def _process_credit(groups: RewardGroups, scores: Tensor, credit: ProcessCredit) -> Advantages:
    """Return advantages and credit from the scores (P, G)."""
    if credit not in ("return", "regret"):
        raise ValueError(f"credit must be 'return' or 'regret'; got {credit!r}")
    potentials = groups.known_potentials()
    # The last entry of an answer has no token after it.
    written = ~potentials[..., 1:].isnan() & groups.valid[..., None, None]
    if credit == "regret":
        pulls, _, _ = centre(potentials.diff(dim=-1).nan_to_num(), written)
    else:
        known, _, _ = centre(potentials[..., :-1].nan_to_num(), written)
        gains, _, _ = centre(scores, groups.valid)
        pulls = torch.where(written, gains[..., None, None], 0.0)
        over = (0, 1, 3)
        slope = (pulls * known).sum(over, keepdim=True) / known.square().sum(over, keepdim=True).clamp(min=EPSILON)
        pulls = torch.where(gains.any(dim=1)[:, None, None, None], pulls - slope * known, 0.0)
    count = written.sum((1, 2, 3), keepdim=True).clamp(min=1)
    deviation = (pulls.square().sum((1, 2, 3), keepdim=True) / count).sqrt()
    of_tokens = torch.where(deviation < EPSILON, 0.0, pulls / (deviation + EPSILON))
    plain = standardise(scores, groups.valid)
    return Advantages(plain, scores, torch.where(written, of_tokens - plain[..., None, None], 0.0))
