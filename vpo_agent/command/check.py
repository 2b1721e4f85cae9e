"""``vpo check``: a table with a verdict for each check of an environment or of reward functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.command.parser import Failed
from vpo_envs.checking.checker import Finding, check_each
from vpo_envs.checking.functions import FunctionRewards, load_functions, read_rows
from vpo_envs.checking.subject import Row
from vpo_envs.registration import make_text_env
from vpo_envs.wording import counted

DETAIL_CHARS = 240
"""Longer details are cut."""


def check_env(env_id: str, env_kwargs: dict[str, Any], instances: int) -> None:
    """Check an environment by its id and print the table.

    Raises:
        ValueError: There is no such environment, or it cannot be made.
        Failed: A check failed.
    """
    env = make_text_env(env_id, **env_kwargs)
    findings, rows = check_each(env, instances)
    _report(f"{env_id}, {counted(instances, 'task')} of split {env.split}", findings, rows)


def check_functions(target: str, prompts: Path, bounds: Sequence[Any], instances: int) -> None:
    """Check reward functions on the prompts of a file and print the table.

    Raises:
        ValueError: The functions or the prompts cannot be read, or do not fit together.
        Failed: A check failed.
    """
    if len(bounds) != 2 or not all(type(end) in (int, float) for end in bounds) or not bounds[0] < bounds[1]:
        raise ValueError(f"--range must be two numbers, the lower one first, such as 0,1; got {bounds}")
    rows = read_rows(prompts)[:instances]
    rewards = FunctionRewards(load_functions(target), rows, (float(bounds[0]), float(bounds[1])))
    _report(f"{target}, {len(rows)} prompts of {prompts}", *check_each(rewards))


def _report(title: str, findings: Sequence[Finding], rows: Sequence[Row]) -> None:
    print(title)
    if rows:
        head = ("objective", "lowest", "highest", "good answers", "to other prompts", "worth nothing")
        numbers = [(row.objective, *("–" if np.isnan(x) else f"{x:.2f}" for x in row[1:])) for row in rows]
        _print_table([head, *numbers])
    _print_table([("check", "verdict", ""), *((one.check, one.verdict, _short(one.detail)) for one in findings)])
    failed = [one.check for one in findings if one.verdict == "FAIL"]
    if failed:
        raise Failed(f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= DETAIL_CHARS else f"{text[:DETAIL_CHARS]}…"


def _print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print lines of cells, the first of which is the head; the last column is as long as it is."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print()
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
