"""The runs to compare: finished runs and saved pools, checked to be comparable and grouped into methods."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, floor, lcm, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.measure.origin import check_origin
from vpo_agent.measure.pool import Floats, Pool, merge_pools, same_prompts
from vpo_agent.measure.summary import summarise
from vpo_agent.progress import progress
from vpo_agent.report.methods import Method, Row
from vpo_agent.runs.rows import read_rows
from vpo_envs.common.wording import counted

NOT_OF_THE_TRAINING = frozenset(
    {"dtype", "endpoint", "max_new_tokens", "run", "split", "tasks", "temperature", "training", "usage"}
)
"""Entries of a pool's source that training does not depend on."""
OPTION = "option "
"""Beginning of the names of a method's options among the settings."""
BASE = "base"
"""Method of a pool that was sampled before the first step."""


@dataclass(frozen=True)
class Run:
    """A run with the rows of its ``metrics.jsonl``, or a pool with its source as settings."""

    name: str
    pool: Pool
    settings: Mapping[str, Any]
    """Resolved: defaults are the same whether written out or left out, except for options of the method."""
    rows: tuple[Row, ...]

    @property
    def seed(self) -> int | None:
        """Return the training seed, if it is known."""
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def method(self) -> str | None:
        """Return the method that it was trained with, or :data:`BASE`, if it is known."""
        method = self.settings.get("method")
        return str(method) if method else None


def read_run(path: Path) -> Run:
    """Read a finished run (of a run inside TRL, its last evaluation), an evaluation's folder, or a sample file."""
    # Slow to import, which the report on one pool does not need.
    from vpo_agent.config import CONFIG_FILE, flat_settings, is_run, read_values
    from vpo_agent.runs.targets import near_target

    if path.is_dir() and (path / "eval.json").is_file():
        path = path / "pool.npz"
    if not path.exists():
        hint = near_target(str(path))
        raise ValueError(
            f"{str(path)!r} does not exist: {hint}give the folder of a run or an evaluation, or a sample file"
        )
    if not path.is_dir():
        return _of_pool(str(path), Pool.load(path))
    if not is_run(path):
        raise ValueError(f"{str(path)!r} is neither a run nor an evaluation: give the folders of runs, or sample files")
    file = path / "pool_after.npz"
    if (path / "model" / "state.json").is_file():  # A finished run inside TRL, which evaluates nothing itself.
        file = last_evaluation(path) or file
    if not file.is_file():
        raise ValueError(
            f"the run {str(path)!r} has no pool_after.npz, so it is not finished: resume it, or evaluate it with "
            "vpo eval and give the folder that it writes"
        )
    settings = flat_settings(read_values(path / CONFIG_FILE))
    check_origin(settings, f"the run in {str(path)!r}")
    pool = Pool.load(file)
    return Run(str(path), pool, _resolved(settings, pool), tuple(read_rows(path / "metrics.jsonl")))


def _of_pool(name: str, pool: Pool) -> Run:
    """Return a pool with its settings; the data file of a study's run has all of them, and its evaluations."""
    training = pool.source.get("training") or {}
    rows: tuple[Row, ...] = ()
    if stated := training.get("settings"):
        from vpo_agent.config import TrainConfig

        check_origin(stated, name)
        settings = {**TrainConfig().model_dump(mode="json"), **stated}
        columns = training.get("evaluations", {})
        evaluations = zip(*columns.values(), strict=False)
        rows = tuple({"kind": "eval", **dict(zip(columns, values, strict=True))} for values in evaluations)
    else:
        settings = {name: value for name, value in pool.source.items() if name not in NOT_OF_THE_TRAINING}
    return Run(name, pool, _resolved(settings, pool), rows)


def last_evaluation(run: Path) -> Path | None:
    """Return the pool of the last ``vpo eval`` of a run."""
    return max(run.glob("eval_*/pool.npz"), key=lambda pool: pool.stat().st_mtime, default=None)


def read_runs(groups: Sequence[Sequence[Path]]) -> list[Run]:
    """Read one run for each group of paths; the paths of a group are of policies that answer together."""
    run_groups = [[read_run(path) for path in members] for members in groups]
    weights = next((members[0].pool.scalar_weights for members in run_groups if len(members) == 1), None)
    return [members[0] if len(members) == 1 else merge_runs(members, weights) for members in run_groups]


