"""Sphinx's settings for the site; `stage.py` gathers the pages."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
from sphinx.application import Sphinx
from sphinx.config import Config

import vpo_agent.search
from vpo_envs import __version__

# autodoc annotates the base class of pydantic models, and pydantic refuses models that are defined after that: all are
# defined here.
for package in (vpo_agent, vpo_agent.search):
    for public in package.__all__:
        getattr(package, public)

project = "VPO Gym"
release = __version__
html_title = f"VPO Gym {release}"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_copy_source = False
html_static_path = ["site.css", "site.js"]
html_css_files = ["site.css"]
html_favicon = "icon.svg"
html_js_files = ["site.js"]
html_show_copyright = False

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "colon_fence"]
# Notebooks hold the output of their last run; a test runs them.
nb_execution_mode = "off"

LANDMARKS = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<th class="head"><p></p></th>': "<td></td>",
    '<div id="search-results"></div>': '<h1>Search</h1><div id="search-results"></div>',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
}

# Single backticks are code, as in Markdown.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "model_config"}
autodoc_type_aliases = {"NDArray": "NDArray"}


def describe_environment(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Keep the first line and the arguments of an environment, whose docstring is a page of Markdown elsewhere."""
    if what == "class" and isinstance(thing, type) and issubclass(thing, gym.Env | gym.vector.VectorEnv):
        text = "\n".join(lines)
        pages = text.find("\n## ")
        arguments = max(text.find("\n:param"), text.find("\n:Parameters:"))
        if pages >= 0:
            lines[:] = [*text[:pages].splitlines(), "", *text[arguments:].splitlines() * (arguments > pages), ""]


def leave_out_aliases(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Remove what Python says of the field of a named tuple that has no description: its number."""
    lines[:] = [line for line in lines if not line.startswith("Alias for field number")]


def add_live_pages(app: Sphinx, config: Config) -> None:
    """Copy the pages of `vpo explore`, and the playground, which `stage.py` puts beside them."""
    config.html_static_path.append(str(app.srcdir / "explore"))


def name_landmarks(app: Sphinx, exception: Exception | None) -> None:
    """Give screen readers what is left out: levels of the captions, names of the side bars, headings that are empty."""
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for plain, named in LANDMARKS.items():
            text = text.replace(plain, named)
        page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("build-finished", name_landmarks)
    app.connect("config-inited", add_live_pages)
    app.connect("autodoc-process-docstring", leave_out_aliases)
    # After napoleon, whose priority is 500.
    app.connect("autodoc-process-docstring", describe_environment, 900)
