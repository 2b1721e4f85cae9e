"""The stated origin of a pool or a run, which anybody may have written: it is checked by type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vpo_envs.common.wording import visible

WholeNumber = Field(None, ge=0, lt=2**63)
_BASE_LABEL = re.compile(r"(base|before)(?=$|[ ,(-])")


class _Usage(BaseModel):
    """Tokens that an endpoint has counted, ``None`` where it has not, and the responses that were cut."""

    model_config = ConfigDict(strict=True, extra="allow")

    prompt_tokens: int | None
    completion_tokens: int | None
    truncated: int


class _Training(BaseModel):
    """What a data file of a study says about the training of its run."""

    model_config = ConfigDict(strict=True, extra="allow")

    settings: dict[str, Any] = {}
    evaluations: dict[str, list[int | float | None]] = {}
    tokens: int | None = WholeNumber
    inputs: dict[str, str] = {}
    versions: dict[str, str] = {}
    commit: str | None = None


class _Origin(BaseModel):
    """The entries that are read, each of which may be missing or null; others are of any type."""

    model_config = ConfigDict(strict=True, extra="allow")

    env: str | None = None
    env_kwargs: dict[str, Any] | None = None
    split: str | None = None
    num_answers: int | list[int] | None = None
    tasks: str | None = None
    model: str | None = None
    method: str | None = None
    method_options: dict[str, Any] | None = None
    run: str | None = None
    seed: int | None = WholeNumber
    step: int | None = WholeNumber
    steps: int | None = WholeNumber
    dtype: str | None = None
    endpoint: str | None = None
    temperature: float | None = None
    max_new_tokens: int | None = WholeNumber
    usage: _Usage | None = None
    imports: list[str] | None = None
    scalar_weights: list[float] | None = None
    training: _Training | None = None


def is_plain(name: str) -> bool:
    """Return whether a name is on one line and has no characters that command a terminal or are not seen."""
    return name == visible(name) and "\n" not in name


def check_origin(entries: Mapping[str, Any], owner: str) -> None:
    """Raise ValueError if an entry of a pool's source, or a setting of a run, is of another type than it should be."""
    for name, value in entries.items():
        if isinstance(value, str) and not is_plain(value):
            raise ValueError(f"{owner} has {name}={value!r:.100}, with characters that are not seen")
    try:
        _Origin.model_validate(dict(entries))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise ValueError(f"{owner} has {name}={entries[name]!r:.100}: {first['msg'].lower()}") from None


def names_base(label: str) -> bool:
    """Return whether a label is that of a base, the model before training: ``base`` or ``before``, and what follows."""
    return _BASE_LABEL.match(label) is not None
