"""Write the generated parts of the pages of environments: `python docs/site/template.py`.

Each page has the headings of :data:`HEADINGS`. Between comments in its Markdown stand an example of two answers that
compete, a table of what the presets offer, and tables of the knobs of the generator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from matplotlib.image import imsave
from pydantic import BaseModel

from vpo_agent.command.show import show_objectives
from vpo_agent.pages.page import markdown_table
from vpo_envs.checking.conflict import objective_conflict
from vpo_envs.core import AnyEnv, UnknownFront
from vpo_envs.pareto import best_set, spread_weights
from vpo_envs.registration import env_type, make_text_env
from vpo_envs.text import REPLY_START, format_answers, readable

DOCS = Path(__file__).resolve().parents[1]
MAZE = DOCS / "images" / "maze.png"
HEADINGS = ("Task", "Example", "Answer format", "Objectives", "Presets", "The front", "Options", "Training")
MANY = 6
"""Number of objectives beyond which an example names only those that an answer meets."""
TASKS = 16
"""Number of training tasks behind the figures of a preset."""


class Shown(NamedTuple):
    """A task that the page of an environment shows."""

    env_id: str
    preset: str = "conflict"
    task: int = 0
    demonstrated: bool = False
    """Whether the answers are demonstrations, for fronts whose answers nobody would write."""
    left_out: str = ""
    """Lines of the prompt to leave out: a pattern, in which NAMES stands for names and numbers of the answers."""


PAGES = {
    "maze": (Shown("vpo/Maze-v0"), Shown("vpo/Maze-v0", "compact")),
    "musique": (Shown("vpo/MuSiQue-v0", left_out=r"\[(?!(?:NAMES)\])"), Shown("vpo/MuSiQue-v0", "compact")),
    "eureqa": (Shown("vpo/EUREQA-v0", left_out=r"- (?!(?:NAMES), )"), Shown("vpo/EUREQA-v0", "compact")),
    "tools": (Shown("vpo/Tools-v0", left_out="Parameters: "), Shown("vpo/Tools-v0", "compact")),
    "code": (Shown("vpo/Code-v0", task=4, demonstrated=True), Shown("vpo/Code-v0", "compact")),
    "countdown": (Shown("vpo/Countdown-v0"), Shown("vpo/Countdown-v0", "compact")),
    "programs": (Shown("vpo/Programs-v0", "compact", demonstrated=True),),
    "gsm8k": (Shown("vpo/GSM8K-v0", "paper"),),
    "personas": (Shown("vpo/Personas-v0"),),
    "reward_models": (Shown("vpo/RewardModels-v0", "paper"),),
    "archive": (Shown("vpo/Archive-v0"), Shown("vpo/Archive-v0", "compact")),
}
"""By name of the page in docs/, the tasks that its example shows."""


class Competing(NamedTuple):
    """A task and answers to it that compete."""

    prompt: str
    objectives: tuple[str, ...]
    """Those that count for the task."""
    answers: tuple[tuple[str, str, tuple[float, ...]], ...]
    """Of each answer its name, its text and its rewards; these are empty without reward models."""


@cache
def competing(shown: Shown) -> Competing:
    """Return a task with two specialists: those with the highest utility together.

    In the preset compact the compromise follows, the answer with the highest scalar reward.
    """
    env = make_text_env(shown.env_id, preset=shown.preset)
    task = env.task(shown.task)
    if shown.env_id == "vpo/RewardModels-v0":
        by_length = sorted(task.references, key=len)
        return Competing(env.prompt(task, 1), (), (("Answer A", by_length[-1], ()), ("Answer B", by_length[1], ())))
    active = np.flatnonzero(env.active(task))
    if shown.demonstrated:
        texts = [*dict.fromkeys(env.demonstrations(task, np.random.default_rng(0), 6))]
        rewards = np.array(env.score_answers(task, texts)[0])[:, active]
    else:
        points = env.front(task)
        texts, rewards = [point.answer for point in points], np.array([point.vector for point in points])[:, active]
    means = rewards.mean(axis=1)
    if shown.demonstrated:
        candidates = np.flatnonzero(rewards.any(axis=1))
    else:
        best = {
            max(range(len(texts)), key=lambda i, one=one: (rewards[i, one], means[i])) for one in range(len(active))
        }
        candidates = np.array(sorted(best))
    pair = candidates[best_set(rewards[candidates], 2, spread_weights(len(active)))]
    places = sorted(pair.tolist(), key=lambda place: rewards[place].tolist(), reverse=True)
    names = ["Answer A", "Answer B"]
    if shown.preset == "compact" and (compromise := int(means.argmax())) not in places:
        names, places = [*names, "The compromise"], [*places, compromise]
    shown_answers = tuple((name, texts[i], tuple(rewards[i].tolist())) for name, i in zip(names, places, strict=True))
    prompt = _shortened(env.prompt(task, 1), shown.left_out, " ".join(texts[place] for place in places))
    return Competing(prompt, tuple(env.objective_names[place] for place in active), shown_answers)


def _shortened(prompt: str, left_out: str, answers: str) -> str:
    """Return a prompt with dots in place of the lines that begin as ``left_out`` says."""
    if not left_out:
        return prompt
    names = "|".join(sorted(set(re.findall(r"\b[A-Z]\w+|\b\d+", answers))))
    pattern = re.compile(left_out.replace("NAMES", names))
    lines: list[str] = []
    for line in prompt.splitlines():
        shown = "…" if pattern.match(line) else line
        if shown != "…" or lines[-1:] != ["…"]:
            lines.append(shown)
    return "\n".join(lines)


def example(name: str) -> str:
    """Return the examples of a page."""
    lines: list[str] = []
    for shown in PAGES[name]:
        task = competing(shown)
        cut = "; dots stand for lines that are left out here" if shown.left_out else ""
        lines += [f'Training task {shown.task} of `preset="{shown.preset}"`{cut}:', "", fenced(task.prompt), ""]
        for title, answer, rewards in task.answers:
            lines += [f"**{title}** earns {earned(task.objectives, rewards)}:", "", fenced(as_written(answer)), ""]
    return "\n".join(lines).rstrip()


def as_written(answer: str) -> str:
    """Return an answer as the page shows it: where the environment replies, as the response with its replies."""
    return readable(format_answers([answer])) if REPLY_START in answer else answer


def earned(objectives: Sequence[str], rewards: Sequence[float]) -> str:
    """Return a reward vector in words; objectives with numbers, where there are many, by what is 1."""
    if not rewards:
        return "what the reward models say"
    if len(rewards) > MANY:
        return "1 on " + ", ".join(name for name, reward in zip(objectives, rewards, strict=True) if reward == 1)
    return ", ".join(f"{name} {round(reward, 2):g}" for name, reward in zip(objectives, rewards, strict=True))


def presets(name: str) -> str:
    """Return the table of the presets of an environment, measured on its first training tasks."""
    env_id = PAGES[name][0].env_id
    rows = []
    for preset in env_type(env_id).presets:
        env = make_text_env(env_id, preset=preset)
        length = np.mean([len(env.prompt(env.task(index), 1)) for index in range(TASKS)])
        shown = [f"`{preset}`", f"{length:,.0f}", show_objectives(env.objective_names)]
        rows.append([*shown, *_figures(env)])
    head = ("preset", "prompt", "objectives", "points", "best answer", "best 3", "3 by scalar reward", "front")
    return markdown_table(head, rows, "lrlrrrrr")


def _figures(env: AnyEnv) -> Iterator[str]:
    """Yield the shape of the fronts: their points, and the utility of the best small sets and of the whole front."""
    try:
        report = objective_conflict(env, TASKS)
    except UnknownFront:
        yield from ["unknown", *[""] * 4]
        return
    yield f"{report.points:.1f}"
    for utility in (report.best_single, report.best_set, report.best_by_scalar, report.whole_front):
        yield f"{utility:.2f}".removeprefix("0")


def knobs(name: str) -> str:
    """Return the tables of knobs, one for the presets that share them."""
    made_of = env_type(PAGES[name][0].env_id)
    configs: dict[type[BaseModel], dict[str, BaseModel]] = {}
    for preset in made_of.presets:
        config = made_of.class_of(preset).presets[preset]
        if config is not None:
            configs.setdefault(type(config), {})[preset] = config
    tables = []
    for kind, by_preset in configs.items():
        body = [
            [f"`{knob}`", *(written(getattr(config, knob)) for config in by_preset.values()), field.description or ""]
            for knob, field in kind.model_fields.items()
        ]
        head = ["`difficulty` knob", *(f"`{preset}`" for preset in by_preset), "meaning"]
        tables.append(markdown_table(head, body, "l" * len(head)))
    return "\n\n".join(tables)


def written(value: Any) -> str:
    """Return the default of a knob as the table writes it: a range as its bounds, or as one number."""
    if isinstance(value, tuple):
        low, high = value
        return f"{low}" if low == high else f"{low} to {high}"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def fenced(text: str) -> str:
    """Return ``text`` as a Markdown block, in a fence that is longer than any inside."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def draw_maze() -> None:
    """Draw the maze of the example with both routes."""
    shown = PAGES["maze"][0]
    env = gym.make(shown.env_id, preset=shown.preset, num_answers=2, render_mode="rgb_array")
    env.reset(options={"index": shown.task})
    env.step(format_answers([answer for _, answer, _ in competing(shown).answers]))
    imsave(MAZE, env.render())


PARTS = {"example": example, "presets": presets, "knobs": knobs}


def filled(name: str, text: str) -> str:
    """Return the text of a page with its generated parts."""
    for part, make in PARTS.items():
        pattern = re.compile(rf"(<!-- {part}: .*? -->\n).*?(\n<!-- end -->)", re.DOTALL)
        text = pattern.sub(lambda found, make=make: f"{found[1]}\n{make(name)}\n{found[2]}", text)
    return text


if __name__ == "__main__":
    for name in PAGES:
        file = DOCS / f"{name}.md"
        file.write_text(filled(name, file.read_text(encoding="utf-8")), encoding="utf-8")
    draw_maze()
