"""Best-of-n: independent responses to each prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpo_agent.measure.metrics import best_at_k
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.search.continuation import Continuer
from vpo_agent.search.goal import Goal, ranked_values
from vpo_agent.search.instances import Env, Instance, log_answers
from vpo_agent.search.records import SearchResult
from vpo_agent.search.settings import Settings
from vpo_agent.search.variation import Answer, read_answers
from vpo_envs.text import answer_tags


def best_of_n(env: Env, policy: LMPolicy, indices: Sequence[int], settings: Settings) -> SearchResult:
    """Sample answers to each instance as whole responses, without the surplus answers of the last one.

    With a budget of tokens the last response is cut where they are spent. Arguments and errors are those of
    :func:`~vpo_agent.search.evolution.evolve`.
    """
    instances = [Instance(env, index, settings) for index in indices]
    continuer = Continuer(policy, [env.prompt(one.task, env.num_answers) for one in instances], settings)
    responses, ahead = 0, settings.iterations if settings.tokens is None else 1
    while any(one.room for one in instances):
        sample_responses(env, continuer, instances, ahead, settings.seed, begun=responses)
        # Answers beyond the budget are not logged, so how many are sampled at the same time changes nothing else.
        responses += -(-ahead // env.num_answers)
        ahead = max(-(-one.room * one.sampled // max(one.spent, 1)) for one in instances)
    return SearchResult("best-of-n", env.objective_names, tuple(one.record() for one in instances), settings.tokens)


def sample_responses(
    env: Env, continuer: Continuer, instances: Sequence[Instance], count: int, seed: int, *, begun: int = 0
) -> list[list[Answer]]:
    """Sample whole responses until each instance with room has ``count`` more answers; log them, return the readable.

    ``begun`` responses have been sampled before.
    """
    m = env.num_answers
    responses = -(-count // m)
    closing = answer_tags(m)[-1][1]
    rows = [(i, r) for i, one in enumerate(instances) if one.room for r in range(responses)]
    keys = [(seed, instances[i].index, 0, begun + r) for i, r in rows]
    sampled = continuer.finish([i for i, _ in rows], [[]] * len(rows), [closing] * len(rows), keys)
    found: list[tuple[int, Answer | None, int]] = []
    for (i, r), tokens in zip(rows, sampled, strict=True):
        answers = read_answers(continuer.policy.tokenizer, tokens, m)
        wanted = list(zip(answers, _costs(answers, len(tokens)), strict=True))[: count - r * m]
        found += [(i, answer, cost) for answer, cost in wanted]
    places, costs = [i for i, _, _ in found], [cost for _, _, cost in found]
    log_answers(env, instances, places, [answer for _, answer, _ in found], costs)
    return [[answer for place, answer, _ in found if place == i and answer is not None] for i in range(len(instances))]


def best_of_pool(pool: Pool, budget: int, goal: Goal = "scalar") -> Floats:
    """Return the exact expected value of 1 to ``budget`` answers of a saved pool, (N, budget).

    It is the best scalar reward, or the expected utility of the answers together.

    Raises:
        ValueError: The pool holds fewer answers.
    """
    ranked, _ = ranked_values(pool, goal)
    return np.stack([best_at_k(ranked, k) for k in range(1, budget + 1)], axis=1)


def _costs(answers: Sequence[Answer | None], tokens: int) -> list[int]:
    """Tokens of each answer, counted from the end of the one before; the last also gets those after it."""
    costs, spent = [], 0
    for answer in answers:
        end = spent if answer is None else max(spent, len(answer.response))
        costs.append(end - spent)
        spent = end
    costs[-1] += tokens - spent
    return costs
