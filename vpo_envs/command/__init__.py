"""The commands of the environments; ``vpo`` itself is `vpo_agent.command`, which adds its own to these.

What a command needs is imported when it runs, so that ``vpo --help`` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from vpo_envs.command.parser import Commands, Parser, add_env_options, at_least, run_command

__all__ = ["add_commands", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of the environments, by default from the arguments of the process; return the exit status."""
    parser = Parser(prog="vpo", description="Text environments with vector rewards.")
    add_commands(parser.add_subparsers(required=True, metavar="COMMAND"))
    return run_command(parser, argv)


def add_commands(commands: Commands) -> None:
    """Add the commands of the environments."""
    env_help = "such as vpo/Maze-v0; MODULE:ID imports the module or .py file that registers your own"

    envs = commands.add_parser("envs", help="list the environments, or show a task and answers of one")
    envs.add_argument("id", nargs="?", help=f"{env_help}; lists all if left out")
    envs.add_argument("--index", type=at_least(0), default=0, help="which task of the split, default 0")
    envs.set_defaults(run=_envs)

    player = commands.add_parser("play", help="answer in the terminal and see the vector, the front and the picture")
    player.add_argument("id", help=env_help)
    player.add_argument("--seed", type=at_least(0), help="which task; a random one if left out")
    player.add_argument("--num-answers", type=at_least(1), metavar="M", help="how many answers, default 1")
    player.set_defaults(run=_play)

    for parser in (envs, player):
        add_env_options(parser, default={})


def _envs(chosen: argparse.Namespace) -> None:
    from vpo_envs.command.envs import list_envs, show_env

    if chosen.id is not None:
        show_env(chosen.id, chosen.index, chosen.env_kwargs)
    elif chosen.env_kwargs:
        raise ValueError("--env-kwargs needs the id of an environment")
    else:
        list_envs()


def _play(chosen: argparse.Namespace) -> None:
    from vpo_envs.command.play import play

    answers = {} if chosen.num_answers is None else {"num_answers": chosen.num_answers}
    play(chosen.id, chosen.seed, {**chosen.env_kwargs, **answers}, sys.stdin)
