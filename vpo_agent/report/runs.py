"""What is compared: finished runs and saved pools, checked to be comparable and grouped into methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.pareto.pool import Pool
from vpo_agent.pareto.summary import summarise
from vpo_agent.report.methods import Method, Row

OF_THE_EVALUATION = frozenset({"max_new_tokens", "run", "split", "tasks", "temperature"})
"""What a pool says of itself that no training run depends on."""
OPTION = "option "


@dataclass(frozen=True)
class Run:
    """A run, or a pool that stands for one."""

    name: str
    """What messages call it."""
    pool: Pool
    settings: Mapping[str, Any]
    """Its configuration, or what the pool says of itself."""
    rows: tuple[Row, ...]
    """Of its ``metrics.jsonl``; empty for a pool."""

    @property
    def seed(self) -> int | None:
        """The training seed, where it is known."""
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def method(self) -> str | None:
        """The estimator it was trained with, where it is known."""
        method = self.settings.get("method")
        return str(method) if method else None


def read_run(path: Path) -> Run:
    """Read a run's folder, an evaluation's folder, or a saved pool.

    Raises:
        ValueError: It is none of these, or the run is not finished.
    """
    from vpo_agent.config import flat_settings, is_run  # loads torch, which the report on one pool does not need

    if path.is_dir() and (path / "eval.json").is_file():
        path = path / "pool.npz"
    if not path.is_dir():
        pool = Pool.load(path)
        said = {name: value for name, value in pool.source.items() if name not in OF_THE_EVALUATION}
        return Run(str(path), pool, said, ())
    if not is_run(path):
        raise ValueError(f"{str(path)!r} is no run and no evaluation: give the folders of runs, or pool files")
    file = path / "pool_after.npz"
    if not file.is_file():
        raise ValueError(
            f"the run {str(path)!r} has no pool_after.npz, so it is not finished: resume it, or evaluate it with "
            "vpo eval and give the folder that this writes"
        )
    settings = flat_settings(json.loads((path / "config.json").read_text(encoding="utf-8")))
    pool = Pool.load(file)
    if not pool.source:
        # A pool from before it said so; the run's settings know.
        known = {
            name: settings.get(name) for name in ("env", "env_kwargs", "model", "method", "method_options", "seed")
        }
        known |= {"split": settings.get("eval_split"), "temperature": settings.get("eval_temperature")}
        pool = replace(pool, source={**known, "num_answers": pool.rewards.shape[2], "step": settings.get("steps")})
    return Run(str(path), pool, settings, _rows(path / "metrics.jsonl"))


def check_comparable(runs: Sequence[Run]) -> list[str]:
    """Check that all pools are of the same prompts of one environment.

    Returns:
        What a reader should know about differences that do not forbid the comparison.

    Raises:
        ValueError: They are not, or their scalar rewards have different weights.
    """
    first = runs[0]
    for other in runs[1:]:
        both = f"{first.name!r} and {other.name!r}"
        mine, theirs = _environment(first), _environment(other)
        if mine and theirs and mine != theirs:
            raise ValueError(f"{both} are of different environments, {mine} and {theirs}: compare runs of one")
        if first.pool.objectives != other.pool.objectives:
            raise ValueError(
                f"{both} have different objectives ({', '.join(first.pool.objectives)}; "
                f"{', '.join(other.pool.objectives)}): compare runs of one environment"
            )
        if not _same_prompts(first.pool, other.pool):
            raise ValueError(
                f"{both} hold answers to different prompts, but a paired comparison needs the same: evaluate them with "
                "vpo eval with one --split and one --prompts"
            )
        if not np.allclose(first.pool.scalar_weights, other.pool.scalar_weights):
            raise ValueError(f"{both} have different fixed weights, so their scalar rewards do not compare")
    notes = []
    temperatures = {run.pool.source.get("temperature") for run in runs} - {None}
    if len(temperatures) > 1:
        notes.append(f"The pools were sampled at different temperatures: {_listed(temperatures)}.")
    sizes = {run.pool.status[0].size for run in runs}
    if len(sizes) > 1:
        notes.append(
            f"The pools hold {_listed(sizes)} answers to each prompt; of the larger ones only the first rollouts count."
        )
    if any(run.seed is None for run in runs):
        notes.append("Some pools do not say which training seed they are from.")
    return notes


def group(runs: Sequence[Run], labels: Sequence[str] | None, k: int | None, threshold: float | None) -> list[Method]:
    """Runs that differ in their seed alone become one method, in the order in which they were given.

    Args:
        runs: The runs.
        labels: A label for each run; equal ones are one method. By default the method, with the settings that set it
            apart from others of the same method.
        k: Largest k of the curves.
        threshold: The scalar reward that passes.

    Raises:
        ValueError: Not one label for each run, one method has a seed twice, or ``k`` is more than the smallest pool
            holds.
    """
    if labels is not None and len(labels) != len(runs):
        raise ValueError(f"{len(runs)} runs need as many labels; got {len(labels)}")
    names = list(labels) if labels is not None else make_labels(runs)
    fewest = min(run.pool.status[0].size for run in runs)
    pools = [_first_answers(run.pool, fewest) for run in runs]
    # A rollout is not cut, so that where m does not divide the number, some pools keep fewer.
    fewest = min(pool.status[0].size for pool in pools)
    if k is not None and not 1 <= k <= fewest:
        raise ValueError(
            f"k={k} cannot be shown: the smallest of the pools counts with {fewest} answers to a prompt, so choose k "
            f"from 1 to {fewest}"
        )
    methods = []
    for label in dict.fromkeys(names):
        places = [place for place, name in enumerate(names) if name == label]
        members = [runs[place] for place in places]
        seeds = [run.seed for run in members]
        for which, seed in enumerate(seeds):
            if seed is not None and seed in seeds[:which]:
                twice = members[seeds.index(seed)].name
                raise ValueError(
                    f"{twice!r} and {members[which].name!r} are both {label} with seed {seed}, which is one run, "
                    "not two: leave one out"
                )
        summaries = tuple(summarise(pools[place], k or fewest, threshold) for place in places)
        rows = tuple(run.rows for run in members)
        methods.append(Method(label, summaries, tuple(seeds), rows))
    return methods


def make_labels(runs: Sequence[Run]) -> list[str]:
    """The method of each run, with the settings in which runs of the same method differ; a pool's name without one."""
    flat = [_flat(run.settings) for run in runs]
    labels = []
    for run, settings in zip(runs, flat, strict=True):
        if run.method is None:
            path = Path(run.name)
            labels.append(path.parent.name if path.name == "pool.npz" else path.stem)
            continue
        peers = [other for one, other in zip(runs, flat, strict=True) if one.method == run.method]
        differ = [name for name in settings if any(_differs(name, settings, other) for other in peers)]
        said = ", ".join(f"{name.removeprefix(OPTION)}={settings[name]}" for name in differ)
        labels.append(f"{run.method} ({said})" if said else run.method)
    return labels


