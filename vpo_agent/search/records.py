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
from vpo_agent.runs.checkpoints import write_text_atomically
from vpo_agent.search.settings import Goal, check_choice, ranked_values, values_on_the_way, weightings
from vpo_envs import Status

TOLERANCE = 0.02
"""An instance is solved if the value of its answers is within this distance of the optimum."""
ARRAYS = {"weights": np.float64, "active": bool, "rewards": np.float32, "status": np.int8, "tokens": np.int64}
"""The arrays of an instance, with their kinds of numbers."""
NOT_SAMPLED = -1
"""Status of an answer that was not sampled because the search had reached the optimum."""


class _Row(BaseModel):
    """A line of a log, as :meth:`InstanceSearch.to_json` writes it."""

    model_config = ConfigDict(strict=True)

    index: int = Field(ge=0, lt=2**63)
    goal: Goal
    optimum: float | None
    best_answer: str
    weights: list[float] = Field(min_length=1)
    active: list[bool]
    rewards: list[list[float]]
    status: list[Annotated[int, Field(ge=NOT_SAMPLED, le=max(Status))]] = Field(min_length=1)
    tokens: list[Annotated[int, Field(ge=0, lt=2**31)]]


@dataclass(frozen=True)
class InstanceSearch:
    """The search on one instance: B answers, the budget or as many as a budget of tokens gave."""

    index: int
    goal: Goal
    """What the value of answers is: the best scalar reward, or their expected utility."""
    weights: Floats
    """The fixed weights of the scalar reward, (d,)."""
    active: NDArray[np.bool_]
    """Which objectives count, (d,)."""
    optimum: float | None
    """The value of the exact front; ``None`` if the environment cannot compute it."""
    rewards: NDArray[np.float32]
    """Reward vector of each answer in the order of sampling, (B, d)."""
    status: NDArray[np.int8]
    """Status of each answer, or ``NOT_SAMPLED``, (B,)."""
    tokens: NDArray[np.int64]
    """Tokens sampled for each answer, those of discarded beginnings included, (B,)."""
    best_answer: str
    """The answer with the best scalar reward, the first of equals; empty if none has a score."""

    @cached_property
    def value(self) -> Floats:
        """The value of the first 1 to B answers, (B,); 0 before the first score."""
        scored = (self.status != NOT_SAMPLED) & (self.status != Status.INVALID)
        rewards = np.where(scored[:, None], self.rewards.astype(np.float64), 0.0)
        return values_on_the_way(rewards, weightings(self.goal, self.weights, self.active))

    def solved_at(self) -> int | None:
        """Return after how many answers the instance was solved; ``None`` if it was not or its optimum is unknown."""
        if self.optimum is None:
            return None
        reached = np.flatnonzero(self.value >= self.optimum - TOLERANCE)
        return int(reached[0]) + 1 if len(reached) else None

    def to_json(self) -> str:
        """Return one line of JSON."""
        row: dict[str, Any] = {
            "index": self.index,
            "goal": self.goal,
            "optimum": self.optimum,
            "value": float(self.value[-1]),
            "solved_at": self.solved_at(),
            "tokens_sampled": int(self.tokens.sum()),
            "best_answer": self.best_answer,
        }
        row |= {name: getattr(self, name).tolist() for name in ARRAYS}
        # The shortest decimal text of a float32 reads back as the same float32.
        row["rewards"] = [[float(str(value)) for value in vector] for vector in self.rewards]
        return json.dumps(row)

    @classmethod
    def from_json(cls, line: str) -> InstanceSearch:
        """Read what :meth:`to_json` wrote."""
        row = _Row.model_validate(parse_json(line))
        values: dict[str, Any] = {name: getattr(row, name) for name in ("index", "goal", "optimum", "best_answer")}
        values |= {name: np.array(getattr(row, name), dtype=kind) for name, kind in ARRAYS.items()}
        answers, d = len(row.status), len(row.active)
        if values["rewards"].shape != (answers, d) or len(row.tokens) != answers or len(row.weights) != d:
            raise ValueError("its lists have different lengths")
        return cls(**values)


