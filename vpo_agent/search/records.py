"""What a search found: every answer it sampled, in order, with its reward vector and what it cost."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.pareto.metrics import best_at_k
from vpo_agent.pareto.pool import Pool
from vpo_envs import Status

TOLERANCE = 0.02
"""How near to the optimum of the scalar reward an instance counts as solved."""
NOT_SAMPLED = -1
"""Status in place of an answer that the search did not sample, for it had reached the optimum before."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class InstanceSearch:
    """The search on one instance, B answers long."""

    index: int
    weights: Floats
    """The fixed weights of the scalar reward, (d,)."""
    optimum: float | None
    """The best scalar reward on the exact front; ``None`` where the environment knows no front."""
    rewards: NDArray[np.float32]
    """Reward vector of each answer in the order of sampling, (B, d)."""
    status: NDArray[np.int8]
    """Status of each answer, or ``NOT_SAMPLED``, (B,)."""
    tokens: NDArray[np.int64]
    """Tokens sampled for each answer, (B,)."""
    best_answer: str
    """The answer with the best scalar reward, the first of equals; empty where none has a score."""

    def best(self) -> Floats:
        """The best scalar reward of the first 1 to B answers, (B,); 0 before the first score."""
        scored = (self.status != NOT_SAMPLED) & (self.status != Status.INVALID)
        scalar = self.rewards.astype(np.float64) @ self.weights
        return np.maximum.accumulate(np.where(scored, scalar, 0.0))

    def solved_at(self, tolerance: float = TOLERANCE) -> int | None:
        """After how many answers the instance was solved; ``None`` where it was not, or its optimum is not known."""
        if self.optimum is None:
            return None
        reached = np.flatnonzero(self.best() >= self.optimum - tolerance)
        return int(reached[0]) + 1 if len(reached) else None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(
            {
                "index": self.index,
                "optimum": self.optimum,
                "best": float(self.best()[-1]),
                "solved_at": self.solved_at(),
                "tokens_sampled": int(self.tokens.sum()),
                "best_answer": self.best_answer,
                "weights": self.weights.tolist(),
                # float32 as decimal text comes back as the same float32.
                "rewards": [[float(str(value)) for value in row] for row in self.rewards],
                "status": self.status.tolist(),
                "tokens": self.tokens.tolist(),
            }
        )

    @classmethod
    def from_json(cls, line: str) -> InstanceSearch:
        """Read what :meth:`to_json` wrote."""
        row = json.loads(line)
        return cls(
            index=row["index"],
            weights=np.array(row["weights"], dtype=np.float64),
            optimum=row["optimum"],
            rewards=np.array(row["rewards"], dtype=np.float32),
            status=np.array(row["status"], dtype=np.int8),
            tokens=np.array(row["tokens"], dtype=np.int64),
            best_answer=row["best_answer"],
        )


@dataclass(frozen=True)
class SearchResult:
    """The searches of one method with one policy on N instances, each B answers long."""

    method: str
    objectives: tuple[str, ...]
    instances: tuple[InstanceSearch, ...]

    def best(self) -> Floats:
        """The best scalar reward of the first 1 to B answers, (N, B)."""
        return np.stack([instance.best() for instance in self.instances])

    def solved(self, tolerance: float = TOLERANCE) -> NDArray[np.bool_]:
        """Whether the first 1 to B answers solve each instance, (N, B); never where no front is known."""
        optimum = np.array([np.inf if one.optimum is None else one.optimum for one in self.instances])
        return np.asarray(self.best() >= optimum[:, None] - tolerance)

    def tokens(self) -> NDArray[np.int64]:
        """Tokens sampled for the first 1 to B answers, (N, B)."""
        return np.stack([instance.tokens.cumsum() for instance in self.instances])

    def save(self, path: Path) -> None:
        """Write an ``.npz`` file, whole or not at all."""
        optimum = [np.nan if one.optimum is None else one.optimum for one in self.instances]
        aside = path.with_name(f".{path.name}.writing")
        with aside.open("wb") as file:
            np.savez_compressed(
                file,
                method=np.array(self.method),
                objectives=np.array(self.objectives),
                indices=np.array([one.index for one in self.instances]),
                weights=np.stack([one.weights for one in self.instances]),
                optimum=np.array(optimum),
                rewards=np.stack([one.rewards for one in self.instances]),
                status=np.stack([one.status for one in self.instances]),
                tokens=np.stack([one.tokens for one in self.instances]),
                best_answers=np.array([one.best_answer for one in self.instances]),
            )
        aside.replace(path)

    @classmethod
    def load(cls, path: Path) -> SearchResult:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: There is no such file, or it holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as data:
                saved: Mapping[str, Any] = {name: data[name] for name in data.files}
            return cls(
                str(saved["method"]),
                tuple(str(name) for name in saved["objectives"]),
                tuple(
                    InstanceSearch(
                        int(index),
                        saved["weights"][i],
                        None if np.isnan(saved["optimum"][i]) else float(saved["optimum"][i]),
                        saved["rewards"][i],
                        saved["status"][i],
                        saved["tokens"][i],
                        str(saved["best_answers"][i]),
                    )
                    for i, index in enumerate(saved["indices"])
                ),
            )
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"cannot read the search {str(path)!r}: {error}") from error


def hard_instances(pools: Sequence[Pool], k: int = 30, tolerance: float = TOLERANCE) -> list[int]:
    """Which instances no pool's best@k solves.

    Args:
        pools: Pools of several policies over the same instances, with their exact fronts.
        k: Answers; the exact expectation of the best of k is compared, which for a pool of k answers is its best.
        tolerance: How near to the optimum of the scalar reward counts as solved.

    Returns:
        Indices of the instances in their split, in the pools' order.

    Raises:
        ValueError: No pools, pools over different instances or with other weights, a pool without fronts, or k larger
            than a pool.
    """
    if not pools:
        raise ValueError("hard_instances needs at least one pool of answers")
    first = pools[0]
    optimum = first.optimum()
    if optimum is None:
        raise ValueError("the pools carry no exact fronts, so no optimum is known: sample them with fronts")
    for pool in pools[1:]:
        if not np.array_equal(pool.indices, first.indices):
            raise ValueError("the pools are over different instances: sample them all with the same indices")
        if not np.allclose(pool.scalar_weights, first.scalar_weights):
            raise ValueError("the pools have different scalar weights, so their optima are not the same")
    solved = np.zeros(len(first.indices), dtype=bool)
    for pool in pools:
        solved |= best_at_k(pool.scalar().reshape(len(solved), -1), k) >= optimum - tolerance
    return [int(index) for index in first.indices[~solved]]
