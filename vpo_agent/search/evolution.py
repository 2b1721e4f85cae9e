"""Evolution of answers; one call of the policy samples for all tasks at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.turns import response_tokens
from vpo_agent.search.continuation import Continuer
from vpo_agent.search.records import SearchResult
from vpo_agent.search.settings import Settings
from vpo_agent.search.tasks import Archive, SearchedTask, check_searchable, log_answers
from vpo_agent.search.variation import Answer, before, random_prefix, read_answers
from vpo_envs.core import AnyEnv
from vpo_envs.text import answer_tags, with_reply

FRESH = 0.1
"""Share of children that keep nothing of a parent."""


def best_of_n(env: AnyEnv, policy: LMPolicy, indices: Sequence[int], settings: Settings) -> SearchResult:
    """Sample answers to each task as whole responses, without the surplus answers of the last one.

    With a budget of tokens the last response is cut where they are spent. Arguments and errors are as for
    :func:`~vpo_agent.search.evolution.evolve`.
    """
    check_searchable(env, type(env).__name__)
    tasks = [SearchedTask(env, index, settings) for index in indices]
    prompts = [env.chat_prompt(searched.task, env.num_answers) for searched in tasks]
    continuer = Continuer(policy, prompts, settings)
    responses, ahead = 0, settings.iterations if settings.tokens is None else 1
    while any(searched.room for searched in tasks):
        sample_responses(env, continuer, tasks, ahead, settings.seed, begun=responses)
        # Answers beyond the budget are not logged, so how many are sampled at the same time changes nothing else.
        responses += -(-ahead // env.num_answers)
        ahead = max(-(-searched.room * searched.sampled // max(searched.spent, 1)) for searched in tasks)
    records = tuple(searched.record() for searched in tasks)
    return SearchResult("best-of-n", env.objective_names, records, settings.tokens)


def sample_responses(
    env: AnyEnv, continuer: Continuer, tasks: Sequence[SearchedTask], count: int, seed: int, *, begun: int = 0
) -> list[list[Answer]]:
    """Sample whole responses until each task with room has ``count`` more answers, and log the answers.

    Args:
        env: The environment.
        continuer: Samples responses to the prompts of the tasks.
        tasks: The tasks.
        count: Answers to each task, without the surplus answers of the last response.
        seed: Seed of the search.
        begun: Responses to each task that were sampled before.

    Returns:
        The readable answers to each task.
    """
    m = env.num_answers
    closing = answer_tags(m)[-1][1]
    with_room = [number for number, searched in enumerate(tasks) if searched.room]
    rows = [(number, response) for number in with_room for response in range(-(-count // m))]
    sampled = continuer.finish(
        [number for number, _ in rows],
        [[]] * len(rows),
        [closing] * len(rows),
        [(seed, tasks[number].index, 0, begun + response) for number, response in rows],
    )
    numbers: list[int] = []
    answers: list[Answer | None] = []
    costs: list[int] = []
    readable: list[list[Answer]] = [[] for _ in tasks]
    for (number, response), tokens in zip(rows, sampled, strict=True):
        in_response = read_answers(continuer.policy.chat, tokens, m)
        kept = in_response[: count - response * m]
        numbers += [number] * len(kept)
        answers += kept
        costs += _costs(in_response, len(tokens))[: len(kept)]
        readable[number] += [answer for answer in kept if answer is not None]
    log_answers(env, tasks, numbers, answers, costs)
    return readable


def _costs(answers: Sequence[Answer | None], tokens: int) -> list[int]:
    """Return the tokens of each answer, from the end of the answer before; the last also gets the tokens after it."""
    costs, spent = [], 0
    for answer in answers:
        end = spent if answer is None else max(spent, len(answer.response))
        costs.append(end - spent)
        spent = end
    costs[-1] += tokens - spent
    return costs


def evolve(env: AnyEnv, policy: LMPolicy, indices: Sequence[int], settings: Settings) -> SearchResult:
    """Search for good answers by varying those found so far.

    A task is not sampled further once the score of its answers reaches the score of its exact front. What the search
    finds for a task does not depend on the other tasks.

    Raises:
        ValueError: An environment that replies, an index outside the split, or prompts and responses that are too
            long for the model.
    """
    check_searchable(env, type(env).__name__)
    m, seed = env.num_answers, settings.seed
    tasks = [SearchedTask(env, index, settings) for index in indices]
    continuer = Continuer(policy, [env.chat_prompt(searched.task, m) for searched in tasks], settings)
    starts = sample_responses(env, continuer, tasks, min(settings.start, settings.iterations), seed)
    streams = [np.random.default_rng([seed, searched.index, 1]) for searched in tasks]
    closing_tags = [closing for _, closing in answer_tags(m)]
    while any(not searched.done for searched in tasks):
        # One row for each child; the lists go together.
        rows: list[int] = []
        keys: list[tuple[int, ...]] = []
        begun: list[Beginning] = []
        for number, searched in enumerate(tasks):
            if searched.done:
                continue
            for child in range(min(settings.offspring, searched.room)):
                parent = _draw_parent(searched.archive, streams[number])
                beginning = None
                if parent is not None and settings.feedback:
                    beginning = told(env, continuer, number, searched, parent)
                rows.append(number)
                keys.append((seed, searched.index, 1, searched.sampled + child))
                begun.append(beginning or _begin(parent, starts[number], streams[number]))
        closings = [closing_tags[beginning.position - 1] for beginning in begun]
        beginnings, are_told = [beginning.tokens for beginning in begun], [beginning.is_told for beginning in begun]
        new_tokens = continuer.finish(rows, beginnings, closings, keys, are_told)
        children = []
        for beginning, rest in zip(begun, new_tokens, strict=True):
            response = rest if beginning.is_told else [*beginning.tokens, *rest]
            children.append(read_answers(policy.chat, response, m)[beginning.position - 1])
        log_answers(env, tasks, rows, children, [len(tokens) for tokens in new_tokens])
    records = tuple(searched.record() for searched in tasks)
    return SearchResult("evolve", env.objective_names, records, settings.tokens)


class Beginning(NamedTuple):
    """What stands before the new tokens of a child."""

    tokens: list[int]
    position: int
    """The child's position in its response, 1 to m."""
    is_told: bool = False
    """Whether the tokens are another attempt and its results, and not the beginning of the child's own response."""


