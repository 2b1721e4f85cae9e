"""The commands of the environments, and what every command of ``vpo`` shares: streams, errors, exit statuses.

``vpo`` itself is `vpo_agent.command`, which adds its own commands to these.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from vpo_envs.command.envs import list_envs, show_env
from vpo_envs.command.play import play
from vpo_envs.command.show import CommandError
from vpo_envs.core import AnswerTimeout, ScorerFailure

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["CommandError", "add_commands", "main", "run_command"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command of the environments.

    Args:
        argv: Arguments; those of the process where ``None``.

    Returns:
        The exit status: 0, or 2 where what was asked for cannot be done.
    """
    parser = argparse.ArgumentParser(prog="vpo", description="Text environments with vector rewards.")
    add_commands(parser.add_subparsers(required=True, metavar="COMMAND"))
    return run_command(parser, argv)


USER_ERRORS: tuple[type[Exception], ...] = (CommandError, ScorerFailure, AnswerTimeout)


def run_command(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    errors: tuple[type[Exception], ...] = USER_ERRORS,
) -> int:
    """Parse ``argv`` and call the chosen command's ``run(arguments, stdin)``.

    Args:
        parser: Knows the commands.
        argv: Arguments; those of the process where ``None``.
        errors: What says in its message what the user can do about it; anything else is a bug and keeps its traceback.

    Returns:
        The exit status: 0, or 2 after one line on standard error where what was asked for cannot be done.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # A terminal that lacks a character shows a question mark in its place.
            reconfigure(errors="replace")
    chosen = parser.parse_args(argv)
    try:
        chosen.run(chosen, sys.stdin)
        sys.stdout.flush()
    except errors as error:
        print(f"vpo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader, such as head, has seen enough; Python's own flush at the end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def add_commands(commands: Commands) -> None:
    """Add the commands of the environments."""
    kwargs_help = 'arguments of the environment as a JSON object, such as \'{"mode": "conflict"}\''

    envs = commands.add_parser("envs", help="list the environments, or show a task and answers of one")
    envs.add_argument("id", nargs="?", help="such as vpo/Maze-v0; all are listed where it is left out")
    envs.add_argument("--index", type=int, default=0, help="which task of the split, default 0")
    envs.add_argument("--env-kwargs", metavar="JSON", default="{}", help=kwargs_help)
    envs.set_defaults(run=_run_envs)

    player = commands.add_parser("play", help="answer in the terminal and see the vector, the front and the picture")
    player.add_argument("id", help="such as vpo/Maze-v0")
    player.add_argument("--seed", type=int, help="which task; a random one where it is left out")
    player.add_argument("--num-answers", type=int, metavar="M", help="how many answers, default 1")
    player.add_argument("--env-kwargs", metavar="JSON", default="{}", help=kwargs_help)
    player.set_defaults(run=_run_play)


def _run_envs(chosen: argparse.Namespace, typed: TextIO) -> None:
    env_kwargs = _read_kwargs(chosen.env_kwargs)
    if chosen.id is not None:
        show_env(chosen.id, chosen.index, env_kwargs)
    elif env_kwargs:
        raise CommandError("--env-kwargs needs the id of an environment")
    else:
        list_envs()


def _run_play(chosen: argparse.Namespace, typed: TextIO) -> None:
    env_kwargs = _read_kwargs(chosen.env_kwargs)
    if chosen.num_answers is not None:
        env_kwargs["num_answers"] = chosen.num_answers
    if chosen.seed is not None and chosen.seed < 0:
        raise CommandError(f"--seed must be at least 0, got {chosen.seed}")
    play(chosen.id, chosen.seed, env_kwargs, typed)


def _read_kwargs(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CommandError(f"--env-kwargs must be a JSON object, got {text!r}")
    return value
