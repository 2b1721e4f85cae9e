"""``vpo train`` and the example scripts: a training run from settings alone."""

from __future__ import annotations

import argparse
from functools import partial

from vpo_agent import presets
from vpo_agent.command.parser import USER_ERRORS, Commands, exit_status
from vpo_agent.errors import RunStopped
from vpo_agent.runs.stopped import when_stopped

DESCRIPTION = """Train a language model on an environment, and show what it learned on held-out prompts.

With no options this trains the bundled tiny model on the maze, on the CPU in minutes. Settings come from --preset,
--config FILE and the options, later ones winning."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo train``; its options are the settings of a run, which are read only when it is called."""
    parser = commands.add_parser("train", help="train a policy on an environment", add_help=False, prefix_chars="\0")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Train and report."""
    train(arguments.options, DESCRIPTION, presets.ALL, "vpo train")


def train_script(description: str, choices: presets.Presets) -> None:
    """Run a training script with these presets, the default one first: read the command line, train, report."""
    # As vpo_agent.command.options.run, whose imports take seconds that Ctrl-C may fall into.
    if status := exit_status(partial(train, None, description, choices), (*USER_ERRORS, RunStopped)):
        raise SystemExit(status)


def train(argv: list[str] | None, description: str, choices: presets.Presets, program: str | None = None) -> None:
    """Train as a command line says; arguments as for :func:`vpo_agent.command.options.parse_job`."""
    with when_stopped("no step was taken yet: give the same command again"):
        from vpo_agent.command.options import parse_job
        from vpo_envs.libraries import check_libraries
        from vpo_envs.registration import env_type, import_modules

        # Before torch is loaded, which takes seconds.
        job = parse_job(argv, description=description, presets=choices, program=program)
        import_modules(job.config.imports)
        env_type(job.config.env)
        # Before the imports that fail with messages of their own where a library is too old.
        check_libraries()
        from vpo_agent.job import train_and_report

        train_and_report(job)
