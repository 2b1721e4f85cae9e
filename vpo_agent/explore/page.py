"""``explore.html``: a page to move the weights of the objectives on, and to watch which answer of each policy wins."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.sampling import AnyEnv, environment_of, same_instances
from vpo_agent.pages.page import STYLE
from vpo_agent.report.examples import ANSWER_CHARS
from vpo_agent.report.runs import Run, check_comparable, first_answers, make_labels, read_run
from vpo_envs import Status, UnknownFront
from vpo_envs.text import split_answers
from vpo_envs.wording import counted, cut

MAX_BYTES = 3_000_000
"""Size of the largest page."""
PROMPTS = 20
"""Instances on the page by default."""
MARK = '<meta name="generator" content="vpo explore">'
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
    _check_out(out)
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
    text = _fill(data)
    if (size := len(text.encode())) > MAX_BYTES:
        fewer = max(1, len(data["instances"]) * MAX_BYTES // size)
        raise ValueError(
            f"the page would have {size / 1e6:.1f} MB with {counted(len(data['instances']), 'instance')}, more than "
            f"{MAX_BYTES / 1e6:g} MB: choose fewer, such as --prompts {fewer}, or fewer runs"
        )
    aside = out.with_name(f".{out.name}.{uuid4().hex}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        aside.replace(out)
    except OSError as error:
        raise ValueError(f"cannot write {str(out)!r}: {error.strerror}") from error
    finally:
        aside.unlink(missing_ok=True)
    return Explored(len(data["instances"]), data["lacks"])


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise ValueError(f"{str(out)!r} is a folder, not a file: choose another --out")
    if out.exists() and MARK.encode() not in out.read_bytes()[:2000]:
        raise ValueError(f"{str(out)!r} holds something other than a page of vpo explore: choose another --out")


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
    env, reason = environment_of(first, runs[0].name)
    if env is not None and not same_instances(first, env):
        env, reason = None, "the environment makes other instances now than when the answers were sampled"
    shown = first.indices[:prompts]
    notes = [f"The first {counted(len(shown), 'instance')} of {len(first.indices)}, not selected."]
    if any(run.pool.status[0].size > size for run in runs):
        notes.append(f"Some pools hold more answers; the first {size} count.")
    lacks = ""
    if env is None:
        lacks = f"Prompts and the answers of the exact fronts are not shown: {reason}{_import_option(runs)}."
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
        "instances": [_instance(pools, size, place, env) for place in range(len(shown))],
    }


def _import_option(runs: Sequence[Run]) -> str:
    """Say which ``--import`` registers the environment of the runs, if one of them knows."""
    for run in runs:
        own = [str(run.settings.get("env", "")).rpartition(":")[0], *run.settings.get("imports", [])]
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

    def entry(vector: Floats, text: str, status: str = "ok") -> tuple[int, int]:
        rounded = tuple(round(float(value), DIGITS) for value in vector[active])
        # Before the text is cut, so that a long path is drawn whole.
        drawing = None if drawn is None else _drawing(env, task, text)
        key = cut(text, ANSWER_CHARS, keep_tags=False), status, json.dumps(drawing)
        return vectors.setdefault(rounded, len(vectors)), texts.setdefault(key, len(texts))

    front = None
    if first.fronts is not None:
        written = _front_answers(env, task, active)
        points = sorted(first.fronts[place].tolist(), reverse=True)
        front = [
            entry(np.array(point), written.get(tuple(round(point[one], DIGITS) for one in active), UNKNOWN))
            for point in points
        ]
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


def _front_answers(env: AnyEnv | None, task: Any, active: Any) -> dict[tuple[float, ...], str]:
    """Return an answer for each point of the exact front, by its rounded rewards, as far as they are known."""
    if env is None:
        return {}
    try:
        points = env.front(task)
    except UnknownFront:
        return {}
    return {tuple(round(float(point.vector[one]), DIGITS) for one in active): point.answer for point in points}


def _drawing(env: AnyEnv | None, task: Any, text: str) -> dict[str, Any] | None:
    try:
        return None if env is None else env.drawing(task, env.parse(text))
    except ValueError:
        return None


def _fill(data: dict[str, Any]) -> str:
    """Return the page. Its policy allows the two texts below by their hashes, and nothing else."""
    folder = files("vpo_agent.explore") / "assets"
    style = STYLE + (folder / "page.css").read_text(encoding="utf-8")
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    rules = ["default-src 'none'", f"style-src '{_hash(style)}'", f"script-src '{_hash(script)}'", "base-uri 'none'"]
    # Without a "<", nothing in the data can end its script element.
    written = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    fields = {
        "policy": "; ".join([*rules, "form-action 'none'"]),
        "title": escape(f"Explore {data['environment']}"),
        "style": style,
        "data": written,
        "script": script,
    }
    template = (folder / "page.html").read_text(encoding="utf-8")
    return re.sub("@([a-z]+)@", lambda field: fields[field[1]], template)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
