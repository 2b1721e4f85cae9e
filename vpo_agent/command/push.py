"""``vpo push``: a trained policy with its card on the Hugging Face Hub."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from vpo_envs.command.parser import Commands, add_import_option


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
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # exported, but by a table that mypy does not read

    from vpo_agent.report.publish import prepare_folder, push_folder

    try:
        validate_repo_id(arguments.repo)
    except HFValidationError as error:
        raise ValueError(f"--repo {arguments.repo!r} cannot be a name on the Hub: {error}") from None

    about = {"repo": arguments.repo, "checkpoint": arguments.checkpoint, "license": arguments.license}
    if arguments.dry_run is not None:
        prepare_folder(arguments.folder, arguments.dry_run, **about)
        size = sum(file.stat().st_size for file in arguments.dry_run.iterdir()) / 2**20
        print(f"{arguments.dry_run} holds what would be pushed to {arguments.repo}, {size:.1f} MiB; nothing was sent")
        return
    with tempfile.TemporaryDirectory() as temporary:
        prepare_folder(arguments.folder, Path(temporary), **about)
        print(f"pushed to {push_folder(Path(temporary), arguments.repo, private=arguments.private)}")
