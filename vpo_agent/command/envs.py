"""``vpo envs``, ``vpo play`` and ``vpo check``: which environments there are, to look at, to play and to check."""

from __future__ import annotations

import argparse
import inspect
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpo_agent.command.parser import ENV_HELP, Commands, Failed, add_env_options, at_least
from vpo_agent.command.rewards import MEASURED, columns, read_range_options
from vpo_agent.progress import progress
from vpo_agent.runs.continuing import vpo_command

if TYPE_CHECKING:
    from vpo_agent.command.show import Example
    from vpo_envs.checking.subject import Subject
    from vpo_envs.core import AnyEnv

CONFLICT_TASKS = 16
"""Number of tasks on which the conflict of the objectives is measured."""
DETAIL_CHARS = 240
"""Longer details of a check are cut."""


def add_parser(commands: Commands) -> None:
    """Add the commands of the environments."""
    envs = commands.add_parser(
        "envs",
        help="list the environments, or show a task of one with answers",
        description="List the environments and their objectives. With an id, show one task: its prompt, answers with "
        "their reward vectors, the arguments of the environment, and what is gained by a set "
        "of answers and by the reward vector.",
    )
    envs.add_argument("id", nargs="?", help=f"{ENV_HELP} (default: list all)")
    envs.add_argument(
        "--index", type=at_least(0), default=0, metavar="N", help="index of the task in its split (default: 0)"
    )
    envs.add_argument(
        "--row", action="store_true", help="show a row of the data sets that the environment reads, instead of a task"
    )

    player = commands.add_parser(
        "play",
        help="answer a task in the terminal and see how close you are to the best answers",
        description="Answer a task in the terminal, as often as you like. Each response is scored, and all of your "
        "answers are compared with the exact front if it is known.",
    )
    player.add_argument("id", help=ENV_HELP)
    player.add_argument(
        "--seed", type=at_least(0), metavar="N", help="seed that chooses the task (default: a random task)"
    )
    player.add_argument("--num-answers", type=at_least(1), metavar="M", help="answers per response (default: 1)")

    checker = commands.add_parser(
        "check",
        help="check the rewards of an environment or of functions: signs, duplicates, attacks, determinism",
        description="Score good answers, empty answers and attacks, and report what each objective pays for. The exit "
        "status is 0 if no check failed, 1 if a check failed, and 2 if nothing could be checked.",
    )
    checker.add_argument("id", help=f"{ENV_HELP}; with --prompts, reward functions as MODULE:NAME or FILE.py:A,B")
    checker.add_argument(
        "--prompts", metavar="FILE", help="JSON Lines (or JSON, parquet, hf:org/name) with a prompt and an answer"
    )
    checker.add_argument(
        "--columns",
        metavar="NAME=FIELD,…",
        help="fields that have other names in the file, such as prompt=question",
    )
    checker.add_argument(
        "--range",
        action="append",
        metavar="LOW,HIGH",
        help="range of the rewards: LOW,HIGH for all functions, or NAME=LOW,HIGH for one (default: 0,1)",
    )
    checker.add_argument(
        "--num-tasks", type=at_least(1), metavar="N", help="tasks to check (default: 8, or 64 prompts of a file)"
    )

    new = commands.add_parser(
        "new",
        help="write a small environment of your own to start from",
        description="Write a .py file with a small environment of your own. It passes vpo check, and vpo train can "
        "train on it.",
    )
    new.add_argument("file", type=Path, help="file to write, such as my_task.py, whose environment is own/MyTask-v0")
    new.add_argument(
        "--turns", action="store_true", help="write an environment that replies in the middle of a response"
    )
    new.set_defaults(run=write_template)

    for parser, run in ((envs, show), (player, play), (checker, check)):
        add_env_options(parser, default={})
        parser.set_defaults(run=run)


