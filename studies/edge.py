"""Print pass@k, best@k or utility@k of every arm of ``edge.toml`` beside its own base, from its data files.

    python studies/edge.py
    python studies/edge.py --measure utility --tasks musique-3 countdown-4

Arms are compared with the better base: the answers before training with one answer in a response, or with three.
Intervals are those over tasks and seeds, paired by both, since arms of a seed share its base.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from suite import RESULTS, cell, compared

from vpo_agent.measure.intervals import interval
from vpo_agent.measure.measures import passes, rank
from vpo_agent.measure.metrics import best_at_k_whole, diversity
from vpo_agent.measure.pool import Floats, Pool

BASELINE, BASE = "grpo", "base, "
KS = (1, 3, 10, 30, 128)
MANY = 30
Measure = Literal["pass", "best", "utility"]
Arms = dict[str, dict[int, Pool]]
"""The pool of each seed of each arm."""
Scores = dict[int, dict[int, Floats]]
"""A measure of each seed at each of ``KS``."""


def at_each_k(pool: Pool, measure: Measure) -> dict[int, Floats]:
    """Return ``measure``@k of each prompt, (N,), for each of ``KS``: whole responses if m divides k, not for pass."""
    if measure == "utility":
        ranked = rank(pool)
        answers, responses = ranked.answers, ranked.rollouts
    elif measure == "best":
        scalar = pool.scalar()
        answers, responses = scalar.reshape(len(scalar), -1), scalar.max(axis=2)
    elif (passed := passes(pool, None)) is not None:
        answers = responses = passed
    else:
        raise ValueError("this task does not say which answers pass: give --measure best or utility")
    return {k: best_at_k_whole(answers, responses, k) for k in KS}


def paired(ours: Scores, theirs: Scores) -> tuple[Floats, Floats]:
    """Return the scores at ``MANY`` of the seeds that both arms have, (S, N): an unfinished study may lack some."""
    shared = sorted(ours.keys() & theirs.keys())
    return np.array([ours[seed][MANY] for seed in shared]), np.array([theirs[seed][MANY] for seed in shared])


def main() -> None:
    """Print a table for each task that has finished runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).with_suffix(".toml"))
    parser.add_argument("--from", dest="results", type=Path, default=RESULTS, help="folder of data files")
    parser.add_argument("--measure", choices=get_args(Measure), default="pass")
    parser.add_argument("--tasks", nargs="+", help="labels (default: all)")
    options = parser.parse_args()
    found = [
        task for task in compared(options.file, options.results) if not options.tasks or task[0].label in options.tasks
    ]
    if not found:
        parser.error(f"no data files of {' '.join(options.tasks or ['any task'])} in {str(options.results)!r}")
    for task, files, labels in found:
        arms: Arms = {}
        for (file, *_), label in zip(files, labels, strict=True):
            arms.setdefault(label, {})[seed_of(file)] = Pool.load(file)
        print_task(task.label, arms, options.measure)


def seed_of(file: Path) -> int:
    """Return the training seed in the name of a data file."""
    return int(file.stem.rpartition("-seed")[2])


def print_task(label: str, rows: Arms, measure: Measure) -> None:
    """Print the bases and the arms of one task."""
    starts = {name: pools for name, pools in rows.items() if name.startswith(BASE)}
    after = {name: pools for name, pools in rows.items() if name not in starts}
    scores = {name: {seed: at_each_k(pool, measure) for seed, pool in of_arm.items()} for name, of_arm in rows.items()}
    means = {name: {k: np.mean([one[k] for one in of_arm.values()]) for k in KS} for name, of_arm in scores.items()}
    heads = [*(f"{measure}@{k}" for k in KS), "diversity"]
    print(f"\n## {label}\n\n| | seeds | {' | '.join(heads)} |\n|---|{'---|' * (len(heads) + 1)}")
    for arm, of_arm in rows.items():
        apart = [diversity(one.rewards.reshape(len(one.indices), -1, one.rewards.shape[-1])) for one in of_arm.values()]
        means_and_spread = [*means[arm].values(), np.mean(apart)]
        print(f"| {arm} | {len(of_arm)} | {' | '.join(f'{value:.3f}' for value in means_and_spread)} |")
    start = max(starts, key=lambda name: means[name][MANY])
    print(f"\n| {measure}@{MANY} | less the better base | less {BASELINE} | over {BASELINE} |\n|---|---|---|---|")
    tasks = next(iter(next(iter(after.values())).values())).tasks
    for arm in after:
        pairs = [paired(scores[arm], scores.get(other, {})) for other in (start, BASELINE)]
        cells = [cell(interval(ours - theirs, tasks), signed=True) if len(ours) else "none" for ours, theirs in pairs]
        ours, theirs = pairs[1]
        ratio = f"{ours.mean() / theirs.mean():.2f}" if theirs.any() else "none"
        print(f"| {arm} | {' | '.join(cells)} | {ratio} |")


if __name__ == "__main__":
    main()
