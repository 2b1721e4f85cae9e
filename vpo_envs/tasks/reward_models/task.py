"""A prompt with reference answers, on which the scores of reward models and judges are calibrated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from envs_data.readers import BadRow
from vpo_envs.core import Task


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
    """Return the task of a row with ``prompt`` and ``references``, a list of at least two answers.

    Raises:
        BadRow: Another schema.
        ValidationError: A field has another type.
    """
    if "prompt" not in raw and "references" not in raw:
        raise BadRow("", "unknown schema: a row has prompt, and references, a list of at least two answers to it")
    for field in ("prompt", "references"):
        if field not in raw:
            raise BadRow(field, "Field required")
    return RewardTask(request=raw["prompt"], references=raw["references"])
