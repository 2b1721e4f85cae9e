"""``vpo push``: a trained policy with its card on the Hugging Face Hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from vpo_agent.command.parser import Commands, add_import_option


def add_parser(commands: Commands) -> None:
    """Add ``vpo push``."""
    parser = commands.add_parser(
        "push",
        help="publish the policy of a run on the Hugging Face Hub",
        description="Upload the model of a run's checkpoint with a card that states its task, training and results, "
        "and how to load it. Optimizer state and paths of this machine are left out.",
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="run", help="the run's folder, such as runs/NAME")
    add("--repo", required=True, metavar="OWNER/NAME", help="repository on the Hub, created if missing")
    add("--private", action="store_true", help="create the repository as a private one")
    add("--checkpoint", type=int, metavar="STEP", help="step of the checkpoint; default: the newest")
    add("--license", metavar="ID", help="licence in the card, such as apache-2.0; not stated by default")
    add("--dry-run", type=Path, metavar="FOLDER", help="only write what would be pushed")
    add_import_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Push, or write the folder."""
    from vpo_agent.hub import push

    about = {name: getattr(arguments, name) for name in ("checkpoint", "license", "private", "dry_run")}
    print(push(arguments.folder, arguments.repo, **about))
