"""Search on the hard tasks of ``edge.toml``: the share solved, by policy and search method.

    python studies/edge_search.py             # prints the tables from the data files
    python studies/edge_search.py --search    # after the runs of the study: searches, and writes the data files

A task is hard if none of 30 answers of any seed's base is right, with one answer per response or with three, sampled
apart from the search. Every search samples the same number of tokens; what it has solved after 200 answers is read from
the same search. The same command continues an interrupted search. Intervals are over functions and seeds, paired by
both. A data file, ``searches.json`` beside those of the runs, holds for each search the answer that solved each task,
and no texts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tables import RESULTS, STUDIES, compare_pairs, compared_cell, read_data, short

from vpo_agent.measure.intervals import interval
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.pages.page import Table, markdown_table
from vpo_agent.runs.study_file import Study, StudyTask, read_study

if TYPE_CHECKING:
    from vpo_agent.search.records import SearchResult
    from vpo_agent.search.runner import SearchTarget

ENV = "vpo/Programs-v0"
TRAINED = {"grpo": 1, "max_at_k": 1, "vpo": 3, "vpo_pool": 3}
"""Methods of the study, with the answers of a response."""
BASE = "base-3"
"""The base with three answers per response, with which all policies are compared."""
METHODS = ("best-of-n", "evolve")
NUM_TASKS = 200
"""Test tasks among which hard ones are sought."""
APART = 1000
"""Seeds of the pools that choose hard tasks begin here."""
ANSWERS, TOKENS = 200, 1200
LONGEST = 24
DATA = "searches.json"


def main() -> None:
    """Search if that is asked for, and print a table for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="results", type=Path, default=RESULTS, help="folder of data files")
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=["programs-4"],
        help="labels of tasks of the study (default: programs-4)",
    )
    parser.add_argument("--search", action="store_true", help="search what is not yet searched")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="with --search: parent of the study's runs")
    parser.add_argument("--out", type=Path, default=Path("runs/searches"), help="with --search: folder of the answers")
    options = parser.parse_args()
    study = read_study(STUDIES / "edge.toml")
    tasks = {task.label: task for task in study.tasks if {**study.settings, **task.settings}["env"] == ENV}
    for label in options.tasks:
        if label not in tasks:
            parser.error(f"{label!r} is no task of {study.name} with programs: {', '.join(tasks)}")
        path = options.results / study.name / label / DATA
        if options.search:
            search(study, tasks[label], options.runs_dir, options.out / label, path)
        if path.is_file():
            try:
                print(f"\n## {label}: {about(path)}\n\n{markdown_table(*search_table(path))}")
            except ValueError as error:
                parser.error(str(error))
        else:
            print(f"there is no data file {str(path)!r} of searches: python studies/edge_search.py --search makes it")


# --- from a data file


def about(path: Path) -> str:
    """Say what was searched."""
    data = read_data(path, "functions", "seeds")
    functions = data["functions"]
    return f"{len(functions)} hard tasks, {len(set(functions))} functions, seeds {', '.join(map(str, data['seeds']))}"


def search_table(path: Path) -> Table:
    """The share solved within either budget, and what it is above the base's by the first method.

    Verdicts are adjusted over each column.
    """
    data = read_data(path, "functions", "searches", "answers", "tokens")
    functions, searches = data["functions"], data["searches"]
    heads, rows = ["policy, search"], [[f"`{one['policy']}`, {one['method']}"] for one in searches]
    for name, answers in ((f"{data['answers']} answers", data["answers"]), (f"{data['tokens']} tokens", None)):
        heads += [name, f"{name}, above the base"]
        shares = [solved(one["solved_at"], answers) for one in searches]
        base = next(share for one, share in zip(searches, shares, strict=True) if one["policy"] == BASE)
        compared = compare_pairs([(share, base) for share in shares], [functions] * len(shares))
        for row, share, comparison in zip(rows, shares, compared, strict=True):
            band = interval(share, functions)
            row += [f"{short(band.mean)} ± {short((band.high - band.low) / 2)}", compared_cell(comparison)]
    for row, one in zip(rows, searches, strict=True):
        spent = [tokens for of_seed in one["spent"] for tokens in of_seed if tokens is not None]
        row.append(f"{np.mean(spent):.0f}" if spent else "")
    return [*heads, f"tokens of {data['answers']} answers"], rows, "l" + "r" * len(heads)


def solved(solved_at: Sequence[Sequence[int | None]], answers: int | None) -> Floats:
    """Return which tasks the first ``answers`` of each seed solve, or all within the tokens, (S, N)."""
    limit = np.inf if answers is None else answers
    return np.array([[at is not None and at <= limit for at in of_seed] for of_seed in solved_at], dtype=np.float64)


# --- the searches


def search(study: Study, task: StudyTask, runs_dir: Path, out: Path, path: Path) -> None:
    """Search with the policies that are here, and write the data file."""
    from vpo_agent.runs.run_data import commit_of_code
    from vpo_agent.runs.whole_files import library_versions
    from vpo_agent.search import SearchJob, hard_tasks, run_search

    runs = runs_dir / study.name / task.label
    seeds = [s for s in study.seeds if all((runs / f"{name}-seed{s}" / "checkpoints").is_dir() for name in TRAINED)]
    if not seeds:
        print(f"no seed has runs of {', '.join(TRAINED)} in {str(runs)!r}, so there is nothing to search with")
        return
    bases = {seed: Path(task.settings["model"].format(seed=seed)) for seed in seeds}
    env_kwargs = task.settings["env_kwargs"]
    pools = {seed: choosing_pools(env_kwargs, seed, base, out) for seed, base in bases.items()}
    indices = hard_tasks([pool for of in pools.values() for pool in of])
    places = {int(index): place for place, index in enumerate(pools[seeds[0]][0].indices)}
    hashes = pools[seeds[0]][0].tasks
    assert hashes is not None
    found: dict[tuple[str, str], list[SearchResult]] = {}
    for method in METHODS:
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
    data = {
        "seeds": seeds,
        "indices": indices,
        "functions": [hashes[places[index]] for index in indices],
        "answers": ANSWERS,
        "tokens": TOKENS,
        "commit": commit_of_code(),
        "versions": library_versions(),
    }
    lines = [json.dumps(record_of(policy, method, results)) for (policy, method), results in found.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    searches = ",\n  ".join(lines)
    path.write_text(f'{json.dumps(data)[:-1]},\n "searches": [\n  {searches}\n ]}}\n', encoding="utf-8")


def record_of(policy: str, method: str, results: Sequence[SearchResult]) -> dict[str, Any]:
    """Return what a data file says of the searches of all seeds: lists of each seed with an entry of each task."""
    return {
        "policy": policy,
        "method": method,
        "solved_at": [[one.solved_at() for one in result.searches] for result in results],
        # Of a task that is not solved: a search ends where it is.
        "spent": [
            [None if one.solved_at() else int(one.tokens[:ANSWERS].sum()) for one in result.searches]
            for result in results
        ],
    }


def choosing_pools(env_kwargs: dict[str, Any], seed: int, base: Path, out: Path) -> list[Pool]:
    """Return the answers of a base that choose hard tasks; they are kept."""
    from vpo_agent.runs.pools import sample_model

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
    from vpo_agent.runs.targets import load_policy
    from vpo_agent.search.runner import SearchTarget

    places = {f"base-{m}": (base, m) for m in (1, 3)}
    places |= {name: (runs / f"{name}-seed{seed}", m) for name, m in TRAINED.items()}
    return [SearchTarget(name, m, partial(load_policy, str(place))) for name, (place, m) in places.items()]


if __name__ == "__main__":
    main()
