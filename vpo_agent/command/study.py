"""``vpo study``: a whole comparison from one file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vpo_agent.command.compare import comparison_text
from vpo_agent.command.parser import Commands, add_accept_option, add_import_option, add_trust_option, at_least
from vpo_agent.runs.continuing import vpo_command, when_stopped

if TYPE_CHECKING:
    from vpo_agent.runs.study import StudyRun

EXPLORED = 4
"""Largest number of policies on the page of ``vpo explore``."""
EXAMPLE = """\
# vpo study FILE runs every method with every seed on every task, and compares the methods with the baseline.
name = "mine"
seeds = [0, 1, 2]
baseline = "grpo"

[settings]                      # of all runs: those of vpo train, with _ for -
steps = 100
prompts_per_step = 16
learning_rate = 2e-4
kl_coef = 0.0

[[tasks]]                       # one or several
label = "maze"
settings = { env = "vpo/Maze-v0", env_kwargs = { preset = "compact" }, model = "tiny-maze", max_new_tokens = 60 }

[[methods]]
label = "vpo"
settings = { method = "vpo" }

[[methods]]
label = "grpo"
settings = { method = "grpo" }
"""


def add_parser(commands: Commands) -> None:
    """Add ``vpo study``."""
    parser = commands.add_parser(
        "study",
        help="compare methods over seeds, from one file",
        description="Run every unfinished run of a study file, then write the report. The same command continues an "
        "interrupted study. A finished run leaves a small data file, from which the report is made. A run whose data "
        "file exists is not repeated.",
    )
    add = parser.add_argument
    add("file", type=Path, nargs="?", help="study file, such as studies/conflict.toml")
    add("--example", action="store_true", help="print a study file to start from, and do nothing else")
    add("--runs-dir", type=Path, default=Path("runs"), metavar="PATH", help="folder of all runs (default: runs)")
    add(
        "--results", type=Path, metavar="PATH", help="folder of all data files (default: results beside the study file)"
    )
    add("--seeds", type=at_least(0), nargs="+", metavar="N", help="seeds of every method (default: those of the file)")
    add("--methods", nargs="+", metavar="LABEL", help="labels of the methods to run (default: all)")
    add("--tasks", nargs="+", metavar="LABEL", help="tasks to run (default: all)")
    processes = (
        "runs at the same time, which share the cores unless OMP_NUM_THREADS is set (default: one per GPU, or core)"
    )
    add("--processes", type=at_least(1), metavar="N", help=processes)
    add("--report-only", action="store_true", help="report on the finished runs, and run nothing")
    add_accept_option(parser)
    add_import_option(parser)
    add_trust_option(parser)
    parser.where_set = _where_set
    parser.set_defaults(run=run)


def _where_set(option: str) -> str:
    """Say where a study sets this setting of its runs; empty if it does not."""
    from vpo_agent.config import TrainConfig
    from vpo_agent.runs.study import DECIDED_BY_THE_STUDY

    name = option.removeprefix("--").replace("-", "_")
    # Who types --method more likely chooses among the methods of the study than sets that of all runs.
    if name not in TrainConfig.model_fields or name in DECIDED_BY_THE_STUDY or name == "method":
        return ""
    return f"set {name} in the study file, under settings for all runs, or under those of a method"


def run(arguments: argparse.Namespace) -> None:
    """Run the study and report."""
    if arguments.example and arguments.file is not None:
        raise ValueError(f"--example prints a study and reads none: leave out --example or {str(arguments.file)!r}")
    if arguments.example:
        print(EXAMPLE, end="")
        return
    if arguments.file is None:
        raise ValueError("a study needs its file: give FILE.toml, or --example to see one")
    with when_stopped(f"finished steps are kept, and the same command continues: {vpo_command(*arguments.argv)}"):
        run_and_report(arguments)


def run_and_report(arguments: argparse.Namespace) -> None:
    """Run what is unfinished, and compare what is finished, task by task."""
    from vpo_agent.runs.run_data import delete_data, keep_data
    from vpo_agent.runs.study import check_finished, run_study, runs_of, runs_with_changed_inputs
    from vpo_agent.runs.study_file import RESULTS, read_study, to_compare
    from vpo_envs.common.trust import trust_values
    from vpo_envs.common.wording import counted

    study = read_study(arguments.file)
    results = arguments.results or arguments.file.parent / RESULTS
    chosen = {"seeds": arguments.seeds, "labels": arguments.methods, "tasks": arguments.tasks}
    runs = runs_of(study, arguments.runs_dir, results, **chosen, imports=arguments.imports)
    check_finished(runs)
    for run in runs:
        # What its pools state is what the study says.
        trust_values(run.config.env_kwargs)
    changed = [] if arguments.report_only else runs_with_changed_inputs(runs, accept=arguments.accept_changes)
    folder = arguments.runs_dir / study.name
    if all(run.finished and run not in changed for run in runs):
        data = results / study.name
        print(f"all runs are finished, so this is a report on them; to run them again, delete {folder} and {data}")
    for run in changed:
        delete_data(run)
    for run in runs:
        if run.finished_here and run not in changed and not run.data.is_file():
            keep_data(run, run.folder, commit="")
    failed: list[StudyRun] = []
    if not arguments.report_only:
        failed = run_study(runs, changed=changed, processes=arguments.processes)
    runs_of_task: dict[str, list[StudyRun]] = {}
    for run in runs:
        runs_of_task.setdefault(run.task or "", []).append(run)
    finished = {task: to_compare(members) for task, members in runs_of_task.items()}
    if not any(files for files, _ in finished.values()):
        way_out = "leave --report-only out" if arguments.report_only else f"see the .log files under {folder}"
        raise ValueError(f"no run of the study {study.name!r} is finished, so there is nothing to report on: {way_out}")
    from vpo_agent.report.compare import compare_runs
    from vpo_agent.report.study import write_study

    comparisons = {}
    for task, (files, labels) in finished.items():
        if not files:
            continue
        report = folder / task / "report"
        baseline = study.baseline if study.baseline in labels else labels[-1]
        comparisons[task] = compare_runs(files, labels=labels, out=report, baseline=baseline)
        if not task:
            print("\n" + comparison_text(comparisons[task]))
            _explore(runs, folder / "explore.html")
        print(f"the whole comparison: {report / 'report.html'}")
    if study.tasks:
        print(write_study(comparisons, folder))
    if failed:
        names = ", ".join(f"{run.title}, seed {run.seed}" for run in failed)
        raise ValueError(
            f"{len(failed)} of {counted(len(runs), 'run')} failed ({names}): see their .log files under {folder}"
        )


def _explore(runs: Sequence[StudyRun], out: Path) -> None:
    """Write the page with one run of each of the last policies that ran here, and with the better base."""
    first_run: dict[str, Path] = {}
    for run in runs:
        if run.part is None and run.finished_here:
            first_run.setdefault(run.label, run.folder)
    if not first_run:
        return
    from vpo_agent.explore.page import better_base, explore_runs

    if bases := [base for folder in first_run.values() for base in sorted(folder.glob("pool_before*.npz"))]:
        base, label = better_base(bases)
        first_run[label] = base
    shown = list(first_run)[-EXPLORED:]
    explore_runs([first_run[label] for label in shown], shown, out)
    print(f"change the weighting and see whose answer wins: {out}")
