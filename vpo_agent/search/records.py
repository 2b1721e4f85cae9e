"""What a search found: every answer sampled, in order, with its reward vector and its cost in tokens."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envs_data.parsing import parse_json, read_text, reason_of
from vpo_agent.measure.metrics import best_at_k
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.runs.whole_files import write_text_atomically
from vpo_agent.search.settings import SearchMeasure, check_choice, ranked_scores, scores_on_the_way, weightings
from vpo_envs import Status

TOLERANCE = 0.02
"""A task is solved if the score of its answers is within this distance of the optimum."""
ARRAYS = {"weights": np.float64, "active": bool, "rewards": np.float32, "status": np.int8, "tokens": np.int64}
"""The arrays of a task, with their kinds of numbers."""
NOT_SAMPLED = -1
"""Status of an answer that was not sampled because the search had reached the optimum."""


class _Row(BaseModel):
    """A line of a log, as :meth:`TaskSearch.to_json` writes it."""

    model_config = ConfigDict(strict=True)

    index: int = Field(ge=0, lt=2**63)
    measure: SearchMeasure
    optimum: float | None
    best_answer: str
    weights: list[float] = Field(min_length=1)
    active: list[bool]
    rewards: list[list[float]]
    status: list[Annotated[int, Field(ge=NOT_SAMPLED, le=max(Status))]] = Field(min_length=1)
    tokens: list[Annotated[int, Field(ge=0, lt=2**31)]]


@dataclass(frozen=True)
class TaskSearch:
    """The search on one task: B answers, the budget or as many as a budget of tokens gave."""

    index: int
    measure: SearchMeasure
    """What answers are scored by: the best scalar reward, or their utility."""
    weights: Floats
    """The fixed weights of the scalar reward, (d,)."""
    active: NDArray[np.bool_]
    """Which objectives count, (d,)."""
    optimum: float | None
    """The score of the exact front; ``None`` if the environment cannot compute it."""
    rewards: NDArray[np.float32]
    """Reward vector of each answer in the order of sampling, (B, d)."""
    status: NDArray[np.int8]
    """Status of each answer, or ``NOT_SAMPLED``, (B,)."""
    tokens: NDArray[np.int64]
    """Tokens sampled for each answer, including tokens of discarded beginnings, (B,)."""
    best_answer: str
    """The answer with the best scalar reward, the first of equals; empty if none has a score."""

    @cached_property
    def score(self) -> Floats:
        """The score of the first 1 to B answers, (B,); 0 before the first answer that has one."""
        scored = (self.status != NOT_SAMPLED) & (self.status != Status.INVALID)
        rewards = np.where(scored[:, None], self.rewards.astype(np.float64), 0.0)
        return scores_on_the_way(rewards, weightings(self.measure, self.weights, self.active))

    def solved_at(self) -> int | None:
        """Return after how many answers the task was solved; ``None`` if it was not or its optimum is unknown."""
        if self.optimum is None:
            return None
        reached = np.flatnonzero(self.score >= self.optimum - TOLERANCE)
        return int(reached[0]) + 1 if len(reached) else None

    def to_json(self) -> str:
        """Return one line of JSON."""
        row: dict[str, Any] = {
            "index": self.index,
            "measure": self.measure,
            "optimum": self.optimum,
            "score": float(self.score[-1]),
            "solved_at": self.solved_at(),
            "tokens_sampled": int(self.tokens.sum()),
            "best_answer": self.best_answer,
        }
        row |= {name: getattr(self, name).tolist() for name in ARRAYS}
        # The shortest decimal text of a float32 reads back as the same float32.
        row["rewards"] = [[float(str(value)) for value in vector] for vector in self.rewards]
        return json.dumps(row)

    @classmethod
    def from_json(cls, line: str) -> TaskSearch:
        """Read what :meth:`to_json` wrote."""
        row = _Row.model_validate(parse_json(line))
        values: dict[str, Any] = {name: getattr(row, name) for name in ("index", "measure", "optimum", "best_answer")}
        values |= {name: np.array(getattr(row, name), dtype=kind) for name, kind in ARRAYS.items()}
        answers, d = len(row.status), len(row.active)
        if values["rewards"].shape != (answers, d) or len(row.tokens) != answers or len(row.weights) != d:
            raise ValueError("its lists have different lengths")
        return cls(**values)


@dataclass(frozen=True)
class SearchResult:
    """The searches of one method with one policy on N tasks, of which none has more than B answers."""

    method: str
    objectives: tuple[str, ...]
    searches: tuple[TaskSearch, ...]
    token_budget: int | None = None
    """Tokens sampled for each task; ``None`` if the budget is B answers."""
    tasks: tuple[Hashable, ...] | None = None
    """The canonical content of each task, (N,): equal ones count as one in intervals; ``None``: all differ."""

    @property
    def measure(self) -> SearchMeasure:
        """What answers are scored by, the same for all tasks."""
        return self.searches[0].measure

    @property
    def unit(self) -> Literal["answer", "token"]:
        """What the budget counts."""
        return "answer" if self.token_budget is None else "token"

    @property
    def budget(self) -> int:
        """The budget of each task, in its unit."""
        return self.score().shape[1] if self.token_budget is None else self.token_budget

    def answers_within(self, budgets: Sequence[int]) -> NDArray[np.int64]:
        """Return how many answers to each task end within each of K budgets, in their unit, (N, K)."""
        if self.token_budget is None:
            return np.tile(np.asarray(budgets), (len(self.searches), 1))
        ends = [search.tokens.cumsum() for search in self.searches]
        return np.stack([np.searchsorted(ends_of_answers, budgets, side="right") for ends_of_answers in ends])

    def spent_within(self, budgets: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many answers to each task end within each of K budgets, and their tokens, (N, K) both.

        With a token budget, the tokens are the budget itself.
        """
        answers = self.answers_within(budgets)
        if self.token_budget is not None:
            return answers, np.tile(np.asarray(budgets), (len(self.searches), 1))
        return answers, np.take_along_axis(self.tokens(), answers - 1, axis=1)

    def score_within(self, budgets: Sequence[int]) -> Floats:
        """Return the score of the answers that end within each of K budgets, (N, K); 0 before the first one."""
        curves = np.pad(self.score(), ((0, 0), (1, 0)))
        return np.asarray(np.take_along_axis(curves, self.answers_within(budgets), axis=1))

    def score(self) -> Floats:
        """Return the score of the first 1 to B answers, (N, B); if fewer were sampled, the score of all."""
        return _table([search.score for search in self.searches])

    def solved(self) -> NDArray[np.bool_]:
        """Return whether the first 1 to B answers solve each task, (N, B); never if no front is known."""
        return self._solves(self.score())

    def solved_within(self, budgets: Sequence[int]) -> NDArray[np.bool_]:
        """Return whether the answers that end within each of K budgets solve each task, (N, K)."""
        return self._solves(self.score_within(budgets))

    def tokens(self) -> NDArray[np.int64]:
        """Return the tokens of the first 1 to B answers, (N, B); if fewer were sampled, the tokens of all."""
        return _table([search.tokens.cumsum() for search in self.searches])

    def _solves(self, scores: Floats) -> NDArray[np.bool_]:
        optima = np.array([np.inf if search.optimum is None else search.optimum for search in self.searches])
        return np.asarray(scores >= optima[:, None] - TOLERANCE)


