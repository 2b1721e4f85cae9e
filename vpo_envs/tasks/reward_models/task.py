"""A prompt with reference answers, and scores that are remembered and placed among the scores of the references."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from envs_data.readers import BadRow
from vpo_envs.core import Failure, Objective, ScorerFailure, Task
from vpo_envs.tasks.base import entry


class RewardTask(Task):
    """One prompt."""

    request: str = Field(min_length=1)
    """What the model is asked."""
    references: tuple[str, ...] = Field(min_length=2)
    """Answers from poor to good, in any order; a score's place among theirs is the reward."""

    @property
    def canonical(self) -> str:
        """The prompt."""
        return self.request


def read_prompt_row(raw: Mapping[str, Any]) -> RewardTask:
    """Return the task of a row with ``prompt`` and ``references``, a list of at least two answers."""
    if "prompt" not in raw and "references" not in raw:
        raise BadRow("", "unknown schema: a row has prompt, and references, a list of at least two answers to it")
    for field in ("prompt", "references"):
        if field not in raw:
            raise BadRow(field, "Field required")
    return RewardTask(request=raw["prompt"], references=raw["references"])


Pair = tuple[str, str]
"""A request and an answer to it."""
Scores = tuple[float, ...]
"""Raw scores of one answer, one for each head."""
Scorer = Callable[[Sequence[Pair]], "list[Scores | ScorerFailure]"]
"""Scores several answers; a failure stands where an answer could not be scored."""
REMEMBERED = 100_000


class ScoreCache:
    """Scores each request and answer once and remembers the latest; failures are tried again."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._known: OrderedDict[Pair, Scores] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, pairs: Sequence[Pair]) -> list[Scores | ScorerFailure]:
        """Return the scores of each pair, in order."""
        # One batch at a time: a model on a device is not shared between threads.
        with self._lock:
            new = list(dict.fromkeys(pair for pair in pairs if pair not in self._known))
            failed: dict[Pair, ScorerFailure] = {}
            for pair, scores in zip(new, self._scorer(new) if new else [], strict=True):
                if isinstance(scores, ScorerFailure):
                    failed[pair] = scores
                else:
                    self._known[pair] = scores
            results: list[Scores | ScorerFailure] = []
            for pair in pairs:
                if pair in failed:
                    results.append(failed[pair])
                else:
                    self._known.move_to_end(pair)
                    results.append(self._known[pair])
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return results


def quantile(score: float, references: Sequence[float]) -> float:
    """Return the place of a score among reference scores, in [0, 1].

    0 at or below the lowest reference, 1 at or above the highest, linear between neighbours, so that R different
    references lie at 0, 1/(R−1), …, 1. Equal references share the middle of their places, and the places of the lowest
    and the highest ones are stretched to 0 and 1. Where all are equal, a score equal to them is at 0.5.
    """
    if references[0] == references[-1]:
        return 0.5 + 0.5 * ((score > references[0]) - (score < references[0]))
    middles = [bisect_left(references, value) + bisect_right(references, value) - 1 for value in references]
    rank = float(np.interp(score, references, middles))
    return (rank - middles[0]) / (middles[-1] - middles[0])


class RewardOutcome(NamedTuple):
    """The facts about one answer that the objectives look at."""

    quantiles: tuple[float, ...]
    """Place of each score among those of the references, in [0, 1]."""
    scores: tuple[float, ...]
    """What the models gave, before calibration."""


def objectives_of(described: Sequence[tuple[str, str]]) -> tuple[Objective, ...]:
    """Return one objective for the name and the description of each score."""
    return tuple(Objective(name, text, entry("quantiles", i)) for i, (name, text) in enumerate(described))


def evaluate_all(
    models: Sequence[Callable[[], ScoreCache]], pairs: Sequence[tuple[RewardTask, str]]
) -> list[RewardOutcome | Failure]:
    """Load every model, score answers with each in one batch, and compare them with the references of their tasks."""
    texts: list[Pair] = []
    for task, answer in pairs:
        texts += [(task.request, text) for text in (answer, *task.references)]
    scores: list[list[float]] = [[] for _ in pairs]
    quantiles: list[list[float]] = [[] for _ in pairs]
    failed: dict[int, ScorerFailure] = {}
    for load in models:
        results = iter(load()(texts))
        for i, (task, _) in enumerate(pairs):
            answer_scores, *reference_scores = [next(results) for _ in range(1 + len(task.references))]
            known = [result for result in reference_scores if not isinstance(result, ScorerFailure)]
            if isinstance(answer_scores, ScorerFailure):
                failed.setdefault(i, answer_scores)
            elif len(known) < len(reference_scores):
                reason = next(result for result in reference_scores if isinstance(result, ScorerFailure))
                failed.setdefault(i, ScorerFailure(f"a reference answer has no score: {reason}"))
            else:
                scores[i] += answer_scores
                columns = [sorted(column) for column in zip(*known, strict=True)]
                quantiles[i] += [quantile(score, column) for score, column in zip(answer_scores, columns, strict=True)]
    return [failed.get(i) or RewardOutcome(tuple(quantiles[i]), tuple(scores[i])) for i in range(len(pairs))]
