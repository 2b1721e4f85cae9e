"""The pages of the environments, made from their docstrings and from what they give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import gymnasium as gym
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from vpo_agent.command.show import good_example, score, show_objectives, show_vector
from vpo_envs.common.wording import cut
from vpo_envs.core import AnyEnv, UnknownFront, VectorTextEnv
from vpo_envs.registration import env_ids, env_type, make_text_env

Answer = tuple[str, tuple[float, ...]]
"""An answer and its reward vector."""
DOCS = Path(__file__).resolve().parents[1]
ANSWERS, DRAWN = 3, 24
"""Largest number of answers of a front on a page, and in a picture."""
EXCERPT = 6
"""Number of lines of a prompt on the card of an environment."""
CELL = 16
"""Pixels of a reward in a picture, with the line beside it."""
CODE = """```python
import gymnasium as gym
import vpo_envs

env = gym.make("{}")
observation, info = env.reset(options={{"index": 0}})  # task 0, below
```
"""


def write_environments(folder: Path) -> None:
    """Write a page with a picture for each environment, and ``index.md``, which lists them."""
    folder.mkdir()
    pictures = {}
    for env_id in env_ids():
        pictures[env_id] = draw(env_id, folder / f"{short(env_id)}.png")
        (folder / f"{short(env_id)}.md").write_text(page(env_id, pictures[env_id]), encoding="utf-8")
    (folder / "index.md").write_text(index(pictures), encoding="utf-8")


def index(pictures: Mapping[str, str]) -> str:
    """Return the gallery, a card for each environment, whose ``pictures`` show what is given, and what all have."""
    pages = "\n".join(map(short, env_ids()))
    return "\n".join(
        [
            *("---\nhide-toc: true\n---\n", "# All environments", ""),
            *("The coloured pictures show the rewards of a few answers, from dark for 0 to yellow for 1.", ""),
            "::::{container} cards gallery",
            *(line for one in env_ids() for line in card(one, pictures.get(one, ""))),
            *("::::", ""),
            *("## Every text environment", "", described(VectorTextEnv, level=3), ""),
            f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n",
        ]
    )


def card(env_id: str, alt: str) -> Iterator[str]:
    """Yield the lines of a card: the picture that ``alt`` names, the id, the task, and how its first prompt begins."""
    yield ":::{container} card"
    if alt:
        yield from (f"![{alt}]({short(env_id)}.png)", "")
    yield from (f"[**{env_id}**]({short(env_id)}.md)", "", first_line(env_type(env_id)), "")
    if issubclass(env_type(env_id), VectorTextEnv):
        env = make_text_env(env_id)
        yield fenced("\n".join(env.prompt(env.task(0), 1).splitlines()[:EXCERPT]))
    yield ":::"


def page(env_id: str, caption: str = "") -> str:
    """Return the page of an environment: how to make it, its picture, its docstring, and examples of each preset."""
    made_of = env_type(env_id)
    presets = tuple(getattr(made_of, "presets", ()))
    usual = f"preset `{presets[0]}` by default" if presets else ""
    others = f"; also {', '.join(f'`{one}`' for one in presets[1:])}" if presets[1:] else ""
    lines = [f"# {env_id}", "", f"[Guide](../{guide(env_id)}.md) · [all environments](index.md)", ""]
    lines += [CODE.format(env_id), f"{usual}{others}".capitalize(), ""]
    lines += [f"![{caption}]({short(env_id)}.png)", "", f"*{caption}*", ""] if caption else []
    lines += [described(made_of, level=2), ""]
    if not issubclass(made_of, VectorTextEnv):
        return "\n".join(lines)
    for preset in presets or (None,):
        env = make_text_env(env_id, **({"preset": preset} if preset else {}))
        lines += [f"## Examples{f' of preset {preset}' if preset else ''}", ""]
        lines += [described(type(env), level=3), ""] if type(env) is not made_of else []
        lines += example(env)
    return "\n".join(lines)


def example(env: AnyEnv) -> Iterator[str]:
    """Yield the lines of task 0: the prompt, and a few answers with their vectors."""
    task = env.task(0)
    yield from ("**Task 0**", "", fenced(cut(env.prompt(task, 1))), "")
    good, poorer = answers(env, 0, ANSWERS)
    for title, shown in (("Answers of the exact front:", good), ("A good answer to another task:", poorer)):
        yield from (title, "") if shown else ()
        for answer, vector in shown:
            yield from (fenced(cut(answer)), "", f"{{.vector}}\n{show_vector(env, task, vector)}", "")


def answers(env: AnyEnv, number: int, most: int) -> tuple[list[Answer], list[Answer]]:
    """Return answers of the exact front of a task, and a good answer to the next task; none if no front is known.

    Those of the front are the best one of each objective, that of the best mean, then others, at most ``most``.
    """
    task = env.task(number)
    try:
        front = [(point.answer, tuple(map(float, point.vector))) for point in env.front(task)]
    except UnknownFront:
        return [], []
    active = np.flatnonzero(env.active(task))
    means = [float(np.mean([vector[place] for place in active])) for _, vector in front]
    best = [max(range(len(front)), key=lambda i, one=one: (front[i][1][one], means[i])) for one in active]
    order = dict.fromkeys([*best, int(np.argmax(means)), *range(len(front))])
    other = good_example(env, env.task(number + 1))
    poorer = [(other.answer, score(env, task, other.answer).vector)] if other else []
    return [front[i] for i in order][:most], poorer


def first_line(described_class: type) -> str:
    """Return the first line of a class's docstring."""
    return (inspect.getdoc(described_class) or "").partition("\n")[0].replace("``", "`")


