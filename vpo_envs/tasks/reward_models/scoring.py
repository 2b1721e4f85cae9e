"""What scores an answer: names of scorers with what loads them, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from vpo_envs.core import Failure, Objective, ScorerFailure
from vpo_envs.tasks.reward_models.cache import Pair, ScoreCache
from vpo_envs.tasks.reward_models.calibration import quantile
from vpo_envs.tasks.reward_models.task import RewardTask


class RewardOutcome(NamedTuple):
    """The facts about one answer that the objectives look at."""

    quantiles: tuple[float, ...]
    """Place of each score among those of the references, in [0, 1]."""
    scores: tuple[float, ...]
    """What the models and judges gave, before calibration."""


class Source(NamedTuple):
    """A model or judge."""

    names: tuple[str, ...]
    """Names of its scores, which are those of the objectives."""
    load: Callable[[], ScoreCache]


def _place(number: int, outcome: RewardOutcome) -> float:
    return outcome.quantiles[number]


def objectives_of(described: Mapping[str, str]) -> tuple[Objective, ...]:
    """Return one objective for each score, by its name, with its description."""
    return tuple(Objective(name, text, partial(_place, i)) for i, (name, text) in enumerate(described.items()))


def evaluate_all(sources: Sequence[Source], pairs: Sequence[tuple[RewardTask, str]]) -> list[RewardOutcome | Failure]:
    """Score answers with every source, in one batch each, and compare them with the references of their tasks.

    Returns:
        For each pair its outcome, or the failure of the first source that could not score it or a reference.
    """
    asked: list[Pair] = []
    for task, answer in pairs:
        asked += [(task.request, text) for text in (answer, *task.references)]
    raw: list[list[float]] = [[] for _ in pairs]
    places: list[list[float]] = [[] for _ in pairs]
    failed: dict[int, ScorerFailure] = {}
    for source in sources:
        scored = iter(source.load()(asked))
        for i, (task, _) in enumerate(pairs):
            own, *references = [next(scored) for _ in range(1 + len(task.references))]
            known = [scores for scores in references if not isinstance(scores, ScorerFailure)]
            if isinstance(own, ScorerFailure):
                failed.setdefault(i, own)
            elif len(known) < len(references):
                reason = next(scores for scores in references if isinstance(scores, ScorerFailure))
                failed.setdefault(i, ScorerFailure(f"a reference answer has no score: {reason}"))
            else:
                raw[i] += own
                columns = [sorted(column) for column in zip(*known, strict=True)]
                places[i] += [quantile(score, column) for score, column in zip(own, columns, strict=True)]
    return [failed.get(i) or RewardOutcome(tuple(places[i]), tuple(raw[i])) for i in range(len(pairs))]
