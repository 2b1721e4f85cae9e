"""``vpo train``, ``vpo warm-start`` and the example scripts: a training from settings alone."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpo_agent import presets
from vpo_agent.command.parser import (
    Commands,
    Parser,
    add_accept_option,
    add_env_options,
    add_trust_option,
    run_script,
)
from vpo_agent.command.rewards import add_rewards_options
from vpo_agent.runs.continuing import vpo_command, when_stopped

if TYPE_CHECKING:
    from vpo_agent.config import Recipe

DESCRIPTION = """Train a language model on an environment, and show what it learned on held-out prompts.

Without options this trains the bundled tiny model on the maze, on the CPU in minutes. Settings come from --preset,
then --config FILE, then the options. Later settings win."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo train`` and ``vpo warm-start``, whose options are read from the settings only when they are called."""
    parser = commands.add_parser("train", help="train a model on an environment", add_help=False, prefix_chars="\0")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run, trusted=[])
    parser = commands.add_parser(
        "warm-start",
        help="teach a model the answers of an environment from demonstrations",
        description="Train a model on an environment's demonstrations by next-token prediction. RL then starts from a "
        "base whose answers are readable and diverse. Evaluations during training show the share of validation "
        "answers that can be read, and their utility. The folder --out gets an ordinary model and its recipe.",
    )
    parser.declare = _declare_recipe
    parser.set_defaults(run=warm_start)


def run(arguments: argparse.Namespace) -> None:
    """Train and report."""
    train(arguments.options, DESCRIPTION, presets.ALL, "vpo train")


def train_script(description: str, choices: presets.Presets) -> None:
    """Run a training script with these presets, the default one first: read the command line, train, report."""
    run_script(partial(train, None, description, choices))


def train(argv: list[str] | None, description: str, choices: presets.Presets, program: str | None = None) -> None:
    """Train as a command line says; arguments as for :func:`vpo_agent.command.options.parse_job`."""
    with when_stopped("no step was taken yet: give the same command again"):
        from vpo_agent.command.options import parse_job
        from vpo_agent.policy.downloads import check_model
        from vpo_envs.common.imports import import_modules
        from vpo_envs.common.libraries import check_libraries
        from vpo_envs.registration import make_text_env

        # Before torch is loaded, which takes seconds.
        job = parse_job(argv, description=description, presets=choices, program=program)
        import_modules(job.config.imports)
        config = job.config
        env = make_text_env(config.env, **config.train_kwargs, num_answers=config.max_answers, split="train")
        env.check_scorers()
        check_model(config.model)
        # Before the imports that fail with messages of their own where a library is too old.
        check_libraries()
        from vpo_agent.job import train_and_report

        train_and_report(job)


def _declare_recipe(parser: Parser) -> None:
    from vpo_agent.command.options import value_kind
    from vpo_agent.config import Recipe

    add = parser.add_argument
    add("--recipe", type=Path, metavar="FILE", help="TOML or JSON file of settings, such as a model's recipe.json")
    add_env_options(parser)
    add_trust_option(parser)
    add_rewards_options(parser)
    for name, field in Recipe.model_fields.items():
        if name not in ("env_kwargs", "imports"):
            default = str(field.default).strip("[]").replace(",", "")
            note = "" if field.is_required() else f" (default: {default})"
            several: dict[str, Any] = {"nargs": "+", "type": int} if name == "answers" else {}
            kind = "N" if several else value_kind(field.annotation)
            add(
                f"--{name.replace('_', '-')}",
                metavar=kind,
                help=f"{field.description}{note}",
                **several,
            )
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder to write the model into")
    add("--device", default="auto", metavar="TEXT", help="auto, cpu, cuda or cuda:0 (default: auto)")
    add(
        "--gradient-checkpointing",
        action="store_true",
        help="recompute activations in the backward pass to save memory",
    )
    add("--resume", action="store_true", help="continue from the folder's last checkpoint")
    add_accept_option(parser)


def warm_start(arguments: argparse.Namespace) -> None:
    """Train with evaluations during training, and save."""
    try:
        _warm_start(arguments)
    except KeyboardInterrupt:
        words = list(arguments.argv)
        if not any((arguments.out / "checkpoints").glob("step_*")):
            raise KeyboardInterrupt(f"no step is saved yet, so start again with: {vpo_command(*words)}") from None
        resume = [] if arguments.resume else ["--resume"]
        raise KeyboardInterrupt(f"continue from the last checkpoint with: {vpo_command(*words, *resume)}") from None


def _warm_start(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    saved = any((out / "checkpoints").glob("step_*"))
    if arguments.resume and not saved:
        raise ValueError(f"there is no checkpoint to resume from in {str(out)!r}: leave --resume out")
    if saved and not arguments.resume:
        raise ValueError(f"{str(out)!r} holds a warm start already: give --resume, or another --out")
    if arguments.accept_changes and not arguments.resume:
        raise ValueError("--accept-changes is for a warm start that is continued: add --resume, or leave it out")
    recipe = read_recipe(arguments)
    from vpo_agent.config import FRESH, env_options
    from vpo_agent.policy.downloads import check_model

    if recipe.model != FRESH:
        check_model(recipe.model)
    from vpo_agent.pages.page import check_folder
    from vpo_agent.runs.warm_start import RECIPE, WarmStartTraining

    check_folder(out, RECIPE)
    training = WarmStartTraining(
        recipe,
        out,
        device=arguments.device,
        gradient_checkpointing=arguments.gradient_checkpointing,
        accept_changes=arguments.accept_changes,
    )
    if training.plan:
        print(training.plan.table())
    training.train()
    command = vpo_command("train", *env_options(recipe.env, recipe.env_kwargs, recipe.imports), "--model", str(out))
    print(f"saved to {out}; train it with: {command}")


def read_recipe(arguments: argparse.Namespace) -> Recipe:
    """Return the settings: the defaults, overridden by the file and then by the command line."""
    from vpo_agent.command.options import refuse_unasked, typed
    from vpo_agent.config import Recipe, check_settings, read_values

    file = arguments.recipe or (arguments.out / "recipe.json" if arguments.resume else None)
    given = {name: typed(Recipe, name, getattr(arguments, name)) for name in Recipe.model_fields}
    settings = read_values(file) if file else {}
    given = {name: value for name, value in given.items() if value not in (None, [])}
    settings |= given
    if file and arguments.recipe is None:
        refuse_unasked(settings, given, "the warm start")
    if "env" not in settings:
        raise ValueError(
            "a warm start needs an environment: give --env ID, --prompts FILE --rewards FILE.py:A,B, or --recipe FILE"
        )
    return check_settings(Recipe, settings, f"the settings, including {str(file)!r}" if file else "the settings")
