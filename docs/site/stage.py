"""Gather the pages of the site: `python docs/site/stage.py FOLDER`.

The Markdown in docs/ is written to be read in the repository; here it is copied as it is, but for the links that leave
docs/. Added are a start page, which is the README, a page for each environment, which is its section of docs/gallery.md
with a picture, and a reference of the public names of each package.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from vpo_agent.command.show import good_example
from vpo_envs.core import UnknownFront, VectorTextEnv
from vpo_envs.registration import env_ids, env_type, make_text_env

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
OF_THE_PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINKED = ("LICENSE", "CITATION.cff")
PACKAGES = ("vpo_envs", "vpo_agent", "vpo_agent.estimators", "vpo_agent.search", "envs_data")
RESULTS = ("results",)
SEARCH = "test_time_search"
"""Name of docs/search.md on the site, where `search` is Sphinx's own page."""
SHOWN_POINTS = 24
"""Number of points of a front in a picture."""


def main(folder: Path) -> None:
    """Fill ``folder``, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("site", "gallery.md", ".ipynb_checkpoints"))
    for name in (*OF_THE_PROJECT, *LINKED):
        shutil.copy(ROOT / name, folder)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (folder / "index.md").write_text(f"{readme}\n{''.join(toctrees())}", encoding="utf-8")
    for page in folder.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](docs/gallery.md)", "](environments/index.md)")
        text = re.sub(r"\]\((?:docs|\.\.)/", "](", text).replace("](search.md", f"]({SEARCH}.md")
        page.write_text(text, encoding="utf-8")
    (folder / "search.md").rename(folder / f"{SEARCH}.md")
    write_environments(folder / "environments")
    (folder / "api").mkdir()
    described: set[int] = set()
    for name in PACKAGES:
        page = reference(importlib.import_module(name), described)
        (folder / "api" / f"{name}.rst").write_text(page, encoding="utf-8")


def toctrees() -> Iterator[str]:
    """Yield the parts of the navigation, in which every page of docs/ has a place."""
    notebooks = sorted((path.stem for path in DOCS.glob("notebooks/*.ipynb")), key=lambda name: name != "quickstart")
    tasks = sorted({name for env_id in env_ids() if (name := guide(env_id)) != "environments"})
    elsewhere = {*RESULTS, *tasks, "architecture", "environments", "gallery"}
    parts = {
        "Start": [f"notebooks/{name}" for name in notebooks],
        "Guides": sorted({path.stem for path in DOCS.glob("*.md")} - {*elsewhere, "search"} | {SEARCH}),
        "Environments": ["environments", *tasks, "environments/index"],
        "Reference": [*(f"api/{name}" for name in PACKAGES), "architecture"],
        "Results": RESULTS,
        "Project": [name.removesuffix(".md") for name in OF_THE_PROJECT],
    }
    for caption, pages in parts.items():
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def guide(env_id: str) -> str:
    """Return the name of the page of docs/ that is about an environment."""
    name = short(env_id).lower()
    candidates = (name, "compact" if name.endswith("compact") else "", "reward_models" if "reward" in name else "")
    return next((one for one in candidates if (DOCS / f"{one}.md").exists()), "environments")


def short(env_id: str) -> str:
    """Return an id without namespace and version."""
    return env_id.removeprefix("vpo/").rpartition("-")[0]


def write_environments(folder: Path) -> None:
    """Write a page for each environment, and one that lists them with what they have in common."""
    folder.mkdir()
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    # Headings rise by one level, but not lines of the examples that look like headings.
    raised = re.sub(
        r"^(`{3,})\w*\n.*?^\1$|^###", lambda found: found[0] if found[1] else "##", gallery, flags=re.M | re.S
    )
    _, *sections = re.split(r"^## (?=vpo/|Every text environment$)", raised, flags=re.MULTILINE)
    for section in sections:
        env_id, _, text = section.partition("\n")
        if env_id not in env_ids():
            pages = "\n".join(map(short, env_ids()))
            text = f"# {env_id}\n{text}\n```{{toctree}}\n:caption: One by one\n\n{pages}\n```\n"
            (folder / "index.md").write_text(text, encoding="utf-8")
            continue
        first, _, rest = text.lstrip().partition("\n\n")
        picture = f"{short(env_id)}.png"
        caption = draw(env_id, folder / picture)
        lines = [f"# {env_id}", first, f"[Guide](../{guide(env_id)}.md) · [every text environment](index.md)"]
        lines += [f"![{caption}]({picture})", f"*{caption}*"] if caption else []
        (folder / f"{short(env_id)}.md").write_text("\n\n".join([*lines, rest]), encoding="utf-8")


def draw(env_id: str, file: Path) -> str | None:
    """Draw task 0 of an environment and return what the picture shows; ``None`` if there is nothing to draw."""
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
    # Where the objectives conflict, the front has more than one point.
    conflict = "conflict" in getattr(made_of, "presets", ())
    env = make_text_env(env_id, **({"preset": "conflict"} if conflict else {}))
    task = env.task(0)
    try:
        points = sorted((tuple(point.vector) for point in env.front(task)), reverse=True)
    except UnknownFront:
        return None
    shown = points[:SHOWN_POINTS]
    names = [name for name, counts in zip(env.objective_names, env.active(task), strict=True) if counts]
    columns = [index for index, counts in enumerate(env.active(task)) if counts]
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.3 * len(shown)), layout="constrained")
    image = axes.imshow(
        [[vector[i] for i in columns] for vector in shown], vmin=0, vmax=1, cmap="viridis", aspect="auto"
    )
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(shown)), [str(i + 1) for i in range(len(shown))])
    axes.set_ylabel("point of the front")
    figure.colorbar(image, label="reward")
    figure.savefig(file, dpi=110)
    plt.close(figure)
    rest = f"; {SHOWN_POINTS} of {len(points)} points" if len(points) > SHOWN_POINTS else ""
    return f"The exact Pareto front of task 0{' with conflict' * conflict}, best first by the first objective{rest}."


def reference(module: ModuleType, described: set[int]) -> str:
    """Return a page with the docstring of each public name of a package that is not among those described before."""
    name = module.__name__
    about = re.sub(r":\n\n(?=    )", "::\n\n", inspect.getdoc(module) or "")
    lines = [name, "=" * len(name), "", f".. py:module:: {name}", "", about, ""]
    groups: dict[str, list[str]] = {"Classes": [], "Functions": [], "Data": []}
    for public in sorted(set(module.__all__) - {"__version__"}):
        value = getattr(module, public)
        if id(value) in described:
            continue
        described.add(id(value))
        if inspect.isclass(value):
            pages = [env_id for env_id in env_ids() if env_type(env_id) is value]
            body = f":doc:`Its page </environments/{short(pages[0])}>`." if pages else ":members:"
            groups["Classes"] += [f".. autoclass:: {public}", *([""] if pages else []), f"   {body}", ""]
        elif callable(value):
            groups["Functions"] += [f".. autofunction:: {public}", ""]
        else:
            groups["Data"] += [f".. py:data:: {public}", ""]
    for title, entries in groups.items():
        lines += [title, "-" * len(title), "", *entries] if entries else []
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/site/stage.py FOLDER")
    main(Path(sys.argv[1]))
