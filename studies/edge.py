"""Tables of ``edge.toml``, after ``vpo study studies/edge.toml``: pass@k of every arm beside its own base.

    python studies/edge.py --runs-dir runs
    python studies/edge.py --measure utility --tasks musique-3 countdown-4    # or best@k

Arms are compared with the better base: the pools before training with one answer in a response, or with three.
Intervals are those over tasks and seeds, paired by both, since arms of a seed share its base.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from suite import cell, compared

from vpo_agent.measure.intervals import interval
from vpo_agent.measure.measures import passes
from vpo_agent.measure.metrics import best_at_k, diversity
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.summary import summarise

BASELINE = "grpo"
KS = (1, 3, 10, 30, 128)
MANY = 30
Measure = Literal["pass", "best", "utility"]


def at_each_k(pools: list[Pool], measure: Measure) -> dict[int, Floats]:
    """Return ``measure``@k of each seed and prompt, (S, N), for each of ``KS``, drawn as by ``vpo eval``."""
    if measure == "pass":
        passed = [found for pool in pools if (found := passes(pool, None)) is not None]
        return {k: np.stack([best_at_k(one, k) for one in passed]) for k in KS}
    summaries = [summarise(pool) for pool in pools]
    return {k: np.stack([one.at_k(measure, k) for one in summaries]) for k in KS}


def main() -> None:
    """Print a table for each task that has finished runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).with_suffix(".toml"))
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--measure", choices=get_args(Measure), default="pass")
    parser.add_argument("--tasks", nargs="+", help="labels (default: all)")
    options = parser.parse_args()
    for task, folders, labels in compared(options.file, options.runs_dir):
        if options.tasks and task.label not in options.tasks:
            continue
        pools: dict[str, dict[str, list[Pool]]] = {"before": {}, "after": {}}
        for (folder, *_), label in zip(folders, labels, strict=True):
            for moment, of_arm in pools.items() if folder.is_dir() else ():
                of_arm.setdefault(label, []).append(Pool.load(folder / f"pool_{moment}.npz"))
        print_task(task.label, pools, options.measure)


def print_task(label: str, pools: dict[str, dict[str, list[Pool]]], measure: Measure) -> None:
    """Print the arms of one task."""
    after = pools["after"]
    tasks = next(iter(after.values()))[0].tasks
    starts: dict[str, list[Pool]] = {}
    for of_arm in pools["before"].values():
        starts.setdefault(f"base, {of_arm[0].rewards.shape[2]} a response", of_arm)
    rows = {name: at_each_k(of_arm, measure) for name, of_arm in (starts | after).items()}
    start = max((rows[name][MANY] for name in starts), key=np.mean)
    heads = [*(f"{measure}@{k}" for k in KS), "diversity"]
    print(f"\n## {label}\n\n| | seeds | {' | '.join(heads)} |\n|---|{'---|' * (len(heads) + 1)}")
    for arm, of_arm in (starts | after).items():
        cells = [found.mean() for found in rows[arm].values()]
        cells.append(
            np.mean([diversity(pool.rewards.reshape(len(pool.indices), -1, pool.rewards.shape[-1])) for pool in of_arm])
        )
        print(f"| {arm} | {len(of_arm)} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    print(f"\n| {measure}@{MANY} | less the better base | less {BASELINE} | over {BASELINE} |\n|---|---|---|---|")
    for arm in after:
        # An unfinished study may lack seeds of either.
        shared = min(len(after[arm]), len(after[BASELINE]), len(start))
        ours, theirs = (rows[one][MANY][:shared] for one in (arm, BASELINE))
        gain, lead = (interval(ours - other, tasks) for other in (start[:shared], theirs))
        ratio = f"{ours.mean() / theirs.mean():.2f}" if theirs.any() else "none"
        print(f"| {arm} | {cell(gain, signed=True)} | {cell(lead, signed=True)} | {ratio} |")


if __name__ == "__main__":
    main()
