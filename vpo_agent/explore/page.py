"""``explore.html``: a page to move the weights of the objectives on, and to watch which answer of each policy wins."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vpo_agent.explore.template import MAX_BYTES, check_out, fill, transcripts_of, write_page
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import environment_of
from vpo_agent.progress import progress
from vpo_agent.report.runs import Run, check_comparable, first_answers, make_labels, read_run
from vpo_envs import Status, UnknownFront
from vpo_envs.common.wording import counted, cut
from vpo_envs.core import AnyEnv
from vpo_envs.text import split_answers

ANSWER_CHARS = 600
"""Longer answers are cut."""
PROMPTS = 20
"""Instances on the page by default."""
UNKNOWN = "(an answer that is not known here)"
"""Stands for the answer at a point of the exact front where the environment is not at hand."""
SCRIPTS = ("weights.js", "elements.js", "drawings.js", "maps.js", "page.js")
SHORT_LINE, SHORT_LINES = 40, 26
"""A prompt with lines up to this length, and up to this number of them, is shown beside each answer."""
DIGITS = 4
"""Rewards that agree to this many decimal places are the same."""


class Explored(NamedTuple):
    """What a page shows."""

    instances: int
    lacks: str
    """What it cannot show, and why; empty if it shows everything."""


def explore_runs(
    runs: Sequence[Path],
    labels: Sequence[str] | None = None,
    out: Path = Path("explore.html"),
    *,
    prompts: int = PROMPTS,
) -> Explored:
    """Write one HTML file that shows the answers of several policies, and which of them wins under any weights.

    The file loads nothing and opens offline. It replaces an earlier page at ``out``, completely or not at all.

    Args:
        runs: Folders of finished runs, folders that ``vpo eval`` wrote, or pool files, all over the same prompts.
        labels: A name for each; derived from the settings by default.
        out: The file to write.
        prompts: The number of instances; they are the first ones.

    Raises:
        ValueError: There are no runs, or they cannot be shown together; a pool holds no texts; the page would be larger
            than :data:`MAX_BYTES`, or ``out`` holds something else.
    """
    check_out(out, "explore")
    if not runs:
        raise ValueError("there is nothing to explore: give the folders of runs, or pool files")
    if labels is not None and len(labels) != len(runs):
        raise ValueError(f"got {counted(len(labels), 'label')} for {counted(len(runs), 'run')}: give one per run")
    read = [read_run(path) for path in runs]
    check_comparable(read)
    for run in read:
        environment_of(run.pool, run.name)
        if run.pool.responses is None:
            raise ValueError(
                f"{run.name!r} holds rewards without the texts of the answers: sample it again with vpo eval"
            )
    data = _page_data(read, list(labels) if labels is not None else _names(read), prompts)
    pages = zip(data["policies"], map(transcripts_of, runs), strict=True)
    data["links"] = [
        {"text": f"All answers of {label}, and why", "to": Path(os.path.relpath(page, out.parent)).as_posix()}
        for label, page in pages
        if page.is_file()
    ]
    text = fill("page.html", "explore", SCRIPTS, f"Explore {data['environment']}", data)
    if (size := len(text.encode())) > MAX_BYTES:
        fewer = max(1, len(data["instances"]) * MAX_BYTES // size)
        raise ValueError(
            f"the page would have {size / 1e6:.1f} MB with {counted(len(data['instances']), 'instance')}, more than "
            f"{MAX_BYTES / 1e6:g} MB: choose fewer, such as --prompts {fewer}, or fewer runs"
        )
    write_page(out, text)
    return Explored(len(data["instances"]), data["lacks"])


def _names(runs: Sequence[Run]) -> list[str]:
    """Label each run as ``vpo compare`` does, with its seed, and then its number, where labels would be the same."""
    names = make_labels(runs)
    counts = Counter(names)
    names = [
        f"{name}, seed {run.seed}" if counts[name] > 1 and run.seed is not None else name
        for name, run in zip(names, runs, strict=True)
    ]
    counts = Counter(names)
    return [f"{name} ({place})" if counts[name] > 1 else name for place, name in enumerate(names, start=1)]


def _page_data(runs: Sequence[Run], labels: Sequence[str], prompts: int) -> dict[str, Any]:
    """Return what the page shows, as plain JSON values."""
    fewest = min(run.pool.status[0].size for run in runs)
    pools = [first_answers(run.pool, fewest) for run in runs]
    size = min(pool.status[0].size for pool in pools)
    together = lcm(*(pool.rewards.shape[2] for pool in pools))
    first = pools[0]
    env, reason = environment_of(first, runs[0].name, same_instances=True)
    shown = first.indices[:prompts]
    notes = [f"The first {counted(len(shown), 'instance')} of {len(first.indices)}, not selected."]
    if any(run.pool.status[0].size > size for run in runs):
        notes.append(f"Some pools hold more answers; the first {size} count.")
    lacks = ""
    if env is None:
        option = import_option(run.settings for run in runs)
        lacks = f"Prompts and the answers of the exact fronts are not shown: {reason}{option}."
        notes.append(lacks)
    about = (type(env).__doc__ or "").strip().splitlines() if env is not None else []
    return {
        "environment": str(first.source.get("env", "an unknown environment")),
        "about": about[0] if about else "",
        "objectives": [
            {"name": name, "description": "" if env is None else env.objectives[place].description}
            for place, name in enumerate(first.objectives)
        ],
        "policies": list(labels),
        "size": size,
        "counts": sorted({min(together, size), size}),
        "notes": notes,
        "lacks": lacks,
        "instances": [_instance(pools, size, place, env) for place in progress(range(len(shown)), "instances", "part")],
    }


def import_option(runs: Iterable[Mapping[str, Any]]) -> str:
    """Say which ``--import`` registers the environment of the runs with these settings, if one of them knows."""
    for settings in runs:
        own = [str(settings.get("env", "")).rpartition(":")[0], *settings.get("imports", [])]
        if modules := [one for one in own if one]:
            return f"; this run was made with {' '.join(f'--import {one}' for one in modules)}"
    return ""


def _instance(pools: Sequence[Pool], size: int, place: int, env: AnyEnv | None) -> dict[str, Any]:
    """Return one instance with the answers of every policy, each a pair of places in ``vectors`` and ``texts``."""
    first = pools[0]
    active = np.flatnonzero(first.active[place])
    task = None if env is None else env.task(int(first.indices[place]))
    prompt = "" if env is None else env.prompt(task, env.num_answers)
    drawn = None if env is None else env.drawing(task)
    vectors: dict[tuple[float, ...], int] = {}
    texts: dict[tuple[str, str, str], int] = {}

    def rounded(vector: Sequence[float]) -> tuple[float, ...]:
        return tuple(round(float(vector[one]), DIGITS) for one in active.tolist())

    def entry(vector: Sequence[float], text: str, status: str = "ok") -> tuple[int, int]:
        # Before the text is cut, so that a long path is drawn whole.
        drawing = None
        if env is not None and drawn is not None:
            with suppress(ValueError):
                drawing = env.drawing(task, env.parse(text))
        key = cut(text, ANSWER_CHARS, keep_tags=False), status, json.dumps(drawing)
        return vectors.setdefault(rounded(vector), len(vectors)), texts.setdefault(key, len(texts))

    front = None
    if first.fronts is not None:
        written: dict[tuple[float, ...], str] = {}
        if env is not None:
            with suppress(UnknownFront):
                written = {rounded(point.vector): point.answer for point in env.front(task)}
        points = sorted(first.fronts[place].tolist(), reverse=True)
        front = [entry(point, written.get(rounded(point), UNKNOWN)) for point in points]
    answers = []
    for pool in pools:
        m = pool.rewards.shape[2]
        assert pool.responses is not None
        split = [answer for text in pool.responses[place] for answer in split_answers(text, m)]
        rewards = pool.rewards[place].reshape(-1, pool.rewards.shape[3])
        rows = zip(rewards, split, pool.status[place].ravel(), strict=True)
        answers.append(
            [entry(row, text or "", Status(code).name.lower().replace("_", " ")) for row, text, code in rows][:size]
        )
    lines = prompt.splitlines()
    return {
        "index": int(first.indices[place]),
        "active": active.tolist(),
        "prompt": cut(prompt),
        "short": bool(lines) and len(lines) <= SHORT_LINES and max(map(len, lines)) <= SHORT_LINE,
        "drawing": drawn,
        "vectors": list(vectors),
        "texts": [{"text": text, "status": status, "drawing": json.loads(one)} for text, status, one in texts],
        "answers": answers,
        "front": front,
    }
