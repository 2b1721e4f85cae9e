"""The pages of the environments, made from their docstrings and from what they give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from vpo_agent.command.show import good_example, show_vector
from vpo_envs.core import UnknownFront, VectorTextEnv
from vpo_envs.registration import env_ids, env_type, make_text_env
from vpo_envs.scoring import AnyEnv
from vpo_envs.wording import cut

DOCS = Path(__file__).resolve().parents[1]
EXAMPLES = 2
SHOWN_POINTS = 24
"""Number of points of a front in a picture."""


def write_environments(folder: Path) -> None:
    """Write a page with a picture for each environment, and ``index.md``, which lists them."""
    folder.mkdir()
    (folder / "index.md").write_text(index(), encoding="utf-8")
    for env_id in env_ids():
        caption = draw(env_id, folder / f"{short(env_id)}.png")
        (folder / f"{short(env_id)}.md").write_text(page(env_id, caption), encoding="utf-8")


def index() -> str:
    """Return the page that lists the environments, with what all text environments have in common."""
    rows = [f"| [{one}]({short(one)}.md) | {first_line(env_type(one))} |" for one in env_ids()]
    pages = "\n".join(map(short, env_ids()))
    return "\n".join(
        [
            *("# All environments", "", "| id | task |", "|---|---|", *rows, ""),
            *("## Every text environment", "", described(VectorTextEnv, level=3), ""),
            f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n",
        ]
    )


def page(env_id: str, caption: str = "") -> str:
    """Return the page of an environment: how to make it, its picture, its docstring, and examples of each preset."""
    made_of = env_type(env_id)
    presets = tuple(getattr(made_of, "presets", ()))
    usual = f"preset `{presets[0]}` by default" if presets else ""
    others = f"; also {', '.join(f'`{one}`' for one in presets[1:])}" if presets[1:] else ""
    lines = [f"# {env_id}", "", f"[Guide](../{guide(env_id)}.md) · [all environments](index.md)", ""]
    lines += [f'```python\nenv = gym.make("{env_id}")\n```', "", f"{usual}{others}".capitalize(), ""]
    lines += [f"![{caption}]({short(env_id)}.png)", "", f"*{caption}*", ""] if caption else []
    lines += [described(made_of, level=2), ""]
    if not issubclass(made_of, VectorTextEnv):
        return "\n".join(lines)
    for preset in presets or (None,):
        env = make_text_env(env_id, **({"preset": preset} if preset else {}))
        lines += [f"## Examples{f' of preset {preset}' if preset else ''}", ""]
        lines += [described(type(env), level=3), ""] if type(env) is not made_of else []
        lines += [line for number in range(EXAMPLES) for line in example(env, number)]
    return "\n".join(lines)


def example(env: AnyEnv, number: int) -> Iterator[str]:
    """Yield the lines of one task: the prompt, a good answer, and its vector."""
    task = env.task(number)
    yield from (f"**Task {number}**", "", fenced(cut(env.prompt(task, 1))), "")
    if good := good_example(env, task):
        yield from ("A good answer:", "", fenced(cut(good.answer)), "")
        yield from (f"Its vector: {show_vector(env, task, good.vector)}.", "")


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
    task = env.task(0)
    try:
        points = sorted((tuple(point.vector) for point in env.front(task)), reverse=True)
    except UnknownFront:
        return ""
    shown = points[:SHOWN_POINTS]
    names = [name for name, counts in zip(env.objective_names, env.active(task), strict=True) if counts]
    columns = [index for index, counts in enumerate(env.active(task)) if counts]
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.3 * len(shown)), layout="constrained")
    image = axes.imshow(
        [[vector[i] for i in columns] for vector in shown], vmin=0, vmax=1, cmap="viridis", aspect="auto"
    )
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(shown)), [str(i + 1) for i in range(len(shown))])
    axes.set_ylabel("answer of the front")
    figure.colorbar(image, label="reward")
    figure.savefig(file, dpi=110)
    plt.close(figure)
    rest = f"; {SHOWN_POINTS} of {len(points)} points" if len(points) > SHOWN_POINTS else ""
    return f"The exact Pareto front of task 0: a row for each answer, a column for each objective{rest}."
