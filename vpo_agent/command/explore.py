"""``vpo explore``: a page to move weights on and to see which answer wins."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vpo_agent.command.parser import Commands, add_import_option, at_least


def add_parser(commands: Commands) -> None:
    """Add ``vpo explore``."""
    parser = commands.add_parser(
        "explore",
        help="make a page on which you move the weights and see whose answer wins",
        description="Show the answers of several policies to the same prompts in one HTML file that opens offline: "
        "move the weights of the objectives, and see which answer of each policy wins, beside the exact front.",
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run or of vpo eval, or a pool.npz")
    add("--out", type=Path, default=Path("explore.html"), help="file to write (default: explore.html)")
    add("--labels", metavar="A,B,…", help="one name per run")
    add(
        "--prompts", type=at_least(1), default=20, metavar="N", help="number of instances, the first ones (default: 20)"
    )
    add_import_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the page."""
    from vpo_agent.explore.page import explore_runs
    from vpo_envs.wording import counted

    labels = None if arguments.labels is None else [label.strip() for label in arguments.labels.split(",")]
    shown = explore_runs(arguments.runs, labels, arguments.out, prompts=arguments.prompts)
    size = arguments.out.stat().st_size / 1000
    what = f"{counted(shown.instances, 'instance')} and {counted(len(arguments.runs), 'run')}"
    print(f"{arguments.out} shows {what} in {size:.0f} kB: open it in a browser")
    if shown.lacks:
        print(f"warning: {shown.lacks}", file=sys.stderr)
