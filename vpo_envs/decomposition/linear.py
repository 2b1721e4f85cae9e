"""A decomposition as data: objectives that are weighted sums of criteria, in a file that people can read and write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from vpo_envs.core import Frozen

Floats = NDArray[np.float64]

ROUNDING = 1e-6


class FoundObjective(Frozen):
    """One objective: a weighted sum of criteria, in [0, 1] whatever their values in [0, 1] are."""

    name: str = Field(min_length=1)
    weights: dict[str, float]
    """By the name of the criterion; those left out have weight 0."""
    offset: float = 0.0
    """Added to the sum, so that negative weights lead to no negative reward."""

    @model_validator(mode="after")
    def _stays_in_bounds(self) -> FoundObjective:
        lowest = self.offset + sum(min(weight, 0.0) for weight in self.weights.values())
        highest = self.offset + sum(max(weight, 0.0) for weight in self.weights.values())
        if not (lowest >= -ROUNDING and highest <= 1 + ROUNDING):
            raise ValueError(
                f"objective {self.name!r} ranges from {lowest:g} to {highest:g}: choose weights and an offset that "
                "keep it in [0, 1]"
            )
        return self


class Decomposition(Frozen):
    """Few objectives in place of the many criteria of one environment."""

    criteria: tuple[str, ...] = Field(min_length=1)
    """The objectives of the environment that it was fitted on, in their order."""
    objectives: tuple[FoundObjective, ...] = Field(min_length=1)
    by: str = "hand"
    """How it was found."""
    env: str = ""
    """Id of that environment; empty if unknown."""

    @model_validator(mode="after")
    def _fits_together(self) -> Decomposition:
        if len(self.objectives) > len(self.criteria):
            raise ValueError(
                f"{len(self.objectives)} objectives are more than the {len(self.criteria)} criteria: ask for fewer"
            )
        names = [objective.name for objective in self.objectives]
        for objective in self.objectives:
            if names.count(objective.name) > 1:
                raise ValueError(f"two objectives are named {objective.name!r}: rename one of them")
            if unknown := sorted(objective.weights.keys() - set(self.criteria)):
                raise ValueError(
                    f"objective {objective.name!r} weighs {unknown[0]!r}, which is none of the criteria "
                    f"({', '.join(self.criteria)})"
                )
        return self

    @property
    def matrix(self) -> Floats:
        """The weights, shape (d, c)."""
        return np.array([[one.weights.get(name, 0.0) for name in self.criteria] for one in self.objectives])

    @property
    def monotone(self) -> bool:
        """Whether no objective falls where a criterion rises."""
        return bool((self.matrix >= 0).all())

    def apply(self, rewards: NDArray[np.floating]) -> Floats:
        """Map rewards on the criteria, shape (…, c), to the objectives, shape (…, d)."""
        offsets = np.array([objective.offset for objective in self.objectives])
        return np.asarray(np.clip(rewards.astype(np.float64) @ self.matrix.T + offsets, 0.0, 1.0))

    def active(self, criteria: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which objectives weigh an active criterion, shape (…, d), from a mask (…, c)."""
        return np.asarray((criteria[..., None, :] & (self.matrix != 0)).any(axis=-1))

    def check(self, criteria: Sequence[str], env: str, name: str) -> None:
        """Raise :class:`ValueError` unless these are the criteria that it was fitted on.

        Args:
            criteria: Names of the objectives.
            env: Id of their environment, which must be the same where both are known; empty if unknown.
            name: What has these objectives, for the message.
        """
        if tuple(criteria) != self.criteria:
            of = f"{self.env} with the criteria " if self.env else "the criteria "
            raise ValueError(
                f"the decomposition was fitted on {of}{', '.join(self.criteria)}, but {name} has "
                f"{', '.join(criteria)}: fit one on answers to {name}"
            )
        if self.env and env and self.env != env:
            raise ValueError(
                f"the decomposition was fitted on {self.env}, not on {env}, whose criteria have the same names: fit "
                f"one on answers to {env}, or state {env} as its env if they mean the same"
            )

    def save(self, path: Path) -> None:
        """Write the JSON file that :func:`read_decomposition` reads."""
        path.write_text(json.dumps(self.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")


def read_decomposition(source: Decomposition | Mapping[str, Any] | str | Path) -> Decomposition:
    """Return a decomposition from its file or from the contents of one.

    Raises:
        ValueError: There is no such file, or it holds something else.
    """
    if isinstance(source, Decomposition):
        return source
    place = "the decomposition"
    if not isinstance(source, Mapping):
        place = f"the decomposition {str(source)!r}"
        try:
            source = json.loads(Path(source).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(
                f"cannot read {place}: {error.strerror or error}; make one with vpo decompose POOL.npz"
            ) from None
        except ValueError:
            raise ValueError(f"{place} is not a JSON file: make one with vpo decompose POOL.npz") from None
    try:
        return Decomposition.model_validate(source)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place} is invalid: {where}{': ' if where else ''}{reason}") from None
