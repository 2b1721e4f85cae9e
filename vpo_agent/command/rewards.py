"""The options that name prompts and reward functions of one's own, for every command that takes an environment."""

from __future__ import annotations

import argparse
from collections.abc import MutableMapping
from typing import Any

NAMES = ("prompts", "rewards", "columns", "range")
MEASURED = "measured"


def add_rewards_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`own_rewards` reads."""
    counts = parser._option_string_actions.get("--prompts")
    add = parser.add_argument_group("your own rewards", "prompts and reward functions, instead of --env").add_argument
    if counts is not None:  # their number, which a file may stand for
        number: Any = counts.type
        counts.type = lambda text: number(text) if text.lstrip("-").isdigit() else text
        counts.help = f"{counts.help}; or a file, see --rewards"
    else:
        add("--prompts", metavar="FILE", help="JSON Lines (or JSON, parquet, hf:org/name) with a prompt and an answer")
    add("--rewards", metavar="FILE.py:A,B", help="reward functions, one objective each; see vpo check")
    add("--columns", metavar="NAME=FIELD,…", help="fields of the file with other names, as prompt=question")
    range_help = "range of the rewards (default: 0,1), NAME=LOW,HIGH for one of them, or measured: that of some answers"
    add("--range", action="append", metavar="LOW,HIGH", help=range_help)


def own_rewards(given: MutableMapping[str, Any]) -> dict[str, Any]:
    """Take these options from those given, and return what they stand for: ``env``, ``env_kwargs`` and ``imports``."""
    chosen = {name: value for name in NAMES if (value := given.get(name)) not in (None, [])}
    if set(chosen) <= {"prompts"} and not isinstance(chosen.get("prompts"), str):
        return {}
    for name in NAMES:
        given.pop(name, None)
    for name in ("prompts", "rewards"):
        if name not in chosen:
            raise ValueError(
                f"--{next(iter(chosen))} needs --{name} as well: give --prompts FILE --rewards FILE.py:A,B"
            )
    if not isinstance(chosen["prompts"], str):
        raise ValueError(f"--prompts {chosen['prompts']} is a number, but --rewards needs a file of prompts")
    if given.get("env"):
        raise ValueError("--env and --rewards are mutually exclusive: give only one")
    from vpo_envs.common.imports import FUNCTIONS_ID
    from vpo_envs.functions.rewards import module_of

    source, rewards = str(chosen["prompts"]), str(chosen["rewards"])
    kwargs: dict[str, Any] = {"source": source, "rewards": rewards}
    if renamed := columns(chosen.get("columns")):
        kwargs["columns"] = renamed
    ranges = _ranges(chosen.get("range", []))
    if ranges == MEASURED:
        from vpo_envs.checking.functions import measured_ranges, read_rows
        from vpo_envs.functions.rewards import load_functions

        ranges = measured_ranges(load_functions(rewards), read_rows(source, kwargs.get("columns")))
        shown = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in ranges.items())
        print(f"measured ranges: {shown}")
    if ranges:
        kwargs["ranges"] = ranges
    kwargs |= given.pop("env_kwargs", None) or {}
    return {
        "env": FUNCTIONS_ID,
        "env_kwargs": kwargs,
        "imports": [module_of(rewards), *(given.pop("imports", None) or [])],
    }


def columns(text: str | None) -> dict[str, str]:
    """Return what ``--columns`` says, the fields of the file by the names that functions know."""
    if text is None:
        return {}
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and field.strip() for name, _, field in pairs):
        raise ValueError(f"--columns must be like prompt=question,answer=solution; got {text!r}")
    return {name.strip(): field.strip() for name, _, field in pairs}


def _ranges(texts: list[str]) -> Any:
    """Return one range for all rewards, ranges by name, ``measured``, or nothing."""
    if texts == [MEASURED]:
        return MEASURED
    found: dict[str, list[float]] = {}
    for text in texts:
        name, _, ends = text.rpartition("=")
        try:
            low, high = map(float, ends.split(","))
        except ValueError:
            raise ValueError(f"--range must be like 0,1 or NAME=0,1 or {MEASURED}, got {text!r}") from None
        found[name] = [low, high]
    if "" in found and len(found) > 1:
        raise ValueError("--range is given for all rewards and for some: give one LOW,HIGH, or NAME=LOW,HIGH for each")
    return found.get("", found)
