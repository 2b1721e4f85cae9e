"""The console command ``vpo``.

Each module of this folder is one command. Its ``add_parser(commands)`` declares the arguments and sets
``run(arguments)``; what is slow to import (torch, transformers) is imported in ``run``, so that ``vpo envs`` and
``vpo --help`` answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from vpo_agent.command import (
    compare,
    environments,
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
from vpo_agent.command.parser import USER_ERRORS, Parser, run_command
from vpo_agent.errors import RunStopped
from vpo_envs import __version__

__all__ = ["main"]

COMMANDS = (
    *(environments, warm_start, plan, train, evaluate, compare, explore, study),
    *(search, serve, export, push),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of ``vpo``, and return its exit status as of :func:`vpo_agent.command.parser.exit_status`."""
    return run_command(make_parser(), argv, (*USER_ERRORS, RunStopped))


def make_parser() -> Parser:
    """Return the parser of all commands, which alone prints its help."""
    parser = Parser(
        prog="vpo", description="Vector rewards for language models: environments, training, evaluation, search."
    )
    parser.add_argument("--version", action="version", version=f"vpo-gym {__version__}")
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
