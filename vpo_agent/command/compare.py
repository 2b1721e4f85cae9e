"""``vpo compare``, ``vpo explore`` and ``vpo show``: runs side by side on the same prompts, and the answers of one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vpo_agent.command.parser import Commands, add_import_option, add_trust_option, at_least


def add_parser(commands: Commands) -> None:
    """Add ``vpo compare``, ``vpo explore`` and ``vpo show``."""
    report = commands.add_parser(
        "compare",
        help="compare finished runs or sample files in one report",
        description="Compare runs on the prompts that they were all evaluated on. Runs with the same method and "
        "training settings are one method; their seeds may differ. The folder --out gets tables, figures and "
        "report.html, which opens offline.",
    )
    page = commands.add_parser(
        "explore",
        help="write a page on which you change the weighting and see whose answer wins",
        description="Show the answers of several policies to the same prompts in one HTML file that opens offline. "
        "Change the weighting of the objectives, and see which answer of each policy wins, beside the exact front.",
    )
    for parser, run, out in ((report, compare, "comparison"), (page, explore, "explore.html")):
        add = parser.add_argument
        add(
            "runs", nargs="+", type=Path, metavar="RUN", help="run, folder of vpo eval, or sample file such as pool.npz"
        )
        kind = "FILE" if Path(out).suffix else "FOLDER"
        add("--out", type=Path, default=Path(out), metavar=kind, help=f"{kind.lower()} to write (default: {out})")
        parser.set_defaults(run=run)
        add_import_option(parser)
        add_trust_option(parser)
    add = report.add_argument
    add("--labels", metavar="A,B,…", help="one label per run; equal labels are one method (default: from the settings)")
    add("--baseline", metavar="LABEL", help="label of the method to compare with (default: grpo, or the first)")
    add("--k", type=at_least(1), metavar="K", help="largest k shown (default: all answers of the smallest sample file)")
    add(
        "--threshold",
        type=float,
        metavar="R",
        help="scalar reward from which an answer solves its task, for pass@k (default: within 0.02 of the best on the "
        "exact front)",
    )
    add = page.add_argument
    add("--labels", metavar="A,B,…", help="one label per run (default: from the settings)")
    shown = "first tasks to show (default: 20)"
    add("--eval-prompts", type=at_least(1), default=20, metavar="N", help=shown)
    texts = commands.add_parser(
        "show",
        help="show the answers of a run, their rewards and the reasons; works during training",
        description="Print a few prompts with their answers, rewards and reasons, and write a page with many more "
        "answers to sort, filter and search. During training, repeat the command to see the newest answers.",
    )
    texts.add_argument(
        "folder", type=Path, metavar="RUN", help="run, folder of vpo eval, or sample file such as pool.npz"
    )
    texts.add_argument(
        "--out", type=Path, metavar="FILE", help="page to write (default: transcripts.html in the folder)"
    )
    add_import_option(texts)
    add_trust_option(texts)
    texts.set_defaults(run=show)


def compare(arguments: argparse.Namespace) -> None:
    """Compare and report."""
    from vpo_agent.report.compare import compare_runs

    chosen = {name: getattr(arguments, name) for name in ("k", "threshold")}
    tables = compare_runs(arguments.runs, _labels(arguments), arguments.out, arguments.baseline, **chosen)
    print(comparison_text(tables))
    print(f"{arguments.out}/ holds report.html, compare.md with all measures, compare.json and the figures")


def comparison_text(tables: Mapping[str, Any]) -> str:
    """Return a comparison for a terminal: the verdict, the rows that it rests on, and what was compared."""
    from vpo_agent.pages.page import markdown_table
    from vpo_agent.report.compare_page import facts, means_table

    parts = ["\n".join(tables["verdict"]), markdown_table(*means_table(tables, brief=True)), "\n".join(facts(tables))]
    return "\n\n".join(part for part in parts if part) + "\n"


def explore(arguments: argparse.Namespace) -> None:
    """Write the page."""
    from vpo_agent.explore.page import explore_runs
    from vpo_envs.common.wording import counted

    shown = explore_runs(arguments.runs, _labels(arguments), arguments.out, prompts=arguments.eval_prompts)
    size = arguments.out.stat().st_size / 1000
    content = f"{counted(shown.tasks, 'task')} and {counted(len(arguments.runs), 'run')}"
    print(f"{arguments.out} shows {content} in {size:.0f} kB: open it in a browser")
    if shown.lacks:
        print(f"warning: {shown.lacks}", file=sys.stderr)


def show(arguments: argparse.Namespace) -> None:
    """Print some answers, and write the page."""
    from vpo_agent.explore.template import transcripts_of
    from vpo_agent.explore.transcripts import in_words, read_transcripts, write_transcripts
    from vpo_envs.common.wording import counted

    out = arguments.out or transcripts_of(arguments.folder)
    transcripts = read_transcripts(arguments.folder)
    count = write_transcripts(transcripts, out, str(arguments.folder))
    print(f"{in_words(transcripts)}\n\n{out} has {counted(count, 'answer')} to sort, filter and search")
    if transcripts.lacks:
        print(f"warning: {transcripts.lacks}", file=sys.stderr)


def _labels(arguments: argparse.Namespace) -> list[str] | None:
    return None if arguments.labels is None else [label.strip() for label in arguments.labels.split(",")]
