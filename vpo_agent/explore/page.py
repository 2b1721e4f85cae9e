"""``explore.html``: a page on which a reader changes the weighting and sees which answer of each policy wins."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs_data.parsing import parse_json
from vpo_agent.explore.template import MAX_BYTES, check_out, fill, transcripts_of, write_page
from vpo_agent.measure.measures import rank
from vpo_agent.measure.metrics import best_at_k_whole
from vpo_agent.measure.pool import Floats, Pool
from vpo_agent.measure.sampling import environment_of
from vpo_agent.progress import progress
from vpo_agent.report.runs import Run, check_comparable, first_answers, make_labels, read_run
from vpo_agent.report.verdict import FEW
from vpo_envs import Status, UnknownFront
from vpo_envs.common.wording import counted, cut
from vpo_envs.core import AnyEnv
from vpo_envs.text import bare_answer, split_answers

ANSWER_CHARS = 600
"""Longer answers are cut."""
PROMPTS = 20
"""Tasks on the page by default."""
UNKNOWN = "(an answer that is not known here)"
"""Shown in place of an answer of the exact front if the environment is unavailable."""
SCRIPTS = ("weights.js", "elements.js", "drawings.js", "maps.js", "page.js")
SHORT_LINE, SHORT_LINES = 40, 26
"""A prompt with lines up to this length, and up to this number of them, is shown beside each answer."""
DIGITS = 4
"""Rewards that agree to this many decimal places are the same."""


class Explored(NamedTuple):
    """What a page shows."""

    tasks: int
    lacks: str
    """What the page cannot show, and why; empty if it shows everything."""


def better_base(files: Sequence[Path]) -> tuple[Path, str]:
    """Return the sample file of the base with the highest utility@3, in whole responses if it can be, and its label.

    Where a file has fewer than three answers to a task, the utility of that number counts.
    """
    pools = {file: Pool.load(file) for file in files}
    k = min(FEW, *(pool.answers().shape[1] for pool in pools.values()))

    def utility(file: Path) -> float:
        ranked = rank(pools[file])
        return float(best_at_k_whole(ranked.answers, ranked.rollouts, k).mean())

    best = max(files, key=utility)
    return best, f"base ({counted(pools[best].rewards.shape[2], 'answer')})"


def explore_runs(
    runs: Sequence[Path],
    labels: Sequence[str] | None = None,
    out: Path = Path("explore.html"),
    *,
    prompts: int = PROMPTS,
) -> Explored:
    """Write one HTML file that shows the answers of several policies, and which of them wins under any weighting.

    The file loads nothing and opens offline. It replaces an earlier page at ``out``, completely or not at all.

    Args:
        runs: Folders of finished runs, folders that ``vpo eval`` wrote, or sample files, all over the same prompts.
        labels: A name for each; derived from the settings by default.
        out: The file to write.
        prompts: The number of tasks; they are the first ones of the pools.

    Raises:
        ValueError: There are no runs, or they cannot be shown together; a pool holds no texts; the page would be larger
            than :data:`MAX_BYTES`, or ``out`` holds something else.
    """
    check_out(out, "explore")
    if not runs:
        raise ValueError("there is nothing to explore: give the folders of runs, or sample files")
    if labels is not None and len(labels) != len(runs):
        raise ValueError(f"got {counted(len(labels), 'label')} for {counted(len(runs), 'run')}: give one per run")
    read_runs = [read_run(path) for path in runs]
    check_comparable(read_runs)
    for run in read_runs:
        environment_of(run.pool, run.name)
        if run.pool.responses is None:
            raise ValueError(
                f"{run.name!r} holds rewards without the texts of the answers: sample it again with vpo eval"
            )
    policies = list(labels) if labels is not None else _unique_labels(read_runs)
    data = _page_data(read_runs, policies, prompts)
    data["links"] = []
    for label, run_path in zip(policies, runs, strict=True):
        page = transcripts_of(run_path)
        if page.is_file():
            target = Path(os.path.relpath(page, out.parent)).as_posix()
            data["links"].append({"text": f"All answers of {label}, and why", "to": target})
    text = fill("page.html", "explore", SCRIPTS, f"Explore {data['environment']}", data)
    if (size := len(text.encode())) > MAX_BYTES:
        fewer = max(1, len(data["tasks"]) * MAX_BYTES // size)
        raise ValueError(
            f"the page would have {size / 1e6:.1f} MB with {counted(len(data['tasks']), 'task')}, more than "
            f"{MAX_BYTES / 1e6:g} MB: choose fewer, such as --eval-prompts {fewer}, or fewer runs"
        )
    write_page(out, text)
    return Explored(len(data["tasks"]), data["lacks"])


def _unique_labels(runs: Sequence[Run]) -> list[str]:
    """Label each run as ``vpo compare`` does, with its seed, and then its number, where labels would be the same."""
    labels = make_labels(runs)
    counts = Counter(labels)
    for position, run in enumerate(runs):
        if counts[labels[position]] > 1 and run.seed is not None:
            labels[position] = f"{labels[position]}, seed {run.seed}"
    counts = Counter(labels)
    return [f"{label} ({number})" if counts[label] > 1 else label for number, label in enumerate(labels, start=1)]


def _page_data(runs: Sequence[Run], labels: Sequence[str], prompts: int) -> dict[str, Any]:
    """Return what the page shows, as plain JSON values."""
    fewest = min(run.pool.status[0].size for run in runs)
    pools = [first_answers(run.pool, fewest) for run in runs]
    size = min(pool.status[0].size for pool in pools)
    together = lcm(*(pool.rewards.shape[2] for pool in pools))
    first = pools[0]
    env, reason = environment_of(first, runs[0].name, same_tasks=True)
    shown = first.indices[:prompts]
    notes = [f"The first {counted(len(shown), 'task')} of {len(first.indices)}, not selected."]
    if any(run.pool.status[0].size > size for run in runs):
        notes.append(f"Some sample files hold more answers; the first {size} count.")
    lacks = ""
    if env is None:
        option = "" if "--trust" in reason else import_option(run.settings for run in runs)
        lacks = f"Prompts and the answers of the exact fronts are not shown: {reason}{option}."
        notes.append(lacks)
    description = (type(env).__doc__ or "").strip().splitlines() if env is not None else []
    return {
        "environment": str(first.source.get("env", "an unknown environment")),
        "about": description[0] if description else "",
        "objectives": [
            {"name": name, "description": "" if env is None else env.objectives[number].description}
            for number, name in enumerate(first.objectives)
        ],
        "policies": list(labels),
        "size": size,
        "counts": sorted({min(together, size), size}),
        "notes": notes,
        "lacks": lacks,
        "tasks": [_shown_task(pools, size, number, env) for number in progress(range(len(shown)), "tasks", "part")],
    }


def import_option(runs: Iterable[Mapping[str, Any]]) -> str:
    """Say which ``--import`` registers the environment of the runs with these settings, if one of them knows."""
    for settings in runs:
        env_module = str(settings.get("env", "")).rpartition(":")[0]
        modules = [module for module in (env_module, *settings.get("imports", [])) if module]
        if modules:
            options = " ".join(f"--import {shlex.quote(module)}" for module in modules)
            return f"; this run was made with {options}"
    return ""


def _shown_task(pools: Sequence[Pool], size: int, number: int, env: AnyEnv | None) -> dict[str, Any]:
    """Return one prompt of the pools, with the answers of every policy."""
    first = pools[0]
    index = int(first.indices[number])
    answers = _Answers(env, index, first.active[number])
    front = None if first.fronts is None else answers.front(first.fronts[number])
    of_policies = [answers.of_pool(pool, number)[:size] for pool in pools]
    lines = answers.prompt.splitlines()
    return {
        "index": index,
        "active": answers.active,
        "prompt": cut(answers.prompt),
        "short": bool(lines) and len(lines) <= SHORT_LINES and max(map(len, lines)) <= SHORT_LINE,
        "drawing": answers.drawing,
        "vectors": list(answers.vectors),
        "texts": [
            {"text": text, "status": status, "drawing": parse_json(drawing)} for text, status, drawing in answers.texts
        ],
        "answers": of_policies,
        "front": front,
    }


class _Answers:
    """The answers to one task, each as two numbers: one for its vector and one for its text.

    Equal vectors share a number, and so do equal texts. Without the environment there are no prompt and no drawings.
    """

    def __init__(self, env: AnyEnv | None, index: int, active: NDArray[np.bool_]) -> None:
        self.active: list[int] = np.flatnonzero(active).tolist()
        """The objectives that count, by number."""
        self.vectors: dict[tuple[float, ...], int] = {}
        """The number of each vector, of active objectives."""
        self.texts: dict[tuple[str, str, str], int] = {}
        """The number of each text with its status and its drawing, as JSON."""
        self._env = env
        self._task = None if env is None else env.task(index)
        self.prompt = "" if env is None else env.prompt(self._task, env.num_answers)
        self.drawing = None if env is None else env.drawing(self._task)
        """Of the task, for environments that draw."""

    def front(self, points: Floats) -> list[tuple[int, int]]:
        """Add the points of the exact front (f, d), the highest first."""
        answer_of: dict[tuple[float, ...], str] = {}
        if self._env is not None:
            with suppress(UnknownFront):
                answer_of = {self._rounded(point.vector): point.answer for point in self._env.front(self._task)}
        ordered = sorted(points.tolist(), reverse=True)
        return [self._add(point, answer_of.get(self._rounded(point), UNKNOWN)) for point in ordered]

    def of_pool(self, pool: Pool, number: int) -> list[tuple[int, int]]:
        """Add the answers of a pool to the prompt with this number."""
        assert pool.responses is not None
        m = pool.rewards.shape[2]
        texts = [text for response in pool.responses[number] for text in split_answers(response, m)]
        rewards = pool.rewards[number].reshape(-1, pool.rewards.shape[3])
        pairs = []
        for vector, text, code in zip(rewards, texts, pool.status[number].ravel(), strict=True):
            status = Status(code).name.lower().replace("_", " ")
            pairs.append(self._add(vector, text or "", status))
        return pairs

    def _add(self, vector: Sequence[float], text: str, status: str = "ok") -> tuple[int, int]:
        # Before the text is cut, so that a long path is drawn whole.
        drawing = None
        if self._env is not None and self.drawing is not None:
            with suppress(ValueError):
                drawing = self._env.drawing(self._task, self._env.parse(bare_answer(text)))
        key = (cut(text, ANSWER_CHARS, keep_tags=False), status, json.dumps(drawing))
        number_of_vector = self.vectors.setdefault(self._rounded(vector), len(self.vectors))
        return number_of_vector, self.texts.setdefault(key, len(self.texts))

    def _rounded(self, vector: Sequence[float]) -> tuple[float, ...]:
        return tuple(round(float(vector[objective]), DIGITS) for objective in self.active)
