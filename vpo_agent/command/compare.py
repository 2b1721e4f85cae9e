"""``vpo compare``: runs side by side on the same prompts."""

from __future__ import annotations

import argparse
from pathlib import Path

from vpo_agent.command.parser import Commands, add_import_option, at_least


def add_parser(commands: Commands) -> None:
    """Add ``vpo compare``."""
    parser = commands.add_parser(
        "compare",
        help="compare finished runs, or saved pools, in one report",
        description="Compare runs on the prompts that they were all evaluated on; runs that differ only in their seed "
        "are one method. Writes report.html, which opens offline, tables and figures.",
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run or of vpo eval, or a pool.npz")
    add("--out", type=Path, default=Path("comparison"), help="output folder (default: comparison)")
    add("--labels", metavar="A,B,…", help="one label per run; runs with the same label are one method")
    add("--baseline", default="vpo", metavar="LABEL", help="label to compare with (default: vpo, or the first)")
    add("--k", type=at_least(1), help="largest k (default: all answers of the smallest pool)")
    add("--threshold", type=float, metavar="R", help="scalar reward at which an answer passes, for pass@k")
    add("--pairs", metavar="A,B;…", help="objectives to draw against each other, such as gold,diamond")
    add_import_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Compare and report."""
    from vpo_agent.pages.page import markdown_table
    from vpo_agent.report.compare import compare_runs
    from vpo_agent.report.compare_page import differences_table, facts, means_table

    tables = compare_runs(
        arguments.runs,
        None if arguments.labels is None else [label.strip() for label in arguments.labels.split(",")],
        arguments.out,
        arguments.baseline,
        k=arguments.k,
        threshold=arguments.threshold,
        pairs=arguments.pairs,
    )
    print("\n".join(facts(tables)) + "\n")
    print(markdown_table(*means_table(tables)))
    if tables["differences"]:
        print(f"\nDifferences from {tables['baseline']}\n\n{markdown_table(*differences_table(tables))}")
    print(f"\n{arguments.out}/ holds report.html, compare.md, compare.json and the figures")
