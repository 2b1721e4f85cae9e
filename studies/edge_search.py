"""Search on the hard tasks of ``edge.toml``, after its runs: the share solved, by policy and method.

    python studies/edge_search.py --runs-dir runs

A task is hard if none of 30 answers of any seed's base is right, with one answer per response or with three, sampled
apart from the search. Every search has the same number of tokens, and its first 200 answers are read from it as well.
Interrupted, it continues. Intervals are those over functions and seeds, paired by both.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.measure.intervals import Band, interval
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.report.tables import interval as bounds
from vpo_agent.report.tables import number
from vpo_agent.runs.pools import sample_model
from vpo_agent.runs.study_file import read_study
from vpo_agent.runs.targets import load_policy
from vpo_agent.search import SearchJob, hard_tasks, run_search
from vpo_agent.search.records import SearchResult
from vpo_agent.search.runner import SearchTarget
from vpo_agent.search.settings import Method

ENV = "vpo/Programs-v0"
ARMS = {"grpo": 1, "max_at_k": 1, "vpo": 3, "vpo-pool4": 3}
"""Arms of the study, with the answers of a response."""
BASE = "base-3"
"""The base with three answers a response, with which all are compared."""
METHODS: tuple[Method, ...] = ("best-of-n", "evolve")
NUM_TASKS = 200
"""Test tasks among which hard ones are sought."""
APART = 1000
"""Seeds of the pools that choose hard tasks begin here."""
ANSWERS, TOKENS = 200, 1200
LONGEST = 24


def cell(band: Band, signed: bool = False) -> str:
    """A mean with its interval."""
    return f"{number(float(band.mean), signed)} {bounds(float(band.low), float(band.high), signed)}"


def main() -> None:
    """Search what is not yet searched, and print a table for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("runs/searches"))
    parser.add_argument("--tasks", nargs="+", default=["programs-4", "programs-long"])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    options = parser.parse_args()
    study = read_study(Path(__file__).with_name("edge.toml"))
    for task in study.tasks:
        if task.label not in options.tasks:
            continue
        runs, out = options.runs_dir / study.name / task.label, options.out / task.label
        seeds = [s for s in study.seeds if all((runs / f"{arm}-seed{s}" / "checkpoints").is_dir() for arm in ARMS)]
        bases = {seed: Path(task.settings["model"].format(seed=seed)) for seed in seeds}
        env_kwargs = task.settings["env_kwargs"]
        pools = {seed: choosing_pools(env_kwargs, seed, base, out) for seed, base in bases.items()}
        indices = hard_tasks([pool for of in pools.values() for pool in of])
        functions = [pools[seeds[0]][0].tasks[index] for index in indices]
        print(f"\n## {task.label}: {len(indices)} hard tasks, {len(set(functions))} functions, seeds {seeds}\n")
        found: dict[tuple[str, str], list[SearchResult]] = {}
        for method in options.methods:
            for seed, base in bases.items():
                job = SearchJob(
                    env=ENV,
                    env_kwargs=env_kwargs,
                    indices=tuple(indices),
                    method=method,
                    tokens=TOKENS,
                    seed=seed,
                    max_new_tokens=LONGEST,
                )
                for name, result in run_search(job, targets(runs, base, seed), out / f"{method}-seed{seed}").items():
                    found.setdefault((name, method), []).append(result)
        print_table(found, functions)


def choosing_pools(env_kwargs: dict[str, Any], seed: int, base: Path, out: Path) -> list[Pool]:
    """Return the answers of a base that choose hard tasks; they are kept."""
    out.mkdir(parents=True, exist_ok=True)
    pools = []
    for m in (1, 3):
        kept = out / f"base-{m}-seed{seed}.npz"
        if not kept.is_file():
            wanted = {"env": ENV, "env_kwargs": env_kwargs, "num_answers": m, "prompts": NUM_TASKS}
            sample_model(str(base), {**wanted, "k": 30, "seed": APART + seed, "max_new_tokens": LONGEST}).save(kept)
        pools.append(Pool.load(kept))
    return pools


def targets(runs: Path, base: Path, seed: int) -> list[SearchTarget]:
    """Return the policies of a seed."""
    places = {f"base-{m}": (base, m) for m in (1, 3)}
    places |= {arm: (runs / f"{arm}-seed{seed}", m) for arm, m in ARMS.items()}
    return [SearchTarget(name, m, partial(load_policy, str(place))) for name, (place, m) in places.items()]


def print_table(found: dict[tuple[str, str], list[SearchResult]], functions: list[Any]) -> None:
    """Print the share solved within either budget, and what it is above the base's by the first method."""
    base = next(results for (name, _), results in found.items() if name == BASE)
    budgets = [f"{ANSWERS} answers", f"{TOKENS} tokens"]
    heads = [*(head for each in budgets for head in (each, "above the base")), f"tokens of {ANSWERS} answers"]
    print(f"\n| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for (name, method), results in found.items():
        cells = []
        for answers in (ANSWERS, None):
            ours, theirs = (np.stack([solved(one, answers) for one in of]) for of in (results, base))
            cells += [cell(interval(ours, functions)), cell(interval(ours - theirs, functions), signed=True)]
        spent = [one.tokens[:ANSWERS].sum() for result in results for one in result.searches if not one.solved_at()]
        cells.append(f"{np.mean(spent):.0f}" if spent else "-")
        print(f"| {name}, {method} | {' | '.join(cells)} |")


def solved(result: SearchResult, answers: int | None) -> Floats:
    """Return which tasks the first ``answers`` solve, or all within the tokens, (N,)."""
    after = [one.solved_at() for one in result.searches]
    return np.array([at is not None and (answers is None or at <= answers) for at in after], dtype=np.float64)


if __name__ == "__main__":
    main()
