"""The options that name prompts and reward functions of one's own, for every command that takes an environment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

NAMES = ("prompts", "rewards", "columns", "range")
"""Arguments for one's own rewards."""
MEASURED = "measured"
"""The value of ``--range`` that asks for the lowest and highest reward of some answers."""


def add_rewards_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`with_own_rewards` reads."""
    group = parser.add_argument_group("your own rewards", "prompts and reward functions, instead of --env")
    add = group.add_argument
    add("--prompts", metavar="FILE", help="JSON Lines (or JSON, parquet, hf:org/name) with a prompt and an answer")
    add("--rewards", metavar="FILE.py:A,B", help="reward functions, one objective each; see vpo check")
    add(
        "--columns",
        metavar="NAME=FIELD,…",
        help="fields that have other names in the file, such as prompt=question",
    )
    range_help = (
        "range of the rewards: LOW,HIGH for all of them, NAME=LOW,HIGH for one, or the word measured, for the "
        "lowest and highest reward of some answers (default: 0,1)"
    )
    add("--range", action="append", metavar="LOW,HIGH", help=range_help)


def with_own_rewards(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with ``env``, ``env_kwargs`` and ``imports`` in place of the options for one's own rewards.

    These options are ``None`` in the result. Arguments without any of them are returned as they are.

    Raises:
        ValueError: Options that do not go together, or a range or a field that cannot be read.
    """
    given = {name: arguments[name] for name in NAMES if arguments.get(name) not in (None, [])}
    if not given:
        return dict(arguments)
    if str(given.get("prompts", "")).isdigit():
        raise ValueError(f"--prompts is a file: for a number of prompts give --eval-prompts {given['prompts']}")
    for name in ("prompts", "rewards"):
        if name not in given:
            raise ValueError(f"--{next(iter(given))} needs --{name} as well: give --prompts FILE --rewards FILE.py:A,B")
    if arguments.get("env"):
        raise ValueError("--env and --rewards are mutually exclusive: give only one")
    from vpo_envs.common.imports import FUNCTIONS_ID
    from vpo_envs.functions.rewards import module_of

    source, rewards = str(given["prompts"]), str(given["rewards"])
    env_kwargs: dict[str, Any] = {"source": source, "rewards": rewards}
    if renamed := columns(given.get("columns")):
        env_kwargs["columns"] = renamed
    ranges = read_range_options(given.get("range", []))
    if ranges == MEASURED:
        from vpo_envs.checking.functions import measured_ranges, read_rows
        from vpo_envs.functions.rewards import load_functions

        ranges = measured_ranges(load_functions(rewards), read_rows(source, env_kwargs.get("columns")))
        print("measured ranges: " + ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in ranges.items()))
    if ranges:
        env_kwargs["ranges"] = ranges
    return {
        **arguments,
        **dict.fromkeys(NAMES),
        "env": FUNCTIONS_ID,
        "env_kwargs": {**env_kwargs, **(arguments.get("env_kwargs") or {})},
        "imports": [module_of(rewards), *(arguments.get("imports") or [])],
    }


def columns(text: str | None) -> dict[str, str]:
    """Return the fields of the file by the names that functions know, from the text of ``--columns``."""
    if text is None:
        return {}
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and field.strip() for name, _, field in pairs):
        raise ValueError(f"--columns must be like prompt=question,answer=solution; got {text!r}")
    return {name.strip(): field.strip() for name, _, field in pairs}


def read_range_options(texts: list[str]) -> Any:
    """Return one range for all rewards, ranges by name, ``measured``, or nothing."""
    if texts == [MEASURED]:
        return MEASURED
    ranges: dict[str, list[float]] = {}
    for text in texts:
        name, _, ends = (part.strip() for part in text.rpartition("="))
        try:
            low, high = map(float, ends.split(","))
        except ValueError:
            raise ValueError(f"--range must be like 0,1 or NAME=0,1 or {MEASURED}, got {text!r}") from None
        if name in ranges:
            raise ValueError(f"--range is given twice for {name or 'all rewards'}: give it once")
        ranges[name] = [low, high]
    if "" in ranges and len(ranges) > 1:
        raise ValueError("--range is given for all rewards and for some: give one LOW,HIGH, or NAME=LOW,HIGH for each")
    return ranges.get("", ranges)
