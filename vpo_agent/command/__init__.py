"""The console command ``vpo``: those of the environments, and those around a language model.

Each module of this folder is one command. Its ``add_parser(commands)`` states the arguments and sets ``run(arguments,
stdin)``; what is slow to import (torch, transformers) is imported in ``run``, so that ``vpo envs`` and ``vpo --help``
answer at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vpo_agent.command import compare, evaluate, export, push, search, serve, study, train
from vpo_agent.errors import RunStopped
from vpo_envs.command import USER_ERRORS, add_commands, run_command

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments; those of the process where ``None``.

    Returns:
        The exit status: 0; 2 where what was asked for cannot be done.
    """
    parser = argparse.ArgumentParser(
        prog="vpo", description="Vector rewards for language models: environments, training, evaluation, search."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_commands(commands)
    for command in (train, evaluate, compare, study, search, serve, export, push):
        command.add_parser(commands)
    # Settings, models and pools say in a ValueError what is wrong with them.
    return run_command(parser, argv, (*USER_ERRORS, ValueError, RunStopped))
