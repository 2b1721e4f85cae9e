"""Data files: the pools of a study's run without their texts, small enough to be published, and what they rest on."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vpo_agent.config import CONFIG_FILE, INCIDENTAL, TrainConfig, make_config, read_config
from vpo_agent.measure.pool import Pool
from vpo_agent.runs.inputs import accepted_changes, noted_inputs
from vpo_agent.runs.rows import read_rows
from vpo_agent.runs.study_file import PlannedRun, base_file
from vpo_agent.runs.whole_files import library_versions

TRAINING = "training"
"""The entry of a pool's source that says what its answers rest on."""
EVALUATED = ("step", "expected_utility", "diversity")
"""Columns of the evaluations during training that a data file keeps."""
CODE = ("envs_data", "vpo_agent", "vpo_envs")


def keep_data(run: PlannedRun, folder: Path, commit: str) -> None:
    """Write the data files of the finished run in ``folder``, and of its base unless another run has written that file.

    ``commit`` is the commit of the code with which it ran, empty if unknown.
    """
    config = make_config(read_config(folder / CONFIG_FILE))
    rests_on = _what_it_rests_on(folder, commit)
    rows = read_rows(folder / "metrics.jsonl")
    trained = {
        "settings": config.model_dump(mode="json", exclude_defaults=True, exclude=set(INCIDENTAL)),
        "tokens": _training_tokens(config, rows),
        "evaluations": {name: [row.get(name) for row in rows if row.get("kind") == "eval"] for name in EVALUATED},
        **rests_on,
    }
    run.results.mkdir(parents=True, exist_ok=True)
    if run.part is None:  # The fixed weights of a part may be its own.
        for path in sorted(folder.glob("pool_before*.npz")):
            pool = Pool.load(path)
            kept = base_file(run.results, pool.rewards.shape[2], run.seed)
            if not kept.is_file():
                _without_texts(pool, rests_on).save(kept)
    for path in sorted(folder.glob("pool_after_*.npz")):
        ending = path.stem.removeprefix("pool_after_").replace("_", "-")
        _without_texts(Pool.load(path), trained).save(run.results / f"{run.name}-{ending}.npz")
    _without_texts(Pool.load(folder / "pool_after.npz"), trained).save(run.data)


def delete_data(run: PlannedRun) -> None:
    """Delete the data files of a run, and of the bases of its seed, which are to be measured again."""
    for path in (run.data, *run.results.glob(f"{run.name}-of-*.npz"), *run.results.glob(f"base-*-seed{run.seed}.npz")):
        path.unlink(missing_ok=True)


def _without_texts(pool: Pool, training: Mapping[str, Any]) -> Pool:
    return replace(pool, responses=None, source={**pool.source, TRAINING: training})


def _what_it_rests_on(folder: Path, commit: str) -> dict[str, Any]:
    """Return the hashes of a run's inputs, among them its base, the versions of libraries, and the commit if known."""
    rests_on: dict[str, Any] = {"inputs": noted_inputs(folder), "versions": library_versions()}
    if accepted := accepted_changes(folder):
        rests_on["accepted"] = [change._asdict() for change in accepted]
    if commit:
        rests_on["commit"] = commit
    return rests_on


def commit_of_code() -> str:
    """Return the commit of the packages on disk, with ``+`` if it has changed since; empty outside a checkout."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    with suppress(OSError, subprocess.CalledProcessError):  # no git, or a folder of another owner
        git = ["git", "-C", str(root)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, check=True, text=True).stdout.strip()
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *CODE], capture_output=True, check=False)
        return f"{commit}+" if changed.returncode else commit
    return ""


def _training_tokens(config: TrainConfig, rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the tokens that training has generated."""
    per_response = {row["step"]: row["response_tokens"] for row in rows if row.get("kind") == "train"}
    summed: float = sum(per_response.values())
    return round(summed * config.prompts_per_step * config.rollouts_per_prompt)


def read_training(path: Path) -> dict[str, Any]:
    """Return what the data file of a run states of its training: ``settings`` that are no defaults, ``inputs``, …

    Raises:
        ValueError: The file cannot be read, or is of no run.
    """
    training = Pool.load(path).source.get(TRAINING)
    if training is None or "settings" not in training:
        raise ValueError(f"{str(path)!r} is not the data file of a run: move it away, or give another --results")
    return dict(training)
