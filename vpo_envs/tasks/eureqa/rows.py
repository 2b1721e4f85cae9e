"""Reads EUREQA's published schema (Li et al., 2024). Its rows are CC BY-NC 4.0, so none is bundled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from envs_data.readers import BadRow
from vpo_envs.tasks.eureqa.task import CHAIN, EUREQATask

_Text = Annotated[str, Field(min_length=1)]


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    idx: str
    question: list[_Text] = Field(min_length=1)
    entity_masks: list[_Text] = Field(min_length=CHAIN + 1)
    entities: list[str] = Field(min_length=CHAIN + 1)

    @field_validator("idx", mode="before")
    @classmethod
    def _a_number_is_a_name(cls, idx: object) -> object:
        return str(idx) if isinstance(idx, int) and not isinstance(idx, bool) else idx

    @field_validator("question", mode="before")
    @classmethod
    def _one_text_is_one_sentence(cls, question: object) -> object:
        return [question] if isinstance(question, str) else question


def read_published(raw: Mapping[str, Any]) -> EUREQATask:
    """Return the task of a row of EUREQA.

    Masks and entities run from the head of the chain to its leaf: mask ``i`` stands for entity ``i``, the first five
    are asked for, the sixth is the leaf, and the rest is ignored. A row does not say which order it is in, so one in
    another order must be reordered first.

    Raises:
        BadRow: Another schema.
        ValidationError: The row does not fit the schema.
    """
    if "entities" not in raw and "entity_masks" not in raw:
        raise BadRow("", "unknown schema: a row of EUREQA has idx, question, entity_masks and entities")
    row = _Row.model_validate(dict(raw))
    a, b, c, d, e, leaf = [entity.replace("_", " ").strip() for entity in row.entities[: CHAIN + 1]]
    masks = row.entity_masks
    return EUREQATask(
        id=row.idx,
        clues=tuple(row.question),
        masks=(masks[0], masks[1], masks[2], masks[3], masks[4], masks[5]),
        leaf=leaf,
        worlds=((a, b, c, d, e),),
    )
