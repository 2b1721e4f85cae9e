"""Tables of ``edge.toml``, after ``vpo study studies/edge.toml``:
pass@k, best@k or utility@k of every arm beside its own base.

    python studies/edge.py --runs-dir runs
    python studies/edge.py --measure utility --tasks musique-3 countdown-4

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
from vpo_agent.measure.metrics import best_at_k, best_at_k_whole, diversity
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.summary import summarise

BASELINE = "grpo"
KS = (1, 3, 10, 30, 128)
MANY = 30
Measure = Literal["pass", "best", "utility"]
Arms = dict[str, dict[int, Pool]]
"""The pool of each seed of each arm."""


def at_each_k(pool: Pool, measure: Measure) -> dict[int, Floats]:
    """Return ``measure``@k of each prompt, (N,), for each of ``KS``: whole responses if m divides k, not for pass."""
    if measure == "utility":
        summary = summarise(pool)
        return {k: summary.at_k("utility", k) for k in KS}
    scalar = pool.scalar()
    if measure == "best":
        return {k: best_at_k_whole(scalar.reshape(len(scalar), -1), scalar.max(axis=2), k) for k in KS}
    if (passed := passes(pool, None)) is None:
        raise ValueError("this task does not say which answers pass: give --measure best or utility")
    return {k: best_at_k(passed, k) for k in KS}


def main() -> None:
    """Print a table for each task that has finished runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).with_suffix(".toml"))
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--measure", choices=get_args(Measure), default="pass")
    parser.add_argument("--tasks", nargs="+", help="labels (default: all)")
    options = parser.parse_args()
    found = [
        one for one in compared(options.file, options.runs_dir) if not options.tasks or one[0].label in options.tasks
    ]
    if not found:
        parser.error(f"no finished runs of {' '.join(options.tasks or ['any task'])} in {str(options.runs_dir)!r}")
    for task, folders, labels in found:
        pools: dict[str, Arms] = {"before": {}, "after": {}}
        for (folder, *_), label in zip(folders, labels, strict=True):
            for moment, of_arm in pools.items() if folder.is_dir() else ():
                seed = int(folder.name.rpartition("-seed")[2])
                of_arm.setdefault(label, {})[seed] = Pool.load(folder / f"pool_{moment}.npz")
        print_task(task.label, pools["before"], pools["after"], options.measure)


def print_task(label: str, before: Arms, after: Arms, measure: Measure) -> None:
    """Print the arms of one task."""
    starts: Arms = {}
    for of_arm in before.values():
        for seed, pool in of_arm.items():
            starts.setdefault(f"base, {pool.rewards.shape[2]} a response", {})[seed] = pool
    scores = {
        name: {seed: at_each_k(pool, measure) for seed, pool in of_arm.items()}
        for name, of_arm in (starts | after).items()
    }
    means = {name: {k: np.mean([one[k] for one in of_arm.values()]) for k in KS} for name, of_arm in scores.items()}
    heads = [*(f"{measure}@{k}" for k in KS), "diversity"]
    print(f"\n## {label}\n\n| | seeds | {' | '.join(heads)} |\n|---|{'---|' * (len(heads) + 1)}")
    for arm, of_arm in (starts | after).items():
        apart = [diversity(one.rewards.reshape(len(one.indices), -1, one.rewards.shape[-1])) for one in of_arm.values()]
        cells = [*means[arm].values(), np.mean(apart)]
        print(f"| {arm} | {len(of_arm)} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    start = max(starts, key=lambda name: means[name][MANY])
    print(f"\n| {measure}@{MANY} | less the better base | less {BASELINE} | over {BASELINE} |\n|---|---|---|---|")
    tasks = next(iter(next(iter(after.values())).values())).tasks
    for arm in after:
        differences = []
        for other in (start, BASELINE):
            # An unfinished study may lack seeds of either.
            shared = sorted(scores[arm].keys() & scores.get(other, {}).keys())
            ours, theirs = (np.array([scores[one][seed][MANY] for seed in shared]) for one in (arm, other))
            differences.append(cell(interval(ours - theirs, tasks), signed=True) if shared else "none")
        ratio = f"{ours.mean() / theirs.mean():.2f}" if theirs.any() else "none"
        print(f"| {arm} | {' | '.join(differences)} | {ratio} |")


if __name__ == "__main__":
    main()
