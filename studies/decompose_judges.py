"""Two judges of studies/decompose.toml: users who weigh the 15 tests, and users who weigh the three customers.

    vpo study studies/decompose.toml
    python studies/decompose_judges.py

One table: utility of three and of thirty answers for each arm and for the model it started from, where the weights are
uniform on the tests and where they are uniform on the customers. Intervals are 95 %, Student's t over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from vpo_agent.decompose import mapped_pool
from vpo_agent.measure.intervals import interval
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_agent.pages.page import markdown_table
from vpo_agent.runs.study import StudyRun, read_study, runs_of
from vpo_envs.decomposition.linear import read_decomposition

HERE = Path(__file__).parent
KS = (3, 30)


def judged(pools: Iterable[Pool], customers: Path) -> list[str]:
    """Return the cells of one row, from the pools of an arm's seeds: tests at each k, then customers at each k."""
    by_customer = read_decomposition(customers)
    utilities: list[list[float]] = []
    for pool in pools:
        both = [summarise(one) for one in (pool, mapped_pool(pool, by_customer))]
        utilities.append([float(one.at_k("utility", k).mean()) for one in both for k in KS])
    cells = []
    for values in zip(*utilities, strict=True):
        # Each value is a mean over prompts, so the interval is that of the seeds.
        band = interval(np.array(values)[:, None])
        half = "" if len(values) == 1 else f" ± {(float(band.high) - float(band.low)) / 2:.3f}"
        cells.append(f"{sum(values) / len(values):.3f}{half}")
    return cells


def table(runs: Sequence[StudyRun], customers: Path) -> str:
    """Return the table in Markdown, of the runs that are finished."""
    done = [run for run in runs if run.finished]
    if not done:
        raise ValueError("no run of the study is finished: run vpo study first")
    rows: list[list[str]] = []
    starts: dict[int, list[Pool]] = {}
    for label in dict.fromkeys(run.label for run in done):
        mine = [run for run in done if run.label == label]
        before, after = ([Pool.load(run.folder / f"pool_{when}.npz") for run in mine] for when in ("before", "after"))
        rows.append([label, str(len(mine)), *judged(after, customers)])
        starts.setdefault(before[0].rewards.shape[2], before)
    for answers, before in sorted(starts.items()):
        rows.append([f"base model, m = {answers}", str(len(before)), *judged(before, customers)])
    head = ["arm", "seeds", *(f"utility@{k}, {judge}" for judge in ("tests", "customers") for k in KS)]
    return markdown_table(head, rows, "lrrrrr")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Judge the runs of the decomposition study by tests and by customers.")
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="parent of the study's folder, default runs"
    )
    asked = parser.parse_args(arguments)
    study = read_study(HERE / "decompose.toml")
    print(table(runs_of(study, asked.runs_dir), HERE / "decompositions" / "hand.json"))


if __name__ == "__main__":
    main()
