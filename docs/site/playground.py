"""A page to play with: which answer would you pick, not knowing what counts?"""

from __future__ import annotations

import inspect
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from vpo_agent.command.show import good_example, score
from vpo_agent.pages.page import STYLE
from vpo_envs.core import AnyEnv
from vpo_envs.registration import env_type, make_text_env

Answer = tuple[str, tuple[float, ...]]
"""An answer and its reward vector."""

PLAYED = {"vpo/Maze-v0": "compact", "vpo/Countdown-v0": "conflict", "vpo/Personas-v0": "conflict"}
"""The environments, with the preset of each whose answers a reader can judge."""
TASKS = 4
"""Number of tasks of each environment: the first ones, not selected."""
FRONT = 5
"""Largest number of answers of the front."""
PAGE = """---
hide-toc: true
---

# Playground

Give one answer, or three, to someone whose preferences you do not know.
<a href="_static/playground.html">The same page alone</a>.

<iframe class="hero" src="_static/playground.html" title="Pick answers and see what they score"></iframe>
"""


def write_playground(file: Path, played: list[dict[str, Any]]) -> None:
    """Write the page of some rounds, which loads nothing; it looks like the explorer and draws answers as that does."""
    assets = files("vpo_agent.explore") / "assets"
    scripts = ((assets / name).read_text(encoding="utf-8") for name in ("weights.js", "elements.js", "drawings.js"))
    fields = {
        "style": STYLE + (assets / "page.css").read_text(encoding="utf-8"),
        # Without a "<", nothing in the data can end its script element.
        "data": json.dumps(played, separators=(",", ":")).replace("<", "\\u003c"),
        "script": "\n".join(scripts),
    }
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    file.write_text(re.sub("@([a-z]+)@", lambda field: fields[field[1]], template), encoding="utf-8")


def rounds() -> list[dict[str, Any]]:
    """Return the tasks in the order in which they are played, the environments in turn."""
    envs = [make_text_env(env_id, preset=preset) for env_id, preset in PLAYED.items()]
    return [play(env, env_id, number) for number in range(TASKS) for env_id, env in zip(PLAYED, envs, strict=True)]


def answers(env: AnyEnv, number: int) -> tuple[list[Answer], list[Answer]]:
    """Return answers of the exact front of a task, and a good answer to the next task.

    Those of the front are the best one of each objective, that of the best mean, then others, at most :data:`FRONT`.
    """
    task = env.task(number)
    front = [(point.answer, tuple(map(float, point.vector))) for point in env.front(task)]
    active = np.flatnonzero(env.active(task))
    means = [float(np.mean([vector[place] for place in active])) for _, vector in front]
    best = [max(range(len(front)), key=lambda i, one=one: (front[i][1][one], means[i])) for one in active]
    order = dict.fromkeys([*best, int(np.argmax(means)), *range(len(front))])
    other = good_example(env, env.task(number + 1))
    poorer = [(other.answer, score(env, task, other.answer).vector)] if other else []
    return [front[i] for i in order][:FRONT], poorer


def play(env: AnyEnv, env_id: str, number: int) -> dict[str, Any]:
    """Return a task with answers of its front and a poorer one."""
    task = env.task(number)
    active = np.flatnonzero(env.active(task))
    good, poorer = answers(env, number)
    return {
        "environment": env_id,
        "about": (inspect.getdoc(env_type(env_id)) or "").partition("\n")[0].replace("`", ""),
        "prompt": env.prompt(task, 1),
        "drawing": env.drawing(task),
        "objectives": [
            {"name": env.objective_names[place], "description": env.objectives[place].description} for place in active
        ],
        "answers": [
            {
                "text": answer,
                "drawing": env.drawing(task, env.parse(answer)),
                "vector": [round(float(vector[place]), 4) for place in active],
            }
            for answer, vector in sorted(good + poorer)
        ],
    }
