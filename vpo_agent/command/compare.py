"""``vpo compare``: runs set against each other on the same prompts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from vpo_envs.command import Commands


def add_parser(commands: Commands) -> None:
    """Add ``vpo compare``."""
    parser = commands.add_parser(
        "compare",
        help="compare finished runs, or saved pools, in one report",
        description="Compare runs on the prompts that they were all evaluated on; runs that differ in their seed alone "
        "are one method. Writes report.html, which opens offline, tables and figures.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder, vpo eval's, or a pool.npz")
    parser.add_argument("--out", type=Path, default=Path("comparison"), help="where it goes (default: comparison)")
    parser.add_argument("--labels", metavar="A,B,…", help="one for each run; equal ones are one method")
    parser.add_argument("--baseline", default="vpo", metavar="LABEL", help="compared with (default: vpo, or the first)")
    parser.add_argument("--k", type=int, help="largest k (default: all answers of the smallest pool)")
    parser.add_argument("--threshold", type=float, metavar="R", help="scalar reward that passes, for pass@k")
    parser.add_argument("--pairs", metavar="A,B;…", help="objectives to draw against each other, such as gold,diamond")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, typed: TextIO) -> None:
    """Compare and report.

    Raises:
        ValueError: Runs that cannot be compared, or a bad option.
    """
    from vpo_agent.report.compare import compare_runs
    from vpo_agent.report.compare_page import differences_table, facts, means_table
    from vpo_agent.report.page import markdown_table

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