def write_template(arguments: argparse.Namespace) -> None:
    """Write an environment, and print the commands that check it, teach it to a small model, and train that."""
    file: Path = arguments.file
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ValueError(f"{str(file)!r} is no name of a module: give one such as my_task.py")
    name = "".join(word.capitalize() for word in file.stem.split("_"))
    env_id = f"own/{name or 'Task'}-v0"
    template, example = ("template_turns.py", "own/Desk-v0") if arguments.turns else ("template.py", "own/Note-v0")
    text = Path(__file__).with_name(template).read_text(encoding="utf-8").replace(example, env_id)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        raise ValueError(f"cannot write {str(file)!r}: {error.strerror}") from None
    base, env = f"runs/{file.stem}-base", f"{file}:{env_id}"
    learn = "--steps 100 --batch 32 --learning-rate 2e-3 --max-new-tokens 24 --eval-every 100"
    train = "--steps 40 --prompts-per-step 8 --learning-rate 3e-4 --kl-coef 0 --max-new-tokens 24"
    commands = [
        ("checks the rewards and the contract", ["check", env]),
        ("teaches a small model", ["warm-start", "--env", env, *learn.split(), "--out", base]),
        ("trains it with VPO", ["train", "--env", env, "--model", base, *train.split(), "--name", file.stem]),
        ("shows its answers under any weighting", ["explore", f"runs/{file.stem}", "--import", str(file)]),
    ]
    print(f"{file} holds {env_id}, to be changed into yours. As it is, it learns within minutes:\n")
    for purpose, words in commands:
        print(f"{vpo_command(*words)}   # {purpose}")


def show(arguments: argparse.Namespace) -> None:
    """List the environments, or show one."""
    if arguments.row:
        show_row(arguments.id)
    elif arguments.id is not None:
        show_env(arguments.id, arguments.index, arguments.env_kwargs)
    elif arguments.env_kwargs:
        raise ValueError("--env-kwargs needs the id of an environment")
    else:
        list_envs()


def list_envs() -> None:
    """Print each environment with its task and its objectives; those that take no text say so."""
    import gymnasium as gym

    from vpo_agent.command.show import show_objectives
    from vpo_envs.core import VectorTextEnv
    from vpo_envs.registration import env_ids

    width = max(map(len, env_ids()))
    for env_id in env_ids():
        env: Any = gym.make(env_id).unwrapped
        print(f"{env_id:<{width}}  {_first_line(type(env))}")
        if isinstance(env, VectorTextEnv):
            print(f"{'':<{width}}  {show_objectives(env.objective_names)}")
        else:
            _, info = env.reset(seed=0)
            print(f"{'':<{width}}  {show_objectives(info['objectives'])} (one action per step, not text)")


def show_row(env_id: str | None) -> None:
    """Print a row of the data sets that an environment reads."""
    from vpo_envs.registration import env_type, text_env_ids

    if row := getattr(env_type(env_id), "example_row", None) if env_id else None:
        print(json.dumps(row, ensure_ascii=False))
        return
    with_rows = [known for known in text_env_ids() if getattr(env_type(known), "example_row", None)]
    raise ValueError(f"--row needs the id of an environment that reads a data set: one of {', '.join(with_rows)}")


def _first_line(env_class: type) -> str:
    return (inspect.getdoc(env_class) or "").partition("\n")[0].replace("``", "")


def show_env(env_id: str, index: int, env_kwargs: dict[str, Any]) -> None:
    """Print one prompt, a good answer and a poor one with their statuses and vectors.

    An environment that takes no text is shown with its spaces and the first state of an episode.
    """
    from vpo_agent.command.show import good_example, poor_example
    from vpo_envs.checking.conflict import objective_conflict
    from vpo_envs.core import UnknownFront, VectorTextEnv
    from vpo_envs.registration import env_type, make_text_env

    if not issubclass(env_type(env_id), VectorTextEnv):
        _show_steps(env_id, index, env_kwargs)
        return
    env = make_text_env(env_id, **env_kwargs)
    try:
        task = env.task(index)
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    print(f"{env_id}, task {index} of split {env.split}\n")
    print(env.prompt(task, env.num_answers))
    good = good_example(env, task)
    if good is None:
        print("\nA good answer is not known: the environment has neither an exact front nor demonstrations.")
    else:
        _show_example(env, task, "a good answer", good)
    _show_example(env, task, "a poor answer", poor_example(env, index))
    with suppress(UnknownFront):
        print(f"\n{objective_conflict(env, CONFLICT_TASKS).headline}")


def _show_example(env: AnyEnv, task: Any, title: str, example: Example) -> None:
    from vpo_agent.command.show import show_vector
    from vpo_envs.core import Unparsable
    from vpo_envs.text import bare_answer, readable

    reason = ""
    try:
        env.parse(bare_answer(example.answer))
    except Unparsable as error:
        reason = f" ({error})"
    print(f"\n{title}\n  {readable(example.answer).replace(chr(10), chr(10) + '  ') or '(empty)'}")
    print(f"{example.status.name.lower()}{reason}: {show_vector(env, task, example.vector)}")