@dataclass(frozen=True)
class SearchResult:
    """The searches of one method with one policy on N instances, of which none has more than B answers."""

    method: str
    objectives: tuple[str, ...]
    instances: tuple[InstanceSearch, ...]
    token_budget: int | None = None
    """Tokens sampled for each instance; ``None`` if the budget is B answers."""
    tasks: tuple[Hashable, ...] | None = None
    """What the task of each instance is, (N,): equal ones count as one where chance is judged; ``None``: all differ."""

    @property
    def goal(self) -> Goal:
        """The goal of the search, the same for all instances."""
        return self.instances[0].goal

    @property
    def unit(self) -> Literal["answer", "token"]:
        """What the budget counts."""
        return "answer" if self.token_budget is None else "token"

    @property
    def budget(self) -> int:
        """The budget of each instance, in its unit."""
        return self.value().shape[1] if self.token_budget is None else self.token_budget

    def answers_within(self, budgets: Sequence[int]) -> NDArray[np.int64]:
        """Return how many answers of each instance end within each of K budgets, in their unit, (N, K)."""
        if self.token_budget is None:
            return np.tile(np.asarray(budgets), (len(self.instances), 1))
        ends = [instance.tokens.cumsum() for instance in self.instances]
        return np.stack([np.searchsorted(ends_of_answers, budgets, side="right") for ends_of_answers in ends])

    def spent_within(self, budgets: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many answers of each instance end within each of K budgets, and their tokens, (N, K) both.

        With a token budget, the tokens are the budget itself.
        """
        answers = self.answers_within(budgets)
        if self.token_budget is not None:
            return answers, np.tile(np.asarray(budgets), (len(self.instances), 1))
        return answers, np.take_along_axis(self.tokens(), answers - 1, axis=1)

    def value_within(self, budgets: Sequence[int]) -> Floats:
        """Return the value of the answers that end within each of K budgets, (N, K); 0 before the first one."""
        curves = np.pad(self.value(), ((0, 0), (1, 0)))
        return np.asarray(np.take_along_axis(curves, self.answers_within(budgets), axis=1))

    def value(self) -> Floats:
        """Return the value of the first 1 to B answers, (N, B); that of all where there are fewer."""
        return _table([instance.value for instance in self.instances])

    def solved(self) -> NDArray[np.bool_]:
        """Return whether the first 1 to B answers solve each instance, (N, B); never if no front is known."""
        return self._solves(self.value())

    def solved_within(self, budgets: Sequence[int]) -> NDArray[np.bool_]:
        """Return whether the answers that end within each of K budgets solve each instance, (N, K)."""
        return self._solves(self.value_within(budgets))

    def tokens(self) -> NDArray[np.int64]:
        """Return the tokens sampled for the first 1 to B answers, (N, B); all where there are fewer."""
        return _table([instance.tokens.cumsum() for instance in self.instances])

    def _solves(self, values: Floats) -> NDArray[np.bool_]:
        optima = np.array([np.inf if instance.optimum is None else instance.optimum for instance in self.instances])
        return np.asarray(values >= optima[:, None] - TOLERANCE)


def _table(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return rows as one table; the last value of a row is repeated up to the length of the longest."""
    longest = max(map(len, rows))
    return np.stack([np.pad(row, (0, longest - len(row)), mode="edge") for row in rows])


def read_log(path: Path) -> dict[int, InstanceSearch]:
    """Read the instances in a file of :meth:`InstanceSearch.to_json` lines, by index.

    A last line that was cut off when the search stopped is removed from the file.
    """
    if not path.exists():
        return {}
    lines = read_text(path).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        write_text_atomically(path, "".join(whole))
    instances = []
    for number, line in enumerate(whole, start=1):
        try:
            instances.append(InstanceSearch.from_json(line))
        except ValidationError as error:
            reason = reason_of(error)
        except ValueError as error:
            reason = str(error)
        else:
            continue
        raise ValueError(f"cannot read line {number} of {str(path)!r} ({reason}): delete the file to search again")
    if len({(instance.goal, len(instance.weights)) for instance in instances}) > 1:
        raise ValueError(f"the lines of {str(path)!r} are of different searches: delete the file to search again")
    return {instance.index: instance for instance in instances}


def hard_instances(pools: Sequence[Pool], k: int = 30, goal: Goal = "scalar") -> list[int]:
    """Return the indices of the instances that ``k`` answers of no pool solve, in the pools' order.

    The pools are those of several policies over the same instances, with their exact fronts. A pool solves an instance
    if the exact expectation of the value of ``k`` answers is within :data:`TOLERANCE` of that of the front: of the
    best scalar reward, or of the expected utility.

    Raises:
        ValueError: The goal is unknown, there are no pools, their instances or weights differ, a pool has no fronts, or
            k is larger than a pool.
    """
    check_choice("goal", goal, Goal)
    if not pools:
        raise ValueError("hard_instances needs at least one pool of answers")
    first = pools[0]
    for pool in pools[1:]:
        if not np.array_equal(pool.indices, first.indices):
            raise ValueError("the pools are over different instances: sample them all with the same indices")
        if not np.allclose(pool.scalar_weights, first.scalar_weights):
            raise ValueError("the pools have different scalar weights, so their optima differ: use equal weights")
    solved = np.zeros(len(first.indices), dtype=bool)
    for pool in pools:
        ranked, optimum = ranked_values(pool, goal)
        if optimum is None:
            raise ValueError("the pools have no exact fronts, so no optimum is known: sample them with fronts")
        if ranked.shape[1] < k:
            raise ValueError(f"a pool holds {ranked.shape[1]} answers, fewer than {k}: sample it with vpo eval --k {k}")
        solved |= best_at_k(ranked, k) >= optimum - TOLERANCE
    return [int(index) for index in first.indices[~solved]]
