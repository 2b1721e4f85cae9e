"""Evolution of answers; one call of the policy samples for all instances at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.search.continuation import Continuer
from vpo_agent.search.instances import Archive, Instance, log_answers
from vpo_agent.search.records import SearchResult
from vpo_agent.search.settings import Settings
from vpo_agent.search.variation import Answer, before, random_prefix, read_answers
from vpo_envs.core import AnyEnv
from vpo_envs.text import answer_tags

FRESH = 0.1
"""Share of children that keep nothing of a parent."""


def best_of_n(env: AnyEnv, policy: LMPolicy, indices: Sequence[int], settings: Settings) -> SearchResult:
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
    env: AnyEnv, continuer: Continuer, instances: Sequence[Instance], count: int, seed: int, *, begun: int = 0
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


def _costs(answers: Sequence[Answer | None], tokens: int) -> list[int]:
    """Tokens of each answer, counted from the end of the one before; the last also gets those after it."""
    costs, spent = [], 0
    for answer in answers:
        end = spent if answer is None else max(spent, len(answer.response))
        costs.append(end - spent)
        spent = end
    costs[-1] += tokens - spent
    return costs


def evolve(env: AnyEnv, policy: LMPolicy, indices: Sequence[int], settings: Settings) -> SearchResult:
    """Search for good answers by varying those found so far.

    An instance whose answers are worth as much as its exact front is not sampled further. What an instance finds does
    not depend on the other instances of the search.

    Raises:
        ValueError: An index outside the split, or prompts and responses that are too long for the model.
    """
    m, seed = env.num_answers, settings.seed
    instances = [Instance(env, index, settings) for index in indices]
    continuer = Continuer(policy, [env.prompt(one.task, m) for one in instances], settings)
    starts = sample_responses(env, continuer, instances, min(settings.start, settings.iterations), seed)
    streams = [np.random.default_rng([seed, one.index, 1]) for one in instances]
    while any(not one.done for one in instances):
        drawn = [
            (i, one.sampled + ahead)
            for i, one in enumerate(instances)
            if not one.done
            for ahead in range(min(settings.offspring, one.room))
        ]
        rows = [i for i, _ in drawn]
        keys = [(seed, instances[i].index, 1, number) for i, number in drawn]
        begun = [_begin(instances[i].archive, starts[i], streams[i]) for i in rows]
        closings = [answer_tags(m)[position - 1][1] for _, position in begun]
        new = continuer.finish(rows, [beginning for beginning, _ in begun], closings, keys)
        children = [
            read_answers(policy.tokenizer, [*beginning, *rest], m)[position - 1]
            for (beginning, position), rest in zip(begun, new, strict=True)
        ]
        log_answers(env, instances, rows, children, [len(sampled) for sampled in new])
    records = tuple(one.record() for one in instances)
    return SearchResult("evolve", env.objective_names, records, settings.tokens)


def _begin(archive: Archive, starts: Sequence[Answer], rng: np.random.Generator) -> tuple[list[int], int]:
    """Return the tokens that the next child keeps, and which answer of its response it is."""
    if rng.random() < FRESH or not len(archive):
        if not starts:
            return [], 1
        place = starts[int(rng.integers(len(starts)))]
        return before(place), place.position
    parent = archive.parent(rng)
    return random_prefix(parent, rng), parent.position
