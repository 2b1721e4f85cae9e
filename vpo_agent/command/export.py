"""``vpo export`` and ``vpo push``: data sets and packages for other systems, and a policy for the Hugging Face Hub."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from vpo_agent.command.parser import (
    ENV_HELP,
    Commands,
    add_env_options,
    add_import_option,
    add_method_option,
    add_thinking_option,
    add_trust_option,
    at_least,
    json_list,
)

ROW_SETTINGS = ("env_kwargs", "method", "num_weights", "alpha", "weight_sampler", "scalar_weights", "seed")
"""Options that the rows take as they are."""
BENCH = "bench-v2/"
"""Beginning of the names of the tracks of ``vpo bench``."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo export`` and ``vpo push``."""
    parser = commands.add_parser(
        "export",
        help="write data sets or a package for another trainer or evaluator",
        description="Write an environment in the form of another trainer or evaluator.",
    )
    trainers = parser.add_subparsers(required=True, metavar="SYSTEM")
    verl = trainers.add_parser(
        "verl",
        help="write parquet files for verl, and print its command line",
        description="Write train.parquet and validation.parquet in the schema of verl, and print the command that "
        "trains on them.",
    )
    add = verl.add_argument
    add("env", help=ENV_HELP)
    add("--out", type=Path, required=True, metavar="FOLDER", help="output folder")
    add_env_options(verl, default={})
    add(
        "--model", default="Qwen/Qwen3-4B", metavar="TEXT", help="model in the printed command (default: Qwen/Qwen3-4B)"
    )
    add("--method", default="vpo", metavar="TEXT", help="method that scores each rollout by itself (default: vpo)")
    add_method_option(verl, "option of the method; may be repeated")
    add(
        "--num-answers",
        type=lambda text: [at_least(1)(number) for number in text.split(",")],
        metavar="N,…",
        help="answers per rollout, or several numbers such as 1,3 (default: 3 for methods that take several answers, "
        "else 1)",
    )
    add("--train", type=at_least(1), default=4096, metavar="N", help="training prompts (default: 4096)")
    add("--validation", type=at_least(1), default=128, metavar="N", help="validation prompts (default: 128)")
    add_thinking_option(verl, "in the printed command; default: off")
    add("--rollouts", type=at_least(2), default=8, metavar="G", help="rollouts of each prompt, G (default: 8)")
    add(
        "--num-weights",
        type=at_least(1),
        default=128,
        metavar="K",
        help="weightings of each prompt, K (default: 128)",
    )
    add(
        "--weight-sampler",
        default="sobol",
        metavar="{iid,sobol}",
        help="how weightings are drawn: sobol, or iid as in the paper (default: sobol)",
    )
    add(
        "--alpha",
        type=float,
        default=1.0,
        metavar="NUMBER",
        help="Dirichlet concentration of the weightings; 1: uniform (default: 1)",
    )
    add(
        "--scalar-weights",
        type=json_list,
        metavar="N,…",
        help="fixed weighting of the scalar reward, a number per objective (default: as in the environment)",
    )
    add("--seed", type=at_least(0), default=0, metavar="N", help="seed of the drawn weightings (default: 0)")
    verl.set_defaults(run=run_verl)
    verifiers = trainers.add_parser(
        "verifiers",
        help="write a package for verifiers, the Environments Hub and prime-rl",
        description="Write an installable package whose taskset is an environment. Each objective is a named reward.",
    )
    add = verifiers.add_argument
    add(
        "env",
        help="id of an environment, such as vpo/Maze-v0; MODULE:ID; or bench-v2/natural for all tasks of that track",
    )
    add("--out", type=Path, required=True, metavar="FOLDER", help="output folder, new or empty")
    add_env_options(verifiers, default={})
    add("--num-answers", type=at_least(1), default=1, metavar="M", help="answers per response (default: 1)")
    add(
        "--scalar-weights",
        type=json_list,
        metavar="N,…",
        help="weighting of the rewards, a number per objective (default: as in the environment)",
    )
    add(
        "--vpo-gym",
        metavar="PLACE",
        help="folder, wheel or URL of VPO Gym for the package (default: where this VPO Gym was installed from)",
    )
    verifiers.set_defaults(run=run_verifiers)
    pusher = commands.add_parser(
        "push",
        help="publish the model of a run on the Hugging Face Hub",
        description="Upload the model of a run's checkpoint with a card that states its task, training and results, "
        "and how to load it. Optimizer state and paths of this machine are left out.",
    )
    add = pusher.add_argument
    add("folder", type=Path, metavar="run", help="folder of the run, such as runs/NAME")
    add("--repo", required=True, metavar="OWNER/NAME", help="repository on the Hub, created if missing")
    add("--private", action="store_true", help="create a private repository")
    add("--checkpoint", type=int, metavar="STEP", help="step of the checkpoint (default: the newest)")
    add("--license", metavar="ID", help="licence in the card, such as apache-2.0 (default: not stated)")
    add("--dry-run", type=Path, metavar="FOLDER", help="push nothing, and write the files into this folder instead")
    add_import_option(pusher)
    add_trust_option(pusher)
    pusher.set_defaults(run=run_push)


