"""Reads GSM8K's published schema (Cobbe et al., 2021)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from envs_data.readers import BadRow
from vpo_envs.core import Unparsable
from vpo_envs.tasks.gsm8k.task import FINAL, SHOWN_CHARS, GSM8KTask, read_equation, read_number

MARK = re.compile(r"<<([^<>]*)>>")


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    question: str = Field(min_length=1)
    answer: str


def read_gsm8k_row(raw: Mapping[str, Any]) -> GSM8KTask:
    """Return the task of a row: its question, the calculations in ``<<…>>``, and the final answer after ``####``.

    Calculations that do not hold exactly, such as ``<<10/3=3.33>>``, and those that calculate nothing, such as
    ``<<14=14>>``, are left out.

    Raises:
        BadRow: Another schema, no final answer, or a mark that is not an equation.
        ValidationError: The row does not fit the schema.
    """
    if "question" not in raw and "answer" not in raw:
        raise BadRow("", "unknown schema: a row of GSM8K has question and answer")
    row = _Row.model_validate(dict(raw))
    solution, mark, final = row.answer.rpartition(FINAL)
    if not mark:
        raise BadRow("answer", f"there is no final answer after {FINAL}: {row.answer[-SHOWN_CHARS:]!r}")
    try:
        read_number(final)
        calculations = tuple([text for text in MARK.findall(solution) if read_equation(text).right])
    except Unparsable as error:
        raise BadRow("answer", str(error)) from None
    return GSM8KTask(question=row.question, calculations=calculations, final=final.strip())