def described(described_class: type, level: int) -> str:
    """Return the docstring of an environment as Markdown, its headings at ``level``, its arguments as a list."""
    text, _, arguments = re.sub(r":[a-z]+:(?=`)", "", inspect.getdoc(described_class) or "").partition("\nArgs:\n")
    text = re.sub(r"^## ", f"{'#' * level} ", text.rstrip(), flags=re.MULTILINE).replace("``", "`")
    if not arguments:
        return text
    entries = re.findall(r"^    (\**\w+): (.+(?:\n     .+)*)", arguments, flags=re.MULTILINE)
    listed = [f"- `{name}`: {' '.join(meaning.split())}".replace("``", "`") for name, meaning in entries]
    return "\n".join([text, "", f"{'#' * level} Arguments", "", *listed])


def fenced(text: str) -> str:
    """Return ``text`` as a Markdown block, in a fence that is longer than any inside."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def guide(env_id: str) -> str:
    """Return the name of the page of docs/ that is about an environment."""
    name = short(env_id).lower()
    candidates = (name, "reward_models" if "reward" in name else "")
    return next((one for one in candidates if one and (DOCS / f"{one}.md").exists()), "environments")


def short(env_id: str) -> str:
    """Return an id without namespace and version."""
    return env_id.removeprefix("vpo/").rpartition("-")[0]


def draw(env_id: str, file: Path) -> str:
    """Draw task 0 of an environment and return what the picture shows; an empty text if there is nothing to draw."""
    made_of = env_type(env_id)
    if "rgb_array" in getattr(made_of, "metadata", {}).get("render_modes", ()):
        env = gym.make(env_id, render_mode="rgb_array")
        env.reset(options={"index": 0})
        if issubclass(made_of, VectorTextEnv):
            text_env = env.unwrapped
            assert isinstance(text_env, VectorTextEnv)
            good = good_example(text_env, text_env.task(0))
            env.step(f"<answer>{good.answer}</answer>" if good else "")
        plt.imsave(file, env.render())
        return "Task 0, and a good answer to it." if issubclass(made_of, VectorTextEnv) else "The start of an episode."
    env = make_text_env(env_id)
    good, poorer = answers(env, 0, DRAWN)
    if not good:
        return ""
    active = np.flatnonzero(env.active(env.task(0)))
    rewards = [[vector[place] for place in active] for _, vector in [*good, *poorer]]
    cells = np.kron(plt.get_cmap("viridis")(np.array(rewards)), np.ones((CELL, CELL, 1)))
    # Transparent lines between the cells.
    cells[::CELL] = 0
    cells[:, ::CELL] = 0
    plt.imsave(file, cells)
    return (
        "Rewards of answers to task 0, from dark for 0 to yellow for 1: a row for each of the exact front, the last one"
        f" for a good answer to another task; columns: {show_objectives([env.objective_names[i] for i in active])}."
    )
