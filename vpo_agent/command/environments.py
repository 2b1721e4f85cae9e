"""``vpo envs``, ``vpo play`` and ``vpo check``, whose code is imported when they run."""

from __future__ import annotations

import argparse
from pathlib import Path

from vpo_agent.command.parser import Commands, add_env_options, at_least, json_list


def add_parser(commands: Commands) -> None:
    """Add the commands of the environments."""
    env_help = "such as vpo/Maze-v0; MODULE:ID imports the module or .py file that registers your own"

    envs = commands.add_parser("envs", help="list the environments, or show a task and answers of one")
    envs.add_argument("id", nargs="?", help=f"{env_help}; lists all if left out")
    envs.add_argument("--index", type=at_least(0), default=0, help="which task of the split, default 0")
    envs.set_defaults(run=_envs)

    player = commands.add_parser(
        "play", help="answer in the terminal, again and again, and see how near the best you are"
    )
    player.add_argument("id", help=env_help)
    player.add_argument("--seed", type=at_least(0), help="which task; a random one if left out")
    player.add_argument("--num-answers", type=at_least(1), metavar="M", help="how many answers, default 1")
    player.set_defaults(run=_play)

    checker = commands.add_parser(
        "check", help="check an environment, or reward functions: signs, duplicates, attacks, determinism"
    )
    checker.add_argument("id", help=f"{env_help}; with --prompts reward functions, as MODULE:NAME or FILE.py:A,B")
    checker.add_argument("--prompts", type=Path, metavar="FILE", help="JSON Lines with a prompt and an answer each")
    checker.add_argument("--range", type=json_list, metavar="LOW,HIGH", help="scores of the functions (default: 0,1)")
    checker.add_argument("--instances", type=at_least(1), metavar="N", help="prompts (default: 8; of a file 64)")
    checker.set_defaults(run=_check)

    for parser in (envs, player, checker):
        add_env_options(parser, default={})


def _envs(chosen: argparse.Namespace) -> None:
    from vpo_agent.command.envs import list_envs, show_env

    if chosen.id is not None:
        show_env(chosen.id, chosen.index, chosen.env_kwargs)
    elif chosen.env_kwargs:
        raise ValueError("--env-kwargs needs the id of an environment")
    else:
        list_envs()


def _play(chosen: argparse.Namespace) -> None:
    from vpo_agent.command.play import play

    answers = {} if chosen.num_answers is None else {"num_answers": chosen.num_answers}
    play(chosen.id, chosen.seed, {**chosen.env_kwargs, **answers})


def _check(chosen: argparse.Namespace) -> None:
    from vpo_agent.command.check import check_env, check_functions

    if chosen.prompts is None:
        if chosen.range is not None:
            raise ValueError("--range needs --prompts, which has reward functions checked: an environment's is [0, 1]")
        check_env(chosen.id, chosen.env_kwargs, chosen.instances or 8)
    elif chosen.env_kwargs:
        raise ValueError("--env-kwargs needs an environment, and --prompts reward functions: leave one of them out")
    else:
        check_functions(chosen.id, chosen.prompts, chosen.range or [0, 1], chosen.instances or 64)
