"""An entry: what one model scored on a track, with all that is needed to repeat it.

A score says where three answers lie between blind answers (0) and the best three answers of the exact front (1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs_data.parsing import parse_json, read_text
from vpo_agent.bench.sample import Plan, weights_hash
from vpo_agent.bench.tasks import ANSWERS, RESPONSES, TEMPERATURE, TRACKS, VERSION, BenchTask, best_three, digest
from vpo_agent.measure.intervals import Band, band_of, resampled_means
from vpo_agent.measure.measures import measures, rank, report_weights
from vpo_agent.measure.metrics import best_at_k
from vpo_agent.measure.origin import is_plain
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.pages.page import markdown_table
from vpo_agent.policy.model_choice import DTYPES
from vpo_agent.report.tables import interval, number
from vpo_agent.rollouts.dialogue import known_sum
from vpo_agent.runs.whole_files import library_versions
from vpo_envs.pareto import set_utility
from vpo_envs.text import answer_tags

TOLERANCE = 0.005
"""By how much a number of an entry may differ when a local model is sampled again."""
MOST = 1e12
"""Upper bound of the numbers of an entry."""
NEEDED = {"track", "name", "score", "tasks", "seed", "prompts", "models", "sampling"}
BAND = ("mean", "low", "high")
SHARES = ("coverage", "read", "truncated")
NUMBERS = ("utility of three", "best three of the front", "utility@1", "utility@30", "diversity")
COUNTS = ("tokens", "distinct")
MAY_BE_UNKNOWN = ("truncated", "tokens")
"""Numbers of a task that may be ``None``."""


def shares(task: BenchTask, reached: Any, possible: Any) -> Any:
    """Return scores from utilities: 0 for the blind answers and 1 for the best; below 0 if worse than blind."""
    return (reached / possible - task.blind) / (1 - task.blind)


def score_task(task: BenchTask, pool: Pool, seed: int) -> tuple[dict[str, Any], Floats]:
    """Return the numbers of a task as plain values, and the resamples of its score, which ``seed`` keys."""
    assert pool.fronts is not None  # every task of the bench has an exact solver
    ranked = rank(pool)
    best = [
        set_utility(front[best_three(front, active)], report_weights(active))
        for front, active in zip(pool.fronts, pool.active, strict=True)
    ]
    utilities = np.stack([ranked.rollouts.mean(axis=1), np.array(best)], axis=1)
    reached, possible = utilities.mean(axis=0)
    resamples = shares(task, *resampled_means(utilities, pool.tasks, seed).T)
    means = {measure.name: float(measure.values.mean()) for measure in measures(pool, ranked=ranked)}
    row = {
        **band_of(float(shares(task, reached, possible)), resamples).as_json(),
        "utility of three": float(reached),
        "best three of the front": float(possible),
        **{f"utility@{k}": float(best_at_k(ranked.answers, k).mean()) for k in (1, ranked.answers.shape[1])},
        "coverage": means["coverage"],
        "diversity": means["diversity"],
        "read": 1 - means["answers unreadable"],
        "truncated": _truncated(pool),
        "tokens": means.get("tokens"),
        "distinct": len(set(pool.tasks or ())),
    }
    return row, resamples


def score_track(rows: Sequence[Mapping[str, Any]], resamples: Sequence[Floats]) -> Band:
    """Return the mean score over tasks, with the interval over their prompts."""
    return band_of(float(np.mean([row["mean"] for row in rows])), np.mean(resamples, axis=0))


def _truncated(pool: Pool) -> float | None:
    """Return the share of responses that ran into the limit; ``None`` if unknown."""
    n, rollouts = pool.rewards.shape[:2]
    if "usage" in pool.source:
        return float(pool.source["usage"]["truncated"] / (n * rollouts))
    if pool.tokens is None or pool.responses is None:
        return None
    last = answer_tags(ANSWERS)[-1][1]
    ended = np.array([[text.rstrip().endswith(last) for text in texts] for texts in pool.responses])
    return float(((pool.tokens >= pool.source["max_new_tokens"]) & ~ended).mean())


def make_entry(plan: Plan, pools: Sequence[Pool], name: str) -> dict[str, Any]:
    """Return the entry of a track that was sampled."""
    rows: dict[str, dict[str, Any]] = {}
    resamples: list[Floats] = []
    for seed, (task, pool) in enumerate(zip(plan.tasks, pools, strict=True)):
        rows[task.name], resamples_of_task = score_task(task, pool, seed)
        resamples.append(resamples_of_task)
    usage = [pool.source.get("usage", {}) for pool in pools]
    read: list[int | None] = [tokens.get("prompt_tokens") for tokens in usage]
    generated: list[int | None] = [tokens.get("completion_tokens") for tokens in usage]
    if not plan.endpoint:
        generated = [None if pool.tokens is None else int(pool.tokens.sum()) for pool in pools]
    return {
        "bench": VERSION,
        "track": plan.track,
        "name": name,
        "score": score_track(list(rows.values()), resamples).as_json(),
        "tasks": rows,
        "tokens": {"read": known_sum(read), "generated": known_sum(generated)},
        "seed": plan.seed,
        "prompts": digest(plan.prompts),
        "models": {task: {"target": target, "weights": weights_hash(target)} for task, target in plan.models.items()},
        "endpoint": {key: pools[0].source[key] for key in ("endpoint", "model")} if plan.endpoint else None,
        "sampling": {
            "answers": ANSWERS,
            "responses": RESPONSES,
            "temperature": TEMPERATURE,
            "max_new_tokens": {task.name: task.max_new_tokens for task in plan.tasks},
            "dtype": next((pool.source["dtype"] for pool in pools if "dtype" in pool.source), None),
        },
        "libraries": library_versions(),
    }


def read_entry(path: Path) -> dict[str, Any]:
    """Read an entry.

    Raises:
        ValueError: The file cannot be read, holds something else, is of another version of the bench, or is damaged.
    """
    text = read_text(path)
    try:
        entry: dict[str, Any] = parse_json(text)
    except ValueError as error:
        raise ValueError(f"the entry {str(path)!r} is damaged: {error}; give the one that vpo bench wrote") from None
    try:
        version, is_entry = entry["bench"], entry.keys() >= NEEDED
    except (TypeError, KeyError, AttributeError):
        version, is_entry = VERSION, False
    if not is_entry or (version == VERSION and entry["track"] not in list(TRACKS)):
        raise ValueError(f"{str(path)!r} is no entry of vpo bench: give the entry.json that it wrote")
    if version != VERSION:
        raise ValueError(
            f"{str(path)!r} is an entry of {version!s:.100}, and this is {VERSION}: install the version it names"
        )
    if damage := _damage(entry):
        raise ValueError(f"the entry {str(path)!r} is damaged: {damage}; give the entry.json that vpo bench wrote")
    return entry


def _damage(entry: Mapping[str, Any]) -> str:
    """Say what is wrong with an entry of this version; empty if nothing is."""
    names = [task.name for task in TRACKS[entry["track"]]]
    rows, models = entry["tasks"], entry["models"]
    if not isinstance(rows, dict) or set(rows) != set(names):
        return f"its tasks are not {', '.join(names)}"
    for column in BAND:
        if not _has_number(entry["score"], column):
            return f"score has no finite number {column!r}"
    for task, row in rows.items():
        for column in (*BAND, *NUMBERS, *SHARES, *COUNTS):
            if not _has_number(row, column):
                return f"{task} has no finite number {column!r}"
    name, seed = entry["name"], entry["seed"]
    if not isinstance(seed, int) or not 0 <= seed < 2**63 or not isinstance(name, str) or not is_plain(name):
        return "its seed is no whole number, or its name is no plain text"
    # There are none behind an endpoint.
    if not isinstance(models, dict) or (models and set(models) != set(names)):
        return "its models are not stated for each task"
    for model in models.values():
        if not isinstance(model, dict) or not all(isinstance(model.get(key), str) for key in ("target", "weights")):
            return "its models are not stated for each task"
    sampling = entry["sampling"]
    if not isinstance(sampling, dict) or sampling.get("dtype", "") not in [None, *DTYPES]:
        return "its dtype is neither float32 nor bfloat16"
    return ""


def _has_number(row: Any, column: str) -> bool:
    """Return whether a row has a number in a column, or says that it is unknown where it may be."""
    if not isinstance(row, dict) or column not in row:
        return False
    value = row[column]
    if value is None:
        return column in MAY_BE_UNKNOWN
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST


def differences(entry: Mapping[str, Any], again: Mapping[str, Any]) -> dict[str, float]:
    """Return by how much the numbers of two entries differ.

    The mean scores come first, under ``score`` and the names of the tasks, then all other numbers. The difference of
    two counts is a share of the larger one. A number that one entry lacks differs by infinity.
    """
    pairs = {"score": (entry["score"], again["score"])}
    pairs |= {name: (entry["tasks"][name], row) for name, row in again["tasks"].items()}
    by_name = {name: _difference("mean", stated, sampled) for name, (stated, sampled) in pairs.items()}
    for name, (stated, sampled) in pairs.items():
        for column in sampled:
            if column != "mean":
                by_name[f"{name} {column}"] = _difference(column, stated, sampled)
    return by_name


def _difference(column: str, stated: Mapping[str, Any], sampled: Mapping[str, Any]) -> float:
    before, after = stated[column], sampled[column]
    if before is None or after is None:
        return 0.0 if before is after else math.inf
    scale = max(abs(before), abs(after), 1) if column in COUNTS else 1
    return float((after - before) / scale)


def headline(entry: Mapping[str, Any]) -> str:
    """Return the score of an entry in one line."""
    score = entry["score"]
    shown = f"{number(score['mean'])} {interval(score['low'], score['high'])}"
    return f"{entry['bench']}, {entry['track']} track, {entry['name']}: {shown}"


def entry_table(entry: Mapping[str, Any]) -> str:
    """Return the numbers of each task in Markdown."""
    head = ["task", "score", "95 % interval", "three", "best three", "@1", "@30", "diversity", *SHARES, "tokens"]
    body = []
    for name, row in entry["tasks"].items():
        cells = [name, number(row["mean"]), interval(row["low"], row["high"])]
        cells += [number(row[column]) for column in NUMBERS]
        cells += ["" if row[column] is None else f"{100 * row[column]:.0f} %" for column in SHARES]
        cells.append("" if row["tokens"] is None else f"{row['tokens']:.0f}")
        body.append(cells)
    return markdown_table(head, body, "l" + "r" * (len(head) - 1))
