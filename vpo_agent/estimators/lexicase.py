"""Lexicase selection as a score: how likely the best answer of the group, objective by objective, is in a rollout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vpo_agent.estimators.registry import Advantages, register_estimator, standardise
from vpo_agent.estimators.reward_groups import RewardGroups


@register_estimator("vpo_lexicase", answers="set")
def vpo_lexicase(groups: RewardGroups) -> Advantages:
    """Probability that a lexicase selection among all answers of the group picks one of this rollout, standardised.

    Lexicase selection (Spector 2012) takes the objectives in a uniformly random order and keeps, at each, the answers
    that are best at it; answers that are left in the end are equally likely. So a specialist is worth as much as the
    orders that it wins, whatever it earns elsewhere. The probabilities are exact and sum to 1 over the valid rollouts
    of a group. They are the limit of drawn weights from "dalex" for sigma to infinity, if the score of a rollout is the
    share of the weights under which it holds the best answer of the group.
    """
    scores = torch.zeros_like(groups.rewards[..., 0, 0])
    num_answers = groups.rewards.shape[2]
    for place, (rewards, valid) in enumerate(zip(groups.rewards, groups.valid, strict=True)):
        vectors = [tuple(vector) for vector in rewards[valid].flatten(0, 1).tolist()]
        if vectors:
            chances = torch.tensor(lexicase_probabilities(vectors), dtype=scores.dtype, device=scores.device)
            scores[place, valid] = chances.view(-1, num_answers).sum(dim=1)
    return Advantages(standardise(scores, groups.valid), scores)


def lexicase_probabilities(vectors: Sequence[tuple[float, ...]]) -> list[float]:
    """Return the probability of each reward vector to be selected by lexicase selection, exactly.

    After some objectives only the survivors matter: an objective at which they tie, such as one taken before, changes
    nothing, and each of the others is equally likely to be the next that does. So the sets of survivors are the states
    of a recursion, and there are far fewer of them than orders of the objectives.

    Args:
        vectors: n reward vectors of d objectives; equal ones share their probability.

    Returns:
        n probabilities, summing to 1.
    """
    distinct = list(dict.fromkeys(vectors))
    # The probability of each set of survivors, by its size.
    reached: list[dict[frozenset[int], float]] = [{} for _ in range(len(distinct) + 1)]
    reached[-1][frozenset(range(len(distinct)))] = 1.0
    for size in range(len(distinct), 1, -1):
        for survivors, probability in reached[size].items():
            columns = list(zip(*(distinct[i] for i in survivors), strict=True))
            telling = [objective for objective, values in enumerate(columns) if len(set(values)) > 1]
            for objective in telling:
                best = max(columns[objective])
                left = frozenset(i for i in survivors if distinct[i][objective] == best)
                reached[len(left)][left] = reached[len(left)].get(left, 0.0) + probability / len(telling)
    chances = {distinct[i]: probability for (i,), probability in reached[1].items()}
    return [chances.get(vector, 0.0) / vectors.count(vector) for vector in vectors]
