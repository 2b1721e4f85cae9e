"""What does evolution find beyond best-of-n, with equally many answers from the bundled model on the maze?

    python examples/evolve_maze.py

Nothing is downloaded, and it takes a minute or two on a CPU. With your own policies, trained by examples/train_maze.py:

    python examples/evolve_maze.py runs/vpo runs/grpo --mazes 50 --answers 200
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np

from vpo_agent.config import is_run, read_run_config
from vpo_agent.runs.targets import load_policy, target_name
from vpo_agent.search import SearchJob, SearchResult, plot_solved, run_search
from vpo_agent.search.runner import SearchTarget, summary

MAZE = {"preset": "compact"}
METHODS = ("best-of-n", "evolve")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "targets", nargs="*", default=["tiny-maze"], metavar="TARGET", help="runs or models (default: tiny-maze)"
    )
    parser.add_argument("--mazes", type=int, default=16, help="held-out mazes (default: 16)")
    parser.add_argument("--answers", type=int, default=150, help="routes sampled for each maze (default: 150)")
    parser.add_argument("--seed", type=int, default=0, help="seed of sampling (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("searches/evolve_maze"), help="output folder (default: searches/evolve_maze)"
    )
    options = parser.parse_args()

    targets = [
        SearchTarget(target_name(name).replace("/", "-"), set_size(name), partial(load_policy, name))
        for name in options.targets
    ]
    found: dict[str, SearchResult] = {}
    for method in METHODS:
        job = SearchJob(
            env="vpo/Maze-v0",
            env_kwargs=MAZE,
            indices=tuple(range(options.mazes)),
            method=method,
            iterations=options.answers,
            seed=options.seed,
            max_new_tokens=100,
        )
        results = run_search(job, targets, options.out / method, say=partial(print, flush=True))
        found |= {f"{name}, {method}": result for name, result in results.items()}
    print(f"\n{summary(found)}\n")
    for target in targets:
        print(difference(target.name, *(found[f"{target.name}, {method}"] for method in METHODS)))
    print(f"figure: {plot_solved(found, options.out / 'solved.png', title='vpo/Maze-v0')}")


def set_size(target: str) -> int:
    """Return how many answers the policy writes in a response: the run states it, the bundled model writes three."""
    folder = Path(target)
    return read_run_config(folder).max_answers if is_run(folder) else 3


def difference(name: str, sampled: SearchResult, evolved: SearchResult) -> str:
    """Say what evolution found beyond best-of-n, maze by maze."""
    gains = evolved.score()[:, -1] - sampled.score()[:, -1]
    lines = [
        f"{name}: evolution is ahead on {(gains > 1e-6).sum()} of {len(gains)} mazes, behind on "
        f"{(gains < -1e-6).sum()}; mean difference {gains.mean():+.3f}"
    ]
    most = int(np.argmax(gains))
    if gains[most] > 1e-6:
        lines.append(f"  most on maze {evolved.searches[most].index}, optimum {evolved.searches[most].optimum:.3f}:")
        for label, result in (("best-of-n", sampled), ("evolution", evolved)):
            one = result.searches[most]
            lines.append(f"  {label:9} {one.value()[-1]:.3f}  {one.best_answer.strip()}")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
