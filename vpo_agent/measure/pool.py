"""A pool of scored answers: what one model wrote for a list of prompts, in a file that is read without it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs_data.parsing import parse_json
from vpo_agent.measure.origin import check_origin, is_plain
from vpo_agent.measure.stored_arrays import TooLarge, most_bytes, read_arrays
from vpo_envs.common.trust import SIZES, is_trusted
from vpo_envs.common.wording import counted
from vpo_envs.contract.answers import Status

_FORMS = {
    "answers": ("u", 3),
    "vectors": ("f", 2),
    "statuses": ("i", 1),
    "active": ("b", 2),
    "scalar_weights": ("f", 2),
    "indices": ("u", 1),
    "objectives": ("U", 1),
    "front_points": ("f", 2),
    "front_sizes": ("u", 1),
    "responses": ("u", 1),
    "tokens": ("u", 2),
    "tasks": ("u", 2),
    "source": ("u", 1),
}
"""The kind of number, as of ``dtype.kind``, and the number of axes of each stored array.

Answers to generated tasks have few different rewards, so a file holds each kind of answer once, as a reward vector
(K, d) and a status (K,), and the number of its kind for each answer (N, R, m). The points of all fronts follow each
other, and hashes of tasks are bytes."""
MOST_PROMPTS, MOST_ANSWERS, MOST_OBJECTIVES = 100_000, 10_000, 100
"""Prompts, answers to one prompt or points of its front, and objectives of a pool from anybody. A utility takes 32 KiB
for each answer."""
ROUNDING = 1e-6
"""Rewards are stored in 32 bits."""
Floats = NDArray[np.float64]
Texts = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Pool:
    """The scored answers to N prompts: R rollouts of m answers each.

    Raises:
        ValueError: Shapes of the arrays disagree, or rewards are not finite.
    """

    rewards: NDArray[np.float32]
    """(N, R, m, d)."""
    status: NDArray[np.int8]
    """(N, R, m)."""
    active: NDArray[np.bool_]
    """Which objectives count for each prompt, (N, d)."""
    scalar_weights: Floats
    """The fixed weights of each prompt, (N, d)."""
    indices: NDArray[np.int64]
    """The index of each prompt in its split, (N,)."""
    objectives: tuple[str, ...]
    fronts: tuple[Floats, ...] | None
    """The exact front of each prompt, arrays (f, d); ``None`` if the environment cannot compute it."""
    responses: Texts | None = None
    """The text of the R responses to each of the N prompts; ``None`` if they were not saved."""
    tokens: NDArray[np.int32] | None = None
    """Number of generated tokens of each response, (N, R); ``None`` if unknown."""
    tasks: tuple[str, ...] | None = None
    """A hash of each prompt's task in canonical form, in hexadecimal and all of one length, (N,); ``None`` if unknown:
    then all tasks count as distinct."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Where the pool comes from, as far as is known: JSON values under ``env``, ``env_kwargs``, ``split``,
    ``num_answers``, ``tasks`` (a hash of the N tasks), ``model``, ``method``, ``method_options``, ``run``,
    ``seed``, ``step``, ``dtype``, ``temperature`` and ``max_new_tokens``; from an endpoint also ``endpoint``, its
    address, and ``usage``, its tokens."""

    def __post_init__(self) -> None:
        if self.rewards.ndim != 4 or 0 in self.rewards.shape:
            raise ValueError(f"rewards must have shape (N, R, m, d), none of them 0; got {self.rewards.shape}")
        n, rollouts, m, d = self.rewards.shape
        shapes = {"status": (n, rollouts, m), "active": (n, d), "scalar_weights": (n, d), "indices": (n,)}
        for name, shape in shapes.items():
            actual = getattr(self, name).shape
            if actual != shape:
                raise ValueError(f"rewards of shape {self.rewards.shape} need {name} of shape {shape}; got {actual}")
        if len(self.objectives) != d:
            raise ValueError(f"rewards have {d} objectives, but {len(self.objectives)} are named")
        finite = np.isfinite(self.rewards).all(axis=(0, 1, 2))
        bad = [name for name, is_finite in zip(self.objectives, np.atleast_1d(finite), strict=True) if not is_finite]
        if bad:
            raise ValueError(
                f"some rewards of {', '.join(bad)} are NaN or infinite: an objective must return a number from 0 to 1"
            )
        if self.fronts is not None:
            if len(self.fronts) != n:
                raise ValueError(f"{n} prompts need as many fronts; got {len(self.fronts)}")
            for front in self.fronts:
                if front.ndim != 2 or len(front) == 0 or front.shape[1] != d:
                    raise ValueError(f"a front must have shape (f, {d}), f >= 1; got {front.shape}")
        if self.responses is not None and [len(row) for row in self.responses] != [rollouts] * n:
            raise ValueError(f"{n} prompts with {rollouts} rollouts need as many responses")
        if not np.isfinite(self.scalar_weights).all():
            raise ValueError("some scalar_weights are NaN or infinite")
        if not all(np.isfinite(front).all() for front in self.fronts or ()):
            raise ValueError("some points of a front are NaN or infinite")
        unknown = set(np.unique(self.status).tolist()) - set(Status)
        if unknown:
            raise ValueError(f"status {min(unknown)} is unknown")
        if self.tokens is not None and self.tokens.shape != (n, rollouts):
            raise ValueError(f"{n} prompts with {rollouts} rollouts need tokens of that shape; got {self.tokens.shape}")
        if self.tasks is not None and len(self.tasks) != n:
            raise ValueError(f"{n} prompts need as many hashes of tasks; got {len(self.tasks)}")
        if self.tasks is not None and len({len(bytes.fromhex(task)) for task in self.tasks}) > 1:
            raise ValueError("the hashes of tasks have different lengths")

    def prompts_in_words(self, split: str = "") -> str:
        """Return a phrase such as ``"200 test prompts"``, or ``"200 prompts, 15 distinct tasks"`` where some are
        repeated."""
        n = len(self.indices)
        distinct = n if self.tasks is None else len(set(self.tasks))
        words = counted(n, f"{split} prompt".strip())
        return f"{words}, {counted(distinct, 'distinct task')}" if distinct < n else words

    def active_rewards(self) -> Floats:
        """Return the rewards in 64 bits with inactive objectives at zero, (N, R, m, d)."""
        return self.rewards.astype(np.float64) * self.active[:, None, None, :]

    def answers(self) -> Floats:
        """Return the rewards of all answers to each prompt, with inactive objectives at zero, (N, R·m, d)."""
        rewards = self.active_rewards()
        return rewards.reshape(len(rewards), -1, rewards.shape[-1])

    def outside(self) -> list[str]:
        """Return the objectives whose rewards leave [0, 1], each with its range."""
        flat = self.active_rewards().reshape(-1, len(self.objectives))
        bounds = zip(self.objectives, flat.min(axis=0), flat.max(axis=0), strict=True)
        return [f"{name} ({low:g} to {high:g})" for name, low, high in bounds if low < -ROUNDING or high > 1 + ROUNDING]

    def scalar(self) -> Floats:
        """Return the scalar reward of each answer under the prompt's fixed weights, (N, R, m)."""
        return np.asarray(np.einsum("nrmd,nd->nrm", self.active_rewards(), self.scalar_weights))

    def optimum(self) -> Floats | None:
        """Return the best scalar reward on each exact front, (N,); ``None`` if no front is known."""
        if self.fronts is None:
            return None
        pairs = zip(self.fronts, self.scalar_weights, strict=True)
        return np.array([float((front @ weights).max()) for front, weights in pairs])

    def save(self, path: Path) -> None:
        """Write an ``.npz`` file, completely or not at all."""
        vectors, statuses, answers = self._kinds_of_answers()
        stored: dict[str, Any] = {
            "answers": answers,
            "vectors": vectors,
            "statuses": statuses,
            "active": self.active,
            "scalar_weights": self.scalar_weights,
            "indices": _smallest(self.indices),
            "objectives": np.array(self.objectives),
            "source": _as_bytes(self.source),
        }
        if self.fronts is not None:
            stored["front_points"] = np.concatenate(self.fronts)
            stored["front_sizes"] = _smallest(np.array([len(front) for front in self.fronts]))
        if self.responses is not None:
            stored["responses"] = _as_bytes(self.responses)
        if self.tokens is not None:
            stored["tokens"] = _smallest(self.tokens)
        if self.tasks is not None:
            hashes = np.frombuffer(bytes.fromhex("".join(self.tasks)), dtype=np.uint8)
            stored["tasks"] = hashes.reshape(len(self.tasks), -1)
        aside = path.with_name(f".{path.name}.writing")
        try:
            with aside.open("wb") as file:
                np.savez_compressed(file, **stored)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

    def _kinds_of_answers(self) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[Any]]:
        """Return the different answers as reward vectors (K, d) and statuses (K,), and the kind of each, (N, R, m)."""
        rows = np.concatenate([self.rewards, self.status[..., None]], axis=3, dtype=np.float32)
        kinds, number_of_row = np.unique(rows.reshape(-1, rows.shape[3]), axis=0, return_inverse=True)
        return kinds[:, :-1], kinds[:, -1].astype(np.int8), _smallest(number_of_row.reshape(self.status.shape))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pool:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: The file cannot be read, is not a sample file, or is larger than an untrusted one may be.
        """
        path = Path(path)
        named = f"cannot read the sample file {str(path)!r}"
        not_a_pool = f"{named}: it is damaged, or was not written by vpo eval or a run"
        try:
            fields = _read_fields(path)
        except TooLarge as error:
            raise ValueError(f"{named}: {error}: if you know where it comes from, add --trust {SIZES}") from error
        except MemoryError as error:
            raise ValueError(f"{named}: there is not enough memory for it") from error
        # On a damaged file zipfile, zlib and NumPy raise half a dozen types, plain RuntimeErrors among them.
        except Exception as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise ValueError(f"{named}: {reason}" if reason else not_a_pool) from error
        try:
            check_origin(fields["source"], "its source")
            if not all(map(is_plain, fields["objectives"])):
                raise ValueError("its objectives have names with characters that are not seen")
            return cls(**fields)
        except ValueError as error:
            raise ValueError(f"{named}: {error}") from error


def _read_fields(path: Path) -> dict[str, Any]:
    """Return the fields of a pool from its file; their shapes are not compared with each other."""
    any_size = is_trusted(SIZES)
    data = read_arrays(path, _FORMS.get, any_size=any_size)
    answers, vectors, statuses = data["answers"], data["vectors"], data["statuses"]
    (n, rollouts, m), (kinds, d) = answers.shape, vectors.shape
    sizes = data.get("front_sizes", np.zeros(0, dtype=np.uint8))
    for size, most, things in (
        (n, MOST_PROMPTS, "prompts"),
        (rollouts * m, MOST_ANSWERS, "answers to each prompt"),
        (int(sizes.max(initial=0)), MOST_ANSWERS, "points of a front"),
        (d, MOST_OBJECTIVES, "objectives"),
        (answers.size * d * vectors.itemsize, most_bytes(path), "bytes of rewards"),
    ):
        if size > most and not any_size:
            raise TooLarge(f"it has {size:,} {things}, and an untrusted file may have at most {most:,}")
    if statuses.shape != (kinds,) or answers.max(initial=0) >= kinds:
        raise ValueError("its answers are not among its kinds of answers")
    return {
        "rewards": vectors[answers].astype(np.float32),
        "status": statuses[answers].astype(np.int8),
        "active": data["active"],
        "scalar_weights": data["scalar_weights"],
        "indices": data["indices"].astype(np.int64),
        "objectives": tuple(map(str, data["objectives"])),
        "fronts": _read_fronts(data["front_points"], sizes) if "front_points" in data else None,
        "responses": _read_responses(data.pop("responses")) if "responses" in data else None,
        "tokens": data["tokens"].astype(np.int32) if "tokens" in data else None,
        "tasks": tuple(row.tobytes().hex() for row in data["tasks"]) if "tasks" in data else None,
        "source": _read_source(data["source"]) if "source" in data else {},
    }


def _read_fronts(points: Floats, sizes: NDArray[Any]) -> tuple[Floats, ...]:
    ends = np.cumsum(sizes, dtype=np.int64)
    if len(points) != ends[-1:].sum():
        raise ValueError("its fronts do not have as many points as they say")
    return tuple(points[end - int(size) : end] for end, size in zip(ends, sizes, strict=True))


def merge_pools(pools: Sequence[Pool], scalar_weights: Floats | None = None) -> Pool:
    """Return the pool of several policies that answer together, such as one specialist for each objective.

    The i-th rollout holds the answers of the i-th rollouts of all ``pools``, so k answers in whole rollouts come in
    equal shares from all policies. The pools are over the same prompts; the smallest decides the number of rollouts.
    The texts are left out, because a policy's answers are numbered within its own rollout. ``scalar_weights`` (N, d)
    are by default the mean of the weights of the pools.
    """
    if not pools:
        raise ValueError("there are no pools to merge")
    first = pools[0]
    for other in pools[1:]:
        if not same_prompts(first, other):
            raise ValueError("pools to merge must hold answers to the same prompts: sample the same tasks")
    rollouts = min(pool.rewards.shape[1] for pool in pools)
    rewards = np.concatenate([pool.rewards[:, :rollouts] for pool in pools], axis=2)
    status = np.concatenate([pool.status[:, :rollouts] for pool in pools], axis=2)
    weights = np.mean([pool.scalar_weights for pool in pools], axis=0) if scalar_weights is None else scalar_weights
    tokens = [pool.tokens[:, :rollouts] for pool in pools if pool.tokens is not None]
    # A rollout has the answers of all policies now.
    common = {
        name: value for name, value in first.source.items() if all(pool.source.get(name) == value for pool in pools)
    }
    return replace(
        first,
        rewards=rewards,
        status=status,
        scalar_weights=weights,
        responses=None,
        tokens=np.sum(tokens, axis=0, dtype=np.int32) if len(tokens) == len(pools) else None,
        source={**common, "num_answers": rewards.shape[2]},
    )


def same_prompts(first: Pool, other: Pool) -> bool:
    """Return whether two pools hold answers to the same tasks, as far as they state them."""
    if first.objectives != other.objectives or not np.array_equal(first.indices, other.indices):
        return False
    if not np.array_equal(first.active, other.active):
        return False
    for name in ("tasks", "split"):
        if len({pool.source[name] for pool in (first, other) if name in pool.source}) > 1:
            return False
    if first.fronts is None or other.fronts is None:
        return first.fronts is other.fronts
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(first.fronts, other.fronts, strict=True))


def _smallest(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers from 0 in the smallest unsigned type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _as_bytes(value: Any) -> NDArray[np.uint8]:
    """Encode a value as JSON; an array of strings would pad every text to the length of the longest."""
    # ASCII escapes preserve lone surrogates, which a model can write and UTF-8 cannot encode.
    return np.frombuffer(json.dumps(value, default=str).encode(), dtype=np.uint8)


def _read_responses(stored: NDArray[np.uint8]) -> Texts:
    rows = parse_json(stored.tobytes())
    if not all(isinstance(row, list) and all(isinstance(text, str) for text in row) for row in rows):
        raise ValueError("its responses are not lists of strings")
    return tuple(map(tuple, rows))


def _read_source(stored: NDArray[np.uint8]) -> dict[str, Any]:
    source = parse_json(stored.tobytes())
    if not isinstance(source, dict):
        raise ValueError("its source is not a JSON object")
    return source
