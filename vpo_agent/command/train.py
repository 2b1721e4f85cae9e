"""``vpo train``: a training run from settings alone."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from vpo_envs.command import Commands

DESCRIPTION = """Train a language model on an environment, and show what it learned on held-out prompts.

Settings come from --config FILE and from the options. The example scripts do the same with presets for one task."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo train``; its options are the settings of a run, which are only read where it is called."""
    parser = commands.add_parser("train", help="train a policy on an environment", add_help=False, prefix_chars="\0")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, typed: TextIO) -> None:
    """Train and report."""
    from vpo_agent.libraries import check_libraries

    # Before the imports that fail in their own words where a library is too old.
    check_libraries()
    from vpo_agent.command.job import train_and_report
    from vpo_agent.command.options import parse_job

    train_and_report(
        parse_job(
            arguments.options,
            description=DESCRIPTION,
            presets={"defaults": {}},
            default_preset="defaults",
            program="vpo train",
        )
    )
