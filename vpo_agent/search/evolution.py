"""Evolution of answers; one call of the policy samples for all instances at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import get_args

import numpy as np

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.search.continuation import Continuer
from vpo_agent.search.goal import Goal, check_goal
from vpo_agent.search.instances import Archive, Env, Instance, check_budget, log_answers
from vpo_agent.search.records import SearchResult
from vpo_agent.search.responses import sample_responses
from vpo_agent.search.variation import Answer, Variation, before, random_prefix, read_answers, rewrite_prompt
from vpo_envs.text import answer_tags


def evolve(
    env: Env,
    policy: LMPolicy,
    indices: Sequence[int],
    *,
    budget: int = 200,
    tokens: int | None = None,
    start: int = 30,
    offspring: int = 5,
    fresh: float = 0.1,
    variation: Variation = "prefix",
    goal: Goal = "scalar",
    seed: int = 0,
    max_new_tokens: int = 1024,
    temperature: float = 1.0,
) -> SearchResult:
    """Search for good answers by varying those found so far.

    The budget counts answers, those of the start included, so it is equal for policies that write one answer per
    response and for those that write sets. An instance whose answers are worth as much as its exact
    front is not sampled further. What an instance finds does not depend on the other instances of the search.

    Args:
        env: The environment; its ``num_answers`` says how many answers a response holds.
        policy: The model.
        indices: Instances of the environment's split.
        budget: Answers to each.
        tokens: Tokens sampled for each, a budget in place of that of answers.
        start: How many of them are sampled as whole responses first, as best-of-n does.
        offspring: Children of an instance per call of the policy, all from the same archive.
        fresh: The share of children that keep nothing of a parent: an answer of the start is resampled, after the
            answers before it in its response.
        variation: ``"prefix"``, for any causal model, or ``"rewrite"``, for one that follows instructions.
        goal: What is searched for: the best ``"scalar"`` reward, or the expected ``"utility"`` of all answers together.
        seed: Keys the random streams.
        max_new_tokens: Longest response, in tokens.
        temperature: Sampling temperature.

    Raises:
        ValueError: A number is out of range, the variation or goal unknown, or an index outside the split.
    """
    check_budget(budget, tokens)
    if start < 1 or offspring < 1:
        raise ValueError(f"start and offspring must be at least 1, got {start} and {offspring}")
    if not 0 <= fresh <= 1:
        raise ValueError(f"fresh must be from 0 to 1, got {fresh}")
    if variation not in get_args(Variation):
        raise ValueError(f"unknown variation {variation!r}: choose one of {', '.join(get_args(Variation))}")
    check_goal(goal)
    m = env.num_answers
    instances = [Instance(env, index, budget, goal, tokens) for index in indices]
    prompts = [env.prompt(one.task, m) for one in instances]
    continuing = partial(Continuer, policy, max_new_tokens=max_new_tokens, temperature=temperature)
    continuer = continuing(prompts)
    starts = sample_responses(env, continuer, instances, min(start, budget), seed)
    streams = [np.random.default_rng([seed, one.index, 1]) for one in instances]
    while any(not one.done for one in instances):
        drawn = [
            (i, one.sampled + ahead)
            for i, one in enumerate(instances)
            if not one.done
            for ahead in range(min(offspring, one.room))
        ]
        rows = [i for i, _ in drawn]
        keys = [(seed, instances[i].index, 1, number) for i, number in drawn]
        children: list[Answer | None]
        if variation == "prefix":
            begun = [_begin(instances[i].archive, starts[i], fresh, streams[i]) for i in rows]
            closings = [answer_tags(m)[position - 1][1] for _, position in begun]
            new = continuer.finish(rows, [beginning for beginning, _ in begun], closings, keys)
            children = [
                read_answers(policy.tokenizer, [*beginning, *rest], m)[position - 1]
                for (beginning, position), rest in zip(begun, new, strict=True)
            ]
        else:
            asks = [_ask(env, instances[i], fresh, streams[i]) for i in rows]
            closings = [answer_tags(1)[0][1]] * len(rows)
            new = continuing(asks).finish(range(len(rows)), [[]] * len(rows), closings, keys)
            children = [read_answers(policy.tokenizer, response, 1)[0] for response in new]
        log_answers(env, instances, rows, children, [len(sampled) for sampled in new])
    return SearchResult(f"evolve ({variation})", env.objective_names, tuple(one.record() for one in instances), tokens)


def _begin(archive: Archive, starts: Sequence[Answer], fresh: float, rng: np.random.Generator) -> tuple[list[int], int]:
    """Return the tokens that the next child keeps, and which answer of its response it is."""
    if rng.random() < fresh or not len(archive):
        if not starts:
            return [], 1
        place = starts[int(rng.integers(len(starts)))]
        return before(place), place.position
    parent, _ = archive.parent(rng)
    return random_prefix(parent, rng), parent.position


def _ask(env: Env, instance: Instance, fresh: float, rng: np.random.Generator) -> str:
    """Return the prompt that the next child answers."""
    prompt = env.prompt(instance.task, 1)
    if rng.random() < fresh or not len(instance.archive):
        return prompt
    parent, reward = instance.archive.parent(rng)
    return rewrite_prompt(prompt, parent.text, env.objective_names, reward, instance.active)
