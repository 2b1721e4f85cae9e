"""Does training on process credit compound with tree search? Searches the runs of a study at equal generated tokens.

    vpo study studies/process.toml
    python studies/process_search.py studies/process.toml --out process_search

Every finished run of the chosen arms is searched with best-of-n, and with beam and diverse verifier tree search at each
level of noise on the values. The first table says what each pair reaches. The second says what a search adds to an arm
over best-of-n; the third how much more it adds than to the study's baseline (a difference in differences). Intervals
are 95 %: over instances by a bootstrap, over seeds by Student's t. Run it again to continue an interrupted search.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.intervals import Band, difference_over_seeds, over_prompts, over_seeds
from vpo_agent.report.page import markdown_table
from vpo_agent.runs.study import Study, StudyRun, read_study, runs_of
from vpo_agent.runs.targets import load_policy
from vpo_agent.search import SearchJob, SearchResult, run_search
from vpo_agent.search.runner import SearchTarget

Floats = NDArray[np.float64]

ARMS = ("grpo", "vpo", "grpo_process", "vpo_process")
BEST_OF_N = "best-of-n"
TREES = ("beam", "dvts")


class Reached(NamedTuple):
    """What one search reached with the policies of one arm, of S seeds, on N instances."""

    utility: Floats
    """(S, N)."""
    solved: Floats
    """(S, N), 1 where the instance is solved."""
    tokens: float
    """Mean per instance; less than the budget where a search stops at the optimum."""


Found = Mapping[str, Mapping[str, Reached]]
"""By the label of the search, then by arm."""


def policies(study: Study, runs_dir: Path, arms: Sequence[str], task: str | None) -> list[StudyRun]:
    """Return the finished runs of the arms; a ValueError says what is missing."""
    runs = runs_of(study, runs_dir, labels=arms, tasks=None if task is None else [task])
    if len({run.task for run in runs}) > 1:
        raise ValueError(f"the study {study.name!r} has several tasks: name one of them with --task")
    for arm in arms:
        if not any(run.label == arm and run.finished for run in runs):
            raise ValueError(f"no run of arm {arm!r} is finished: run vpo study first, or leave it out of --arms")
    return [run for run in runs if run.finished]


def search(runs: Sequence[StudyRun], asked: argparse.Namespace) -> dict[str, dict[str, list[SearchResult]]]:
    """Search with every run; return the results of each arm, by the label of the search."""
    config = runs[0].config
    jobs = [
        SearchJob(
            env=config.env,
            env_kwargs=config.env_kwargs,
            indices=tuple(range(asked.prompts)),
            method=method,
            goal="utility",
            split=asked.split,
            tokens=max(asked.tokens),
            seed=asked.seed,
            max_new_tokens=max(run.config.max_new_tokens for run in runs),
            branches=asked.branches,
            value_noise=noise,
        )
        for method, noise in [(BEST_OF_N, 0.0), *((method, noise) for noise in asked.noise for method in TREES)]
    ]
    targets = [
        SearchTarget(f"{run.label}-seed{run.seed}", run.config.answers_per_rollout, partial(load_policy, run.folder))
        for run in runs
    ]
    found: dict[str, dict[str, list[SearchResult]]] = {}
    for job in jobs:
        folder = asked.out / job.label.replace(" ", "_").replace("(", "").replace(")", "")
        results = run_search(job, targets, folder, say=partial(print, flush=True))
        arms = found.setdefault(job.label, {})
        for run, target in zip(runs, targets, strict=True):
            arms.setdefault(run.label, []).append(results[target.name])
    return found


def at_budget(results: Mapping[str, Mapping[str, Sequence[SearchResult]]], tokens: int) -> Found:
    """Return what the searches reach within a number of tokens per instance."""

    def reached(seeds: Sequence[SearchResult]) -> Reached:
        utility, solved = (
            np.stack([values(one)[:, 0] for one in seeds]).astype(np.float64)
            for values in (lambda one: one.value_within([tokens]), lambda one: one.solved_within([tokens]))
        )
        spent = [min(int(each.tokens.sum()), tokens) for one in seeds for each in one.instances]
        return Reached(utility, solved, float(np.mean(spent)))

    return {label: {arm: reached(seeds) for arm, seeds in arms.items()} for label, arms in results.items()}


def report(found: Found, baseline: str, tokens: int) -> str:
    """Return the three tables in Markdown."""
    reached, gains, interactions = [], [], []
    for label, arms in found.items():
        for arm, one in arms.items():
            seeds = one.utility.mean(axis=1)
            over = [_interval(over_prompts(one.utility.mean(axis=0))), _interval(over_seeds(seeds))]
            cells = [f"{seeds.mean():.3f}", *over, f"{one.solved.mean():.0%}", f"{one.tokens:.0f}"]
            reached.append([arm, label, *cells])
            if label == BEST_OF_N:
                continue
            gain = gains_of(found, label, arm)
            gains.append([arm, label, f"{gain.mean():+.3f}", _interval(over_seeds(gain), sign="+")])
            if arm != baseline and baseline in arms:
                base = gains_of(found, label, baseline)
                band = difference_over_seeds(base, gain)
                difference = gain.mean() - base.mean()
                interactions.append([arm, label, f"{difference:+.3f}", _interval(band, sign="+")])
    head = ["policy", "search", "utility", "over instances", "over seeds", "solved", "tokens"]
    return "\n\n".join(
        [
            f"## Within {tokens} generated tokens per instance",
            markdown_table(head, reached, "llrrrrr"),
            f"What a search adds to a policy over {BEST_OF_N}, in utility:",
            markdown_table(["policy", "search", "gain", "over seeds"], gains, "llrr"),
            f"How much more it adds than to {baseline}, (policy with search − policy with {BEST_OF_N}) − ({baseline} "
            f"with search − {baseline} with {BEST_OF_N}):",
            markdown_table(["policy", "search", "interaction", "over seeds"], interactions, "llrr"),
        ]
    )


def gains_of(found: Found, label: str, arm: str) -> Floats:
    """Return what a search adds to each seed of an arm over best-of-n, (S,): a mean over the same instances."""
    return np.asarray((found[label][arm].utility - found[BEST_OF_N][arm].utility).mean(axis=1))


def _interval(band: Band | None, sign: str = "") -> str:
    return "" if band is None else f"[{float(band.low):{sign}.3f}, {float(band.high):{sign}.3f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and print the tables."""
    parser = argparse.ArgumentParser(description="Search the runs of a study at equal generated tokens.")
    add = parser.add_argument
    add("study", type=Path, help="such as studies/process.toml")
    add("--runs-dir", type=Path, default=Path("runs"), help="parent of the study's folder, default runs")
    add("--arms", nargs="+", default=list(ARMS), metavar="LABEL", help=f"default {' '.join(ARMS)}")
    add("--task", metavar="LABEL", help="task of a study that has several")
    add("--tokens", type=int, nargs="+", default=[60, 120, 240], help="budgets per instance, default 60 120 240")
    add("--noise", type=float, nargs="+", default=[0.0, 0.1, 0.3], help="on values, default 0 0.1 0.3")
    add("--branches", type=int, default=2, help="continuations of each text, default 2")
    add("--prompts", type=int, default=100, help="instances, default 100")
    add("--split", default="test", choices=("validation", "test"), help="default test")
    add("--seed", type=int, default=0, help="of the search, default 0")
    add("--out", type=Path, default=Path("process_search"), help="folder for searches and tables")
    asked = parser.parse_args(arguments)
    study = read_study(asked.study)
    results = search(policies(study, asked.runs_dir, asked.arms, asked.task), asked)
    baseline = study.baseline if study.baseline in asked.arms else asked.arms[0]
    text = "\n\n".join(report(at_budget(results, tokens), baseline, tokens) for tokens in sorted(asked.tokens)) + "\n"
    (asked.out / "tables.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
