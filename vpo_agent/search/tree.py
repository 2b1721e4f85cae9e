"""Beam search: an answer grows segment by segment, and the values of unfinished answers say which of them go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.search.continuation import Continuer
from vpo_agent.search.instances import Env, Instance, log_answers
from vpo_agent.search.records import SearchResult
from vpo_agent.search.settings import Settings
from vpo_agent.search.values import Verifier, check_values
from vpo_agent.search.variation import Answer, decode, read_answers
from vpo_envs.text import answer_tags


def beam_search(env: Env, policy: LMPolicy, indices: Sequence[int], settings: Settings) -> SearchResult:
    """Search for good answers by the values of unfinished ones.

    A tree grows one answer, after those that the response has already. Each unfinished text of it gets ``branches``
    sampled continuations of ``segment`` tokens; the ``width`` best texts are kept, finished ones among them; the tree
    ends when all of these are finished. The best then stays in the response, and the next tree grows the next answer,
    or the first one of a new response. All finished answers are logged, each with the tokens sampled since the one
    before, so discarded continuations count. A budget of tokens is kept exactly: the last segment is cut.

    A text is worth what its best completions add, under the goal, to the answers of earlier trees. Arguments and errors
    are those of :func:`~vpo_agent.search.evolution.evolve`; the environment must value unfinished answers.
    """
    instances = [Instance(env, index, settings) for index in indices]
    trees = []
    for one in instances:
        check_values(env, one.task)
        trees.append(Trees(policy, one, Verifier(env, one.task, one.weightings), env.num_answers, settings))
    continuer = Continuer(policy, [env.prompt(one.task, env.num_answers) for one in instances], settings)
    while growing := [i for i, one in enumerate(instances) if not (one.done and one.sampled)]:
        rows = [(i, row) for i in growing for row in trees[i].rows]
        segments = iter(
            continuer.finish(
                [i for i, _ in rows],
                [row.text.tokens for _, row in rows],
                [row.stop for _, row in rows],
                [(settings.seed, instances[i].index, 2, row.number) for i, row in rows],
                [row.most for _, row in rows],
            )
        )
        ended = {i: trees[i].extend([next(segments) for _ in trees[i].rows]) for i in growing}
        owners = [i for i, found in ended.items() for _ in found]
        answers = [answer for found in ended.values() for answer, _ in found]
        costs = [cost for found in ended.values() for _, cost in found]
        rewards = iter(log_answers(env, instances, owners, answers, costs))
        for i, found in ended.items():
            trees[i].select([next(rewards) for _ in found])
    records = tuple(one.record() for one in instances)
    return SearchResult("beam", env.objective_names, records, settings.tokens)


@dataclass(eq=False)
class Text:
    """A response up to some token of the answer that a tree grows."""

    tokens: tuple[int, ...]
    begun: bool = False
    """Whether the answer's opening tag is written."""
    partial: str = ""
    """The text of the unfinished answer."""
    answer: Answer | None = None
    """The answer, if it is finished."""
    value: float = 0.0


class Row(NamedTuple):
    """A continuation to sample."""

    text: Text
    stop: str
    """The tag that ends it."""
    most: int
    """The most tokens it has."""
    number: int
    """Of the rows of this instance, from 0."""