def _draw_parent(archive: Archive, rng: np.random.Generator) -> Answer | None:
    """Return a parent; ``None`` for a child that keeps nothing."""
    return None if rng.random() < FRESH or not len(archive) else archive.parent(rng)


def _begin(parent: Answer | None, starts: Sequence[Answer], rng: np.random.Generator) -> Beginning:
    """Return a part of the parent, or without one what stands before an answer of the first responses."""
    if parent is not None:
        return Beginning(random_prefix(parent, rng), parent.position)
    if not starts:
        return Beginning([], 1)
    start = starts[int(rng.integers(len(starts)))]
    return Beginning(before(start), start.position)


def told(env: AnyEnv, continuer: Continuer, prompt: int, searched: SearchedTask, parent: Answer) -> Beginning | None:
    """Return the parent as the first attempt of a response, with the environment's reply to it.

    ``None`` if there is nothing to say, or no room for it.
    """
    reply = env.feedback(searched.task, parent.text)
    if reply is None:
        return None
    opening, closing = answer_tags(env.num_answers)[0]
    chat = continuer.policy.chat
    [tokens], _ = response_tokens(chat, [with_reply(f"{chat.closed}{opening}{parent.text}{closing}", reply)])
    if not continuer.has_room(prompt, len(tokens)):
        return None
    return Beginning(tokens, min(2, env.num_answers), is_told=True)
