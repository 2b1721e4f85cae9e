"""``vpo export``: what another trainer needs, as files."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from vpo_envs.command import Commands


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("export", help="write data sets for another trainer")
    trainers = parser.add_subparsers(required=True, metavar="TRAINER")
    verl = trainers.add_parser(
        "verl",
        help="parquet files and the command line for verl",
        description="Write train.parquet and validation.parquet in the schema of verl, and print the command that "
        "trains on them.",
    )
    verl.add_argument("env", help="id of an environment, such as vpo/Maze-v0")
    verl.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the files go")
    verl.add_argument("--env-kwargs", metavar="JSON", default="{}", help="arguments of the environment")
    verl.add_argument("--model", default="Qwen/Qwen3-4B", help="named in the command line, default Qwen/Qwen3-4B")
    verl.add_argument("--method", default="vpo", help="a method that scores each rollout by itself, default vpo")
    verl.add_argument("--method-options", metavar="JSON", default="{}", help="its options")
    verl.add_argument("--num-answers", type=int, metavar="M", help="answers in a rollout; the method's usual number")
    verl.add_argument("--train", type=int, default=4096, metavar="N", help="training prompts, default 4096")
    verl.add_argument("--validation", type=int, default=128, metavar="N", help="validation prompts, default 128")
    verl.add_argument("--rollouts", type=int, default=8, metavar="G", help="of each prompt, default 8")
    verl.add_argument("--num-weights", type=int, default=128, metavar="K", help="weights of a prompt, default 128")
    verl.add_argument("--weight-sampler", default="sobol", help="sobol or iid, default sobol")
    verl.add_argument("--alpha", type=float, default=1.0, help="Dirichlet concentration, default 1")
    verl.add_argument("--scalar-weights", metavar="JSON", help="fixed weights of the scalar reward, as a list")
    verl.add_argument("--seed", type=int, default=0, help="keys the weights, default 0")
    verl.set_defaults(run=run)


def run(chosen: argparse.Namespace, typed: TextIO) -> None:
    """Write the files and print the command line.

    Raises:
        ValueError: A bad option, or the files cannot be written.
    """
    from vpo_agent.adapters.verl import command_line, dataset_rows, settings_of_rows, write_parquet
    from vpo_agent.config import DEFAULT_SET_SIZE
    from vpo_agent.estimators import estimator

    for name, least in (("train", 1), ("validation", 1), ("rollouts", 2)):
        if getattr(chosen, name) < least:
            raise ValueError(f"--{name} must be at least {least}, got {getattr(chosen, name)}")
    usual = 1 if estimator(chosen.method).answers == "single" else DEFAULT_SET_SIZE
    settings = settings_of_rows(
        chosen.env,
        env_kwargs=_json("--env-kwargs", chosen.env_kwargs, dict),
        num_answers=usual if chosen.num_answers is None else chosen.num_answers,
        method=chosen.method,
        method_options=_json("--method-options", chosen.method_options, dict),
        num_weights=chosen.num_weights,
        alpha=chosen.alpha,
        weight_sampler=chosen.weight_sampler,
        scalar_weights=None
        if chosen.scalar_weights is None
        else _json("--scalar-weights", chosen.scalar_weights, list),
        seed=chosen.seed,
    )
    for split, count in (("train", chosen.train), ("validation", chosen.validation)):
        write_parquet(dataset_rows(settings, range(count), split), chosen.out / f"{split}.parquet")
    print(f"{chosen.out}/ holds train.parquet ({chosen.train} prompts) and validation.parquet ({chosen.validation})\n")
    line = command_line(chosen.out, settings, model=chosen.model, rollouts=chosen.rollouts)
    print(" \\\n    ".join([f"{line[0]} {line[1]} {line[2]}", *map(shlex.quote, line[3:])]))


def _json(option: str, text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise ValueError(f"{option} must be a JSON {'object' if kind is dict else 'list'}, got {text!r}")
    return value