def _resolved(settings: Mapping[str, Any], pool: Pool) -> dict[str, Any]:
    """Return the settings of a run or pool, with one value for each way to write the same setting."""
    if settings.get("step") == 0:
        kept = {name: value for name, value in settings.items() if name in ("model", "num_answers", "seed")}
        return {"method": BASE, **kept}
    # The pool holds the fixed weights as well, where `check_comparable` compares them.
    resolved = {name: value for name, value in settings.items() if name != "scalar_weights"}
    if "step" in resolved:
        resolved["steps"] = resolved.pop("step")
    if "num_answers" in resolved and resolved["num_answers"] is None:
        resolved["num_answers"] = pool.rewards.shape[2]
    if "minibatch_prompts" in resolved and resolved["minibatch_prompts"] == resolved.get("prompts_per_step"):
        resolved["minibatch_prompts"] = None
    if resolved.get("dtype") == "auto":
        resolved["dtype"] = pool.source.get("dtype", "auto")
    return resolved


def merge_runs(runs: Sequence[Run], weights: Floats | None) -> Run:
    """Return the runs of policies that answer together as one; ``weights`` are the fixed ones (N, d), if known."""
    first = runs[0].settings
    common = {name: value for name, value in first.items() if all(run.settings.get(name) == value for run in runs)}
    return Run(" + ".join(run.name for run in runs), merge_pools([run.pool for run in runs], weights), common, ())


def check_comparable(runs: Sequence[Run]) -> None:
    """Check that all pools hold answers to the same prompts of one environment."""
    first = runs[0]
    env = _environment(first)
    for other in runs[1:]:
        both = f"{first.name!r} and {other.name!r}"
        other_env = _environment(other)
        if env and other_env and env != other_env:
            raise ValueError(
                f"{both} are of different environments, {env} and {other_env}: compare runs of the same one"
            )
        if first.pool.objectives != other.pool.objectives:
            raise ValueError(
                f"{both} have different objectives ({', '.join(first.pool.objectives)}; "
                f"{', '.join(other.pool.objectives)}): compare runs of the same environment"
            )
        if not same_prompts(first.pool, other.pool):
            raise ValueError(
                f"{both} hold answers to different prompts, but a paired comparison needs the same ones: use vpo eval "
                "with the same --split and --eval-prompts, and compare the folders that it names"
            )
        if not np.allclose(first.pool.scalar_weights, other.pool.scalar_weights):
            raise ValueError(
                f"{both} have different fixed weightings, so their scalar rewards cannot be compared: compare runs "
                "with the same --scalar-weights"
            )


def lesser_differences(runs: Sequence[Run]) -> list[str]:
    """Return notes on differences between comparable runs that a reader of a comparison should know."""
    notes = []
    temperatures = {run.pool.source.get("temperature") for run in runs} - {None}
    if len(temperatures) > 1:
        notes.append(f"The sample files were sampled at different temperatures: {_listed(temperatures)}.")
    sizes = {run.pool.status[0].size for run in runs}
    if len(sizes) > 1:
        notes.append(
            f"The sample files hold {_listed(sizes)} answers to each prompt; of larger files the first answers count."
        )
    if any(run.pool.tokens is None for run in runs):
        notes.append(
            "The generated tokens of some sample files are unknown, so methods are not compared at equal tokens."
        )
    if any(run.seed is None for run in runs):
        notes.append("Some sample files do not state their training seed.")
    return notes


def group(runs: Sequence[Run], labels: Sequence[str] | None, k: int | None, threshold: float | None) -> list[Method]:
    """Make one method of the runs with equal labels, in the order given, and measure it up to ``k`` answers.

    By default a label is the method, with the settings that distinguish it from others of the same method.
    """
    if labels is not None and len(labels) != len(runs):
        raise ValueError(f"got {counted(len(labels), 'label')} for {counted(len(runs), 'run')}: give one per run")
    names = list(labels) if labels is not None else make_labels(runs)
    fewest = min(run.pool.status[0].size for run in runs)
    pools = [first_answers(run.pool, fewest) for run in runs]
    # A rollout is not cut, so some pools keep fewer answers if m does not divide the number.
    fewest = min(pool.status[0].size for pool in pools)
    if k is not None and not 1 <= k <= fewest:
        raise ValueError(
            f"k={k} is out of range: the smallest sample file has {counted(fewest, 'answer')} per prompt, so choose k "
            f"from 1 to {fewest}"
        )
    together = lcm(*(pool.rewards.shape[2] for pool in pools))
    budgets = _budgets(pools)
    methods = []
    for label in dict.fromkeys(names):
        members = [(run, pool) for run, pool, name in zip(runs, pools, names, strict=True) if name == label]
        for (earlier, _), (run, _) in combinations(members, 2):
            if run.seed is not None and run.seed == earlier.seed:
                raise ValueError(
                    f"{earlier.name!r} and {run.name!r} are both {label} with seed {run.seed}, which is one run, not "
                    "two: leave one out"
                )
        summaries = tuple(
            summarise(pool, k or fewest, threshold, together=together, budgets=budgets)
            for _, pool in progress(members, f"measuring {label}", "run")
        )
        seeds, rows = tuple(run.seed for run, _ in members), tuple(run.rows for run, _ in members)
        methods.append(Method(label, summaries, seeds, rows))
    return methods