def _show_steps(env_id: str, index: int, env_kwargs: dict[str, Any]) -> None:
    """Show an environment of ordinary multi-objective RL: one action per step, arrays for observations."""
    import gymnasium as gym

    from vpo_agent.command.show import show_objectives
    from vpo_envs.registration import env_type

    env_class = env_type(env_id)
    draws = "ansi" in env_class.metadata["render_modes"]
    kwargs = {"render_mode": "ansi", **env_kwargs} if draws else env_kwargs
    try:
        env = gym.make(env_id.rpartition(":")[2], **kwargs)
    except (TypeError, gym.error.Error) as error:
        raise ValueError(f"{env_id} cannot be made: {error}") from None
    _, info = env.reset(options={"index": index})
    print(f"{env_id}: {_first_line(env_class)}\n\nobservation: {env.observation_space}\naction: {env.action_space}")
    print(f"reward: a vector of {show_objectives(info['objectives'])}")
    print("several at once: gym.make_vec without a vectorization_mode (Gymnasium's modes take scalar rewards only)")
    if draws:
        print(f"\n{env.render()}")


def play(arguments: argparse.Namespace) -> None:
    """Let the user answer."""
    from vpo_agent.command.play import play

    answers = {} if arguments.num_answers is None else {"num_answers": arguments.num_answers}
    play(arguments.id, arguments.seed, {**arguments.env_kwargs, **answers})


def check(arguments: argparse.Namespace) -> None:
    """Check an environment by its id, or reward functions on the prompts of a file, and print the table."""
    from vpo_envs.checking.functions import FunctionRewards, read_rows
    from vpo_envs.checking.subject import EnvSubject
    from vpo_envs.common.wording import counted
    from vpo_envs.functions.rewards import load_functions
    from vpo_envs.registration import make_text_env

    if arguments.prompts is None:
        if arguments.range is not None:
            raise ValueError("--range is for the reward functions of --prompts: an environment has the range [0, 1]")
        env, num_tasks = make_text_env(arguments.id, **arguments.env_kwargs), arguments.num_tasks or 8
        _report(f"{arguments.id}, {counted(num_tasks, 'task')} of split {env.split}", EnvSubject(env, num_tasks))
        return
    if arguments.env_kwargs:
        raise ValueError("--env-kwargs needs an environment, and --prompts reward functions: leave one of them out")
    ranges = read_range_options(arguments.range or ["0,1"])
    if ranges == MEASURED:
        raise ValueError(
            f"--range {MEASURED} is for training: without it, the columns lowest and highest show the ranges"
        )
    prompts = read_rows(arguments.prompts, columns(arguments.columns))[: arguments.num_tasks or 64]
    rewards = FunctionRewards(load_functions(arguments.id), prompts, ranges)
    said = (
        f"prompts for several answers say: {rewards.said_in_prompts}\neach objective is described by the first line of "
        """its function's docstring; --env-kwargs '{"name_objectives": false}' leaves this sentence out in training"""
    )
    _report(f"{arguments.id}, {len(prompts)} prompts of {arguments.prompts}", rewards, said)


def _report(title: str, subject: Subject, said: str = "") -> None:
    """Check, and print a title, tables of the objectives and the checks, whether a set can pay, and what is ``said``.

    Raises:
        Failed: A check failed.
    """
    from vpo_envs.checking.checker import check_each
    from vpo_envs.checking.payoff import payoff

    findings, rows = check_each(subject, watched=partial(progress, label="checking", unit="check"))
    print(title)
    if rows:
        table: list[Sequence[str]] = [
            ("objective", "lowest", "highest", "good answers", "to other prompts", "non-answers")
        ]
        for row in rows:
            numbers = ["–" if math.isnan(number) else f"{number:.2f}" for number in row[1:]]
            table.append([row.objective, *numbers])
        _print_table(table)
    lines = [("check", "verdict", "")]
    for finding in findings:
        detail = " ".join(finding.detail.split())
        if len(detail) > DETAIL_CHARS:
            detail = f"{detail[:DETAIL_CHARS]}…"
        lines.append((finding.check, finding.verdict, detail))
    _print_table(lines)
    if rows:
        print(f"\n{payoff(subject)}")
    if said:
        print(f"\n{said}")
    failed = [finding.check for finding in findings if finding.verdict == "FAIL"]
    if failed:
        raise Failed(f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}")


def _print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print rows of cells, the head first, in columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print()
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
