"""Logs of a training: one JSON object per line, with the ``step`` of each, read whole or up to a step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envs_data.parsing import parse_json

MOST_STEPS = 2**53
"""Larger steps are no longer whole numbers in a figure."""
WAY_OUT = "restore the file from a copy, or delete that line to go on without it"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a log, without a last one that is incomplete, such as one being written; none without a file.

    Raises:
        ValueError: Another line is damaged; the message names it.
    """
    rows: list[dict[str, Any]] = []
    damaged = 0
    for number, _, row in _lines(path):
        if damaged:
            raise ValueError(f"line {damaged} of {str(path)!r} is damaged: {WAY_OUT}")
        if row is None:
            damaged = number
        else:
            rows.append(row)
    return rows


def rows_until(path: Path, step: int) -> str:
    """Return the lines of a log up to ``step``; none for step 0, where a training starts again.

    The rows after ``step`` are written again. A damaged line among them, such as one that a power failure cut short, is
    left out like them, and named on standard error.

    Raises:
        ValueError: A damaged line stands before a row that is not written again; the message names it.
    """
    if not step:
        return ""
    kept: list[str] = []
    damaged: list[int] = []
    for number, line, row in _lines(path):
        if row is None:
            damaged.append(number)
        elif row["step"] <= step:
            if damaged:
                raise ValueError(f"line {damaged[0]} of {str(path)!r} is damaged: {WAY_OUT}")
            kept.append(line.decode().rstrip() + "\n")
    if len(damaged) == 1:
        print(f"line {damaged[0]} of {str(path)!r} was cut short, as by a power failure: left out", file=sys.stderr)
    elif damaged:
        numbers = ", ".join(map(str, damaged))
        print(f"lines {numbers} of {str(path)!r} are damaged, as by a power failure: left out", file=sys.stderr)
    return "".join(kept)


def _lines(path: Path) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
    """Yield the lines of a log with their numbers, from 1, and their rows; ``None`` for a damaged line."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ValueError(f"cannot read {str(path)!r}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        yield number, line, row if _is_whole(row) else None


def _is_whole(row: Any) -> bool:
    """Return whether a value is a row: an object with a step, of a kind where it states one."""
    if not isinstance(row, dict) or not isinstance(row.get("kind", ""), str):
        return False
    return type(row.get("step")) is int and 0 <= row["step"] < MOST_STEPS
