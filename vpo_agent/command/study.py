"""``vpo study``: a whole comparison from one file."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from vpo_envs.command import Commands


def add_parser(commands: Commands) -> None:
    """Add ``vpo study``."""
    parser = commands.add_parser(
        "study",
        help="compare methods over seeds, from one file",
        description="Make every run that a study file states and that is not finished, then write the report. "
        "Stopped at any time, the same command goes on.",
    )
    parser.add_argument("file", type=Path, help="such as studies/maze.toml")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where the study's folder goes")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", help="in place of the file's, for every arm")
    parser.add_argument("--arms", nargs="+", metavar="LABEL", help="only these arms")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="runs at a time, default one a core"
    )
    parser.add_argument("--report-only", action="store_true", help="make no run, report on the finished ones")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, typed: TextIO) -> None:
    """Run the study and report.

    Raises:
        ValueError: A bad file or option, or runs that failed.
    """
    from vpo_agent.runs.study import check_finished, read_study, run_study, runs_of

    if arguments.processes < 1:
        raise ValueError(f"--processes must be at least 1, got {arguments.processes}")
    study = read_study(arguments.file)
    runs = runs_of(study, arguments.runs_dir, seeds=arguments.seeds, labels=arguments.arms)
    check_finished(runs)
    failed = [] if arguments.report_only else run_study(runs, processes=arguments.processes)
    finished = [one for one in runs if one.finished]
    if not finished:
        raise ValueError(f"no run of the study {study.name!r} is finished, so there is nothing to report on")
    from vpo_agent.report.compare import compare_runs

    labels = [one.label for one in finished]
    report = arguments.runs_dir / study.name / "report"
    compare_runs(
        [one.folder for one in finished],
        labels=labels,
        out=report,
        baseline=study.baseline if study.baseline in labels else labels[0],
    )
    print(f"{len(finished)} of {len(runs)} runs compared: {report / 'report.html'}")
    if failed:
        names = ", ".join(f"{one.label}-seed{one.seed}" for one in failed)
        raise ValueError(f"{len(failed)} of {len(runs)} runs failed ({names}): see their .log files")