def differing_settings(runs: Sequence[Run]) -> list[str]:
    """Settings other than the method and its answers in which the runs differ: a reader should know of them."""
    flat = [_flat(run.settings) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    return [
        name
        for name in names
        if name not in ("method", "num_answers")
        and not name.startswith(OPTION)
        and any(_differs(name, settings, other) for settings in flat for other in flat)
    ]


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the method, its options one by one."""
    from vpo_agent.config import NOT_OF_THE_METHOD, RETIRED

    out: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "method_options":
            out.update({OPTION + inner: one for inner, one in (value or {}).items()})
        elif name not in NOT_OF_THE_METHOD and name not in RETIRED:
            out[name] = value
    return out


def _differs(name: str, first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """A pool says less of itself than a run, and what it does not say is no difference; an option left out is one."""
    if name in first and name in other:
        return bool(first[name] != other[name])
    return name.startswith(OPTION)


def _environment(run: Run) -> str:
    source = run.pool.source
    if "env" not in source:
        return ""
    return f"{source['env']} {json.dumps(source.get('env_kwargs') or {}, sort_keys=True)}".removesuffix(" {}")


def _same_prompts(first: Pool, other: Pool) -> bool:
    if not np.array_equal(first.indices, other.indices) or not np.array_equal(first.active, other.active):
        return False
    if "tasks" in first.source and "tasks" in other.source and first.source["tasks"] != other.source["tasks"]:
        return False
    splits = {first.source.get("split"), other.source.get("split")} - {None}
    if len(splits) > 1:
        return False
    if first.fronts is None or other.fronts is None:
        return first.fronts is other.fronts
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(first.fronts, other.fronts, strict=True))


def _first_answers(pool: Pool, answers: int) -> Pool:
    """The pool with its first rollouts alone, as many as hold that number of answers."""
    keep = max(1, answers // pool.rewards.shape[2])
    if keep == pool.rewards.shape[1]:
        return pool
    texts = None if pool.responses is None else tuple(row[:keep] for row in pool.responses)
    return replace(pool, rewards=pool.rewards[:, :keep], status=pool.status[:, :keep], responses=texts)


def _rows(path: Path) -> tuple[Row, ...]:
    try:
        return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    except OSError:
        return ()
    except ValueError as error:
        raise ValueError(f"cannot read {str(path)!r}: {error}") from None


def _listed(values: set[Any]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values))