def run_push(arguments: argparse.Namespace) -> None:
    """Push, or write the folder."""
    from vpo_agent.hub import push

    options = {name: getattr(arguments, name) for name in ("checkpoint", "license", "private", "dry_run")}
    print(push(arguments.folder, arguments.repo, **options))


def run_verifiers(arguments: argparse.Namespace) -> None:
    """Write the package and print how to run it."""
    from vpo_envs.adapters.verifiers_package import write_package

    if arguments.env.startswith(BENCH):
        command = _write_track(arguments)
    else:
        command = write_package(
            arguments.env,
            arguments.out,
            env_kwargs=arguments.env_kwargs,
            num_answers=arguments.num_answers,
            scalar_weights=arguments.scalar_weights,
            vpo_gym=arguments.vpo_gym,
        )
    # pip takes a word without a slash for the name of a package of an index.
    print(f"pip install {shlex.quote(os.path.join('.', arguments.out))}\n{command}")


def _write_track(arguments: argparse.Namespace) -> str:
    from vpo_agent.bench.tasks import ANSWERS, RESPONSES, TEMPERATURE, TRACKS
    from vpo_envs.adapters.verifiers_package import write_taskset

    tasks = TRACKS.get(arguments.env.removeprefix(BENCH))
    if tasks is None or arguments.env_kwargs or arguments.num_answers != 1 or arguments.scalar_weights:
        known = " or ".join(BENCH + track for track in TRACKS)
        raise ValueError(f"give {known} without settings of environments, which are fixed; got {arguments.env!r}")
    settings, description = ["parts: dict[str, dict[str, Any]] = {"], []
    for task in tasks:
        part = {
            "env": task.env,
            "env_kwargs": dict(task.env_kwargs),
            "num_answers": ANSWERS,
            "split": "test",
            "size": task.size,
            "sampling": {"temperature": TEMPERATURE, "max_tokens": task.max_new_tokens},
            "scale": (task.blind * task.best, task.best),
        }
        settings.append(f"    {task.name!r}: {part!r},")
        description.append(f"- {task.name}: {task.size} of `{task.env}`, `{part['env_kwargs']}`")
    settings.append("}")
    description.append("\nThe mean of the metric `score` over all responses is the score of `vpo bench`.")
    run = f"-n {sum(task.size for task in tasks)} -r {RESPONSES}"
    return write_taskset(arguments.env, arguments.out, settings, description, run, arguments.vpo_gym)


def run_verl(arguments: argparse.Namespace) -> None:
    """Write the files for verl and print the command line."""
    from vpo_agent.adapters.verl import command_line, dataset_rows, settings_of_rows, write_parquet
    from vpo_agent.config import default_num_answers
    from vpo_agent.policy.gguf_file import is_gguf
    from vpo_envs.common.wording import counted
    from vpo_envs.registration import env_type, registering_module

    env_type(arguments.env)
    if is_gguf(arguments.model):
        raise ValueError(
            f"verl takes no GGUF file such as {arguments.model!r}: give the folder or name of the same model"
        )
    # verl scores in processes of its own, which must import what registers the environment.
    module = None if ":" in arguments.env else registering_module(arguments.env)
    numbers = arguments.num_answers or [default_num_answers(arguments.method)]
    settings = settings_of_rows(
        arguments.env if module is None else f"{module}:{arguments.env}",
        num_answers=numbers if len(numbers) > 1 else numbers[0],
        method_options=dict(arguments.method_options),
        **{name: getattr(arguments, name) for name in ROW_SETTINGS},
    )
    for split, count in (("train", arguments.train), ("validation", arguments.validation)):
        write_parquet(dataset_rows(settings, range(count), split), arguments.out / f"{split}.parquet")
    sizes = f"train.parquet ({counted(arguments.train, 'prompt')}) and validation.parquet ({arguments.validation})"
    print(f"{arguments.out}/ holds {sizes}\n")
    program, options = command_line(
        arguments.out, model=arguments.model, rollouts=arguments.rollouts, thinking=arguments.thinking == "on"
    )
    print(" \\\n    ".join([program, *map(shlex.quote, options)]))
