"""Gather the pages of the site: `python docs/site/stage.py FOLDER`.

The Markdown in docs/ is written to be read in the repository; here it is copied as it is, but for the links that leave
docs/. Added are a start page, the leaderboard (`entries.py`), cards of the environments (`gallery.py`), and a
reference: commands and settings (`commands.py`), and the public names of each package.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from commands import SETTINGS, commands_page, settings_page
from entries import leaderboard
from gallery import environments, with_gallery
from playground import PAGE, rounds, write_playground
from template import DOCS

from vpo_envs.registration import env_type

ROOT = DOCS.parent
OF_THE_PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINKED = ("LICENSE", "CITATION.cff")
PACKAGES = ("vpo_envs", "vpo_agent", "vpo_agent.estimators", "vpo_agent.search", "envs_data")
SEARCH = "test_time_search"
"""Name of docs/search.md on the site, where `search` is Sphinx's own page."""


def main(folder: Path) -> None:
    """Fill ``folder``, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("site", ".ipynb_checkpoints"))
    for name in (*OF_THE_PROJECT, *LINKED):
        shutil.copy(ROOT / name, folder)
    shutil.copy(ROOT / "README.md", folder)
    (folder / "index.md").write_text(landing(), encoding="utf-8")
    for page in folder.glob("*.md"):
        text = re.sub(r"\]\((?:docs|\.\.)/", "](", page.read_text(encoding="utf-8"))
        # Files beside docs/ are in the repository, not on the site.
        text = re.sub(r"\[([^]]+)\]\((?:studies|examples|benchmarks|leaderboard)/[^)]*\)", r"\1", text)
        # These are whole pages of HTML, which Sphinx would offer for download.
        text = re.sub(r"\[([^]]+)\]\(explore/(\w+\.html)\)", r'<a href="_static/\2">\1</a>', text)
        text = text.replace("](search.md", f"]({SEARCH}.md")
        if page.stem == "environments":
            text = "---\nhide-toc: true\n---\n\n" + with_gallery(text)
        page.write_text(text, encoding="utf-8")
    (folder / "search.md").rename(folder / f"{SEARCH}.md")
    (folder / "leaderboard.md").write_text(leaderboard(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    (folder / f"{SETTINGS}.md").write_text(settings_page(), encoding="utf-8")
    write_playground(folder / "explore" / "playground.html", rounds())
    (folder / "playground.md").write_text(PAGE, encoding="utf-8")
    (folder / "api").mkdir()
    described: set[int] = set()
    for name in PACKAGES:
        page = reference(importlib.import_module(name), described)
        (folder / "api" / f"{name}.rst").write_text(page, encoding="utf-8")
    tasks = reference(importlib.import_module("vpo_envs"), described, of_tasks=True)
    (folder / "api" / "tasks.rst").write_text(tasks, encoding="utf-8")


def landing() -> str:
    """Return the start page: what VPO is, commands and code of the README, the live explorer, and where to go."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    fields = {
        "commands": re.findall(r"```sh\nmake .*?```", readme, re.DOTALL)[0],
        "pip": re.findall(r"`pip install torch.*", readme)[0],
        "code": re.findall(r"```python\n.*?```", readme, re.DOTALL)[0],
        "repository": "".join(f" · [Repository]({url})" for url in repository()),
    }
    text = (DOCS / "site" / "landing.md").read_text(encoding="utf-8")
    return re.sub("@([a-z]+)@", lambda field: fields[field[1]], text) + "".join(toctrees())


def repository() -> list[str]:
    """Return the address of the repository, if ``pyproject.toml`` names one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [url for name, url in project.get("urls", {}).items() if name == "Repository"]


def toctrees() -> Iterator[str]:
    """Yield the parts of the navigation, in the order of a journey; Sphinx refuses a page without a place."""
    pages = list(dict.fromkeys(listed.page for listed in environments()))
    parts = {
        "See it": ["Overview <README>", "concepts", "playground", "notebooks/quickstart"],
        "Use an environment": ["environments", *pages, "blind"],
        "Your rewards": ["functions", "own_environment", "notebooks/own_rewards", "check"],
        "Train": ["when_a_vector_pays", "training", "own_loop", "methods", "pretrained", "scaling", "adapters"],
        "Evaluate": ["evaluation", "answers", "endpoints", "bench", "leaderboard"],
        "Search": [SEARCH, "serving"],
        "Results": ["results", "more_results", "results_tables", "what_did_not_work", "costs"],
        "Reference": [
            "commands",
            SETTINGS,
            "metrics",
            *(f"api/{name}" for name in PACKAGES),
            "api/tasks",
            "architecture",
        ],
        "Project": [name.removesuffix(".md") for name in OF_THE_PROJECT],
    }
    for caption, names in parts.items():
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"


def reference(module: ModuleType, described: set[int], of_tasks: bool = False) -> str:
    """Return a page with the docstring of each public name of a package that is not among those described before.

    The names of single tasks, which are many, have a page of their own.
    """
    name = module.__name__
    title = f"{name}: the tasks" if of_tasks else name
    about = re.sub(r":\n\n(?=    )", "::\n\n", inspect.getdoc(module) or "")
    lines = [title, "=" * len(title), "", f".. py:{'current' * of_tasks}module:: {name}", ""]
    lines += [] if of_tasks else [about, ""]
    groups: dict[str, list[str]] = {"Classes": [], "Functions": [], "Data": []}
    for public in sorted(set(module.__all__) - {"__version__"}):
        value = getattr(module, public)
        is_of_tasks = getattr(value, "__module__", "").startswith("vpo_envs.tasks.")
        if id(value) in described or is_of_tasks != of_tasks:
            continue
        described.add(id(value))
        if inspect.isclass(value):
            pages = [listed.page for listed in environments() if env_type(listed.env_id) is value]
            body = f":doc:`Its page </{pages[0]}>`." if pages else ":members:"
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
