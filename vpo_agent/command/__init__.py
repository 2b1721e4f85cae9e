"""The console command ``vpo``: the commands of the environments, and those around a language model.

Each module of this folder is one command. Its ``add_parser(commands)`` declares the arguments and sets
``run(arguments)``; what is slow to import (torch, transformers) is imported in ``run``, so that ``vpo envs`` and
``vpo --help`` answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from vpo_agent.command import (
    compare,
    completion,
    decompose,
    evaluate,
    explore,
    export,
    plan,
    push,
    search,
    serve,
    study,
    train,
    warm_start,
)
from vpo_agent.errors import RunStopped
from vpo_envs import __version__
from vpo_envs.command import add_commands
from vpo_envs.command.parser import USER_ERRORS, Parser, run_command

__all__ = ["main"]

COMMANDS = (
    *(warm_start, plan, train, evaluate, compare, explore, decompose, study),
    *(search, serve, export, push, completion),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of ``vpo``, and return its exit status as of :func:`vpo_envs.command.parser.exit_status`."""
    return run_command(make_parser(), argv, (*USER_ERRORS, RunStopped))


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="vpo", description="Vector rewards for language models: environments, training, evaluation, search."
    )
    parser.add_argument("--version", action="version", version=f"vpo-gym {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_commands(commands)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