def make_labels(runs: Sequence[Run]) -> list[str]:
    """Label each run by its method and the settings in which runs of the method differ; a bare pool by its name."""
    flat = [_flat(run.settings) for run in runs]
    labels = []
    for run, settings in zip(runs, flat, strict=True):
        if run.method is None:
            path = Path(run.name)
            labels.append(path.parent.name if path.name == "pool.npz" else path.stem)
            continue
        peers = [other for peer, other in zip(runs, flat, strict=True) if peer.method == run.method]
        differing = [name for name in settings if any(_differs(name, settings, other) for other in peers)]
        label = run.method
        if label == BASE and "num_answers" in differing:  # as in a study
            differing.remove("num_answers")
            label = f"{label}, {counted(settings['num_answers'], 'answer')}"
        values = ", ".join(f"{name.removeprefix(OPTION)}={settings[name]}" for name in differing)
        labels.append(f"{label} ({values})" if values else label)
    return labels


def differing_settings(runs: Sequence[Run]) -> list[str]:
    """Return the settings, other than the method and its answers, in which the runs differ."""
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
    """Return the settings of the method, its options one by one."""
    from vpo_agent.config import NOT_OF_THE_METHOD

    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "method_options":
            options = _without_defaults(settings.get("method"), value or {})
            flat |= {OPTION + option: option_value for option, option_value in options.items()}
        elif name not in NOT_OF_THE_METHOD:
            flat[name] = value
    return flat


def _without_defaults(method: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a method that differ from its defaults; all of a method that is unknown here."""
    if not options:
        return {}
    from vpo_agent.estimators import available_estimators, estimator  # loads torch

    if method not in available_estimators():
        return dict(options)
    parameters = inspect.signature(estimator(method).function).parameters
    return {
        name: value for name, value in options.items() if name not in parameters or value != parameters[name].default
    }


def _differs(name: str, first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether a setting differs; a setting that only one run states differs if it is an option of the method.

    A pool states fewer settings than a run.
    """
    if name in first and name in other:
        return bool(first[name] != other[name])
    return name.startswith(OPTION)


def _environment(run: Run) -> str:
    source = run.pool.source
    if "env" not in source:
        return ""
    return f"{source['env']} {json.dumps(source.get('env_kwargs') or {}, sort_keys=True)}".removesuffix(" {}")


def first_answers(pool: Pool, answers: int) -> Pool:
    """Keep the first rollouts of a pool, as many as fit into that number of answers."""
    kept = max(1, answers // pool.rewards.shape[2])
    if kept == pool.rewards.shape[1]:
        return pool
    return replace(
        pool,
        rewards=pool.rewards[:, :kept],
        status=pool.status[:, :kept],
        responses=None if pool.responses is None else tuple(texts[:kept] for texts in pool.responses),
        tokens=None if pool.tokens is None else pool.tokens[:, :kept],
    )


def _budgets(pools: Sequence[Pool]) -> list[int]:
    """Return numbers of tokens per prompt that all pools have: the least, the most, and their geometric mean."""
    of_a_rollout = [float(pool.tokens.mean()) for pool in pools if pool.tokens is not None]
    if len(of_a_rollout) < len(pools):
        return []
    least = ceil(max(of_a_rollout))
    most = floor(min(tokens * pool.rewards.shape[1] for tokens, pool in zip(of_a_rollout, pools, strict=True)))
    return sorted({least, round(sqrt(least * most)), most}) if least <= most else []


def _listed(values: set[Any]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values))