def _table(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return rows as one table; the last value of a row is repeated up to the length of the longest."""
    longest = max(map(len, rows))
    return np.stack([np.pad(row, (0, longest - len(row)), mode="edge") for row in rows])


def read_log(path: Path) -> dict[int, TaskSearch]:
    """Read the searches in a file of :meth:`TaskSearch.to_json` lines, by the index of the task.

    A last line that was cut off when the search stopped is removed from the file.
    """
    if not path.exists():
        return {}
    lines = read_text(path).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        write_text_atomically(path, "".join(whole))
    searches = []
    for number, line in enumerate(whole, start=1):
        try:
            searches.append(TaskSearch.from_json(line))
        except ValidationError as error:
            reason = reason_of(error)
        except ValueError as error:
            reason = str(error)
        else:
            continue
        raise ValueError(f"cannot read line {number} of {str(path)!r} ({reason}): delete the file to search again")
    if len({(search.measure, len(search.weights)) for search in searches}) > 1:
        raise ValueError(f"the lines of {str(path)!r} are of different searches: delete the file to search again")
    return {search.index: search for search in searches}


def hard_tasks(pools: Sequence[Pool], k: int = 30, measure: SearchMeasure = "scalar") -> list[int]:
    """Return the indices of the tasks that ``k`` answers of no pool solve, in the pools' order.

    Each pool is of one policy; all are over the same tasks, with their exact fronts. A pool solves a task if the exact
    expectation of the score of ``k`` answers is within :data:`TOLERANCE` of the score of the front.

    Raises:
        ValueError: The measure is unknown, there are no pools, their tasks or weights differ, a pool has no fronts, or
        k is larger than a pool.
    """
    check_choice("measure", measure, SearchMeasure)
    if not pools:
        raise ValueError("hard_tasks needs at least one pool of answers")
    first = pools[0]
    for pool in pools[1:]:
        if not np.array_equal(pool.indices, first.indices):
            raise ValueError("the sample files are over different tasks: sample them all with the same indices")
        if not np.allclose(pool.scalar_weights, first.scalar_weights):
            raise ValueError(
                "the sample files have different fixed weightings, so their optima differ: use the same weighting"
            )
    solved = np.zeros(len(first.indices), dtype=bool)
    for pool in pools:
        ranked, optimum = ranked_scores(pool, measure)
        if optimum is None:
            raise ValueError(
                "the sample files have no exact fronts, so no optimum is known: choose an environment with exact fronts"
            )
        if ranked.shape[1] < k:
            raise ValueError(
                f"a sample file holds {ranked.shape[1]} answers, fewer than {k}: sample it with vpo eval --k {k}"
            )
        solved |= best_at_k(ranked, k) >= optimum - TOLERANCE
    return [int(index) for index in first.indices[~solved]]