class Trees:
    """The trees of one instance, one after another: each grows an answer of a response."""

    def __init__(
        self,
        policy: LMPolicy,
        instance: Instance,
        verifier: Verifier,
        num_answers: int,
        settings: Settings,
    ) -> None:
        self.rows: list[Row]
        """What to sample next."""
        self._tokenizer = policy.tokenizer
        self._ending = frozenset(policy.ending_ids)
        self._instance = instance
        self._verifier = verifier
        self._num_answers = num_answers
        self._settings = settings
        self._sampled = 0
        """Rows sampled."""
        self._unlogged = 0
        """Tokens sampled since the last answer that was logged."""
        self._position = 0
        """Which answer of the response the tree grows, from 0."""
        self._children: list[Text] = []
        """What the last segments gave; :meth:`select` keeps the best."""
        self._plant(())

    def extend(self, segments: Sequence[Sequence[int]]) -> list[tuple[Answer | None, int]]:
        """Add the tokens sampled for each row, as far as the budget goes.

        Returns:
            What is to be logged: finished answers with the tokens sampled since the one before; ``None`` for the tokens
            at the end of a budget, or of a tree without an answer.
        """
        ended: list[tuple[Answer | None, int]] = []
        children: dict[tuple[int, ...], Text | None] = {}
        left = self._instance.tokens_left
        for row, tokens in zip(self.rows, segments, strict=True):
            tokens = tokens if left is None else tokens[: left - self._unlogged]
            self._unlogged += len(tokens)
            response = (*row.text.tokens, *tokens)
            if not tokens or response in children:
                continue
            child = children[response] = self._read(response)
            if child is not None and child.answer is not None:
                ended.append((child.answer, self._unlogged))
                left = None if left is None else left - self._unlogged
                self._unlogged = 0
        self._children = [child for child in children.values() if child is not None]
        barren = not self._children and not any(text.answer for text in self._kept)
        if self._unlogged and (barren or left == self._unlogged):
            ended.append((None, self._unlogged))
            self._unlogged = 0
        return ended

    def select(self, rewards: Sequence[NDArray[np.float32]]) -> None:
        """Keep the best texts, or begin the next tree; ``rewards`` (d,) are those of what :meth:`extend` returned."""
        of_answers = iter(rewards)
        for child in self._children:
            if child.answer is None:
                child.value = self._verifier.unfinished(child.partial, self._reached)
            else:
                reward = next(of_answers)
                child.value = self._verifier.finished(child.answer.text, reward, self._reached)
        finished = [text for text in self._kept if text.answer is not None]
        # A stable sort: of equally good texts the ones sampled first stay.
        kept = sorted([*finished, *self._children], key=lambda text: -text.value)[: self._settings.width]
        if all(text.answer for text in kept):
            self._plant(kept[0].answer.response if kept and kept[0].answer else ())
        else:
            self._keep(kept)

    def _plant(self, response: tuple[int, ...]) -> None:
        """Begin the next tree after ``response``, or anew if that is empty or has no room for a further answer."""
        position = self._position + 1
        if not response or position == self._num_answers or len(response) >= self._settings.max_new_tokens:
            response, position = (), 0
        self._position = position
        self._reached = self._instance.reached
        self._keep([Text(response)])

    def _keep(self, texts: list[Text]) -> None:
        """Ask for continuations of those ``texts`` that are not finished."""
        self._kept = texts
        self.rows = []
        opening, closing = self._tags
        for text in texts:
            if text.answer is None:
                if text.begun:
                    branches, stop, most = self._settings.branches, closing, self._settings.segment
                else:
                    # Nothing before the opening tag changes a value, so there would be nothing to choose between.
                    branches, stop, most = 1, opening, self._settings.max_new_tokens
                numbers = range(self._sampled, self._sampled + branches)
                self.rows += [Row(text, stop, most, number) for number in numbers]
                self._sampled += branches

    @property
    def _tags(self) -> tuple[str, str]:
        return answer_tags(self._num_answers)[self._position]

    def _read(self, response: tuple[int, ...]) -> Text | None:
        """Return a response as a text; ``None`` if it ended without the answer."""
        answer = read_answers(self._tokenizer, response, self._num_answers)[self._position]
        if answer is not None:
            return Text(answer.response, begun=True, answer=answer)
        if response[-1] in self._ending or len(response) >= self._settings.max_new_tokens:
            return None
        opening, closing = self._tags
        _, begun, partial = decode(self._tokenizer, response).rpartition(opening)
        if not begun:
            return Text(response)
        # A closing tag may be several tokens, and its first ones are no part of the answer.
        cut = next((size for size in range(len(closing) - 1, 0, -1) if partial.endswith(closing[:size])), 0)
        return Text(response, begun=True, partial=partial[: len(partial) - cut])
