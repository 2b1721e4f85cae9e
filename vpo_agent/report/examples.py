"""Example answers: as pictures if the environment draws them, else as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import AnyEnv
from vpo_agent.pages.figure_style import INK, new_figure, save
from vpo_agent.pages.page import Page
from vpo_envs import Status
from vpo_envs.text import format_answers, split_answers
from vpo_envs.wording import cut

SHOWN = 3
"""Rollouts shown if each holds a single answer."""
PROMPT_CHARS, ANSWER_CHARS = 1200, 600


@dataclass(frozen=True)
class ExampleSet:
    """Some answers to the prompt ``index`` of its split, with the environment's picture of them if it draws one."""

    index: int
    prompt: str
    answers: list[str | None]
    status: NDArray[np.int8]
    """(answers,)."""
    vectors: NDArray[np.float32]
    """(answers, d)."""
    picture: NDArray[np.uint8] | None
    """(height, width, 3)."""


def example_sets(pool: Pool, env: AnyEnv, count: int) -> list[ExampleSet]:
    """Return the first rollout of the first ``count`` prompts, or the first three if one holds a single answer."""
    if pool.responses is None:
        return []
    _, rollouts, m, d = pool.rewards.shape
    taken = 1 if m > 1 else min(SHOWN, rollouts)
    found = []
    for place, index in enumerate(pool.indices[:count].tolist()):
        task = env.task(index)
        answers = [answer for text in pool.responses[place][:taken] for answer in split_answers(text, m)]
        status, vectors = pool.status[place, :taken].ravel(), pool.rewards[place, :taken].reshape(-1, d)
        found.append(ExampleSet(index, env.prompt(task, m), answers, status, vectors, _picture(env, task, answers)))
    return found


def _picture(env: AnyEnv, task: Any, answers: Sequence[str | None]) -> NDArray[np.uint8] | None:
    """The environment's own picture of the answers, taken together as one response."""
    if "rgb_array" not in env.metadata["render_modes"]:
        return None
    before = env.num_answers, env.render_mode
    env.num_answers, env.render_mode = len(answers), "rgb_array"
    try:
        env.reset(options={"task": task})
        env.step(format_answers(answers, len(answers)))
        drawn = env.render()
    finally:
        env.num_answers, env.render_mode = before
    return np.asarray(drawn, dtype=np.uint8)


def draw_examples(columns: Sequence[tuple[str, Sequence[ExampleSet]]], path: Path, title: str = "") -> Path | None:
    """Draw pictures with a column per method, or per prompt of a single method; return ``None`` if there are none."""
    grid: list[list[tuple[str, NDArray[np.uint8]]]] = []
    for label, sets in columns:
        pictures = [(f"prompt {one.index}", one.picture) for one in sets if one.picture is not None]
        if not pictures:
            return None
        grid.append([(f"{label}, {name}" if len(columns) > 1 else name, picture) for name, picture in pictures])
    if len(grid) == 1:
        grid = [[one] for one in grid[0]]
    rows = max(len(column) for column in grid)
    shape = np.max([picture.shape[:2] for column in grid for _, picture in column], axis=0)
    width = 3.2
    figure = new_figure(height=(width * shape[0] / shape[1] + 0.35) * rows, width=width * len(grid))
    for across, column in enumerate(grid):
        for down, (heading, picture) in enumerate(column):
            axes = figure.add_subplot(rows, len(grid), down * len(grid) + across + 1)
            axes.imshow(picture, interpolation="antialiased")
            axes.set_title(heading, color=INK, fontsize=10.5, fontweight="bold")
            axes.set_axis_off()
    return save(figure, path, title=title)


def add_examples(page: Page, columns: Sequence[tuple[str, Sequence[ExampleSet]]], objectives: Sequence[str]) -> None:
    """Add the answers to the page as text, prompt by prompt."""
    for place, first in enumerate(columns[0][1]):
        page.heading(f"Prompt {first.index}", 3)
        page.text(cut(first.prompt, PROMPT_CHARS))
        for label, sets in columns:
            one = sets[place]
            for number, (answer, status, vector) in enumerate(zip(one.answers, one.status, one.vectors, strict=True)):
                rewards = ", ".join(f"{name} {value:.2f}" for name, value in zip(objectives, vector, strict=True))
                who = f"{label}, answer" if label else "Answer"
                page.paragraph(f"{who} {number + 1}: {Status(status).name.lower().replace('_', ' ')}; {rewards}")
                if answer is not None:
                    page.text(cut(answer.strip(), ANSWER_CHARS, keep_tags=False))
