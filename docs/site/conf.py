"""Sphinx's settings for the site; `stage.py` gathers the pages."""

from __future__ import annotations

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
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_copyright = False

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "colon_fence"]
# Notebooks hold the output of their last run; a test runs them.
nb_execution_mode = "off"

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


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    app.connect("config-inited", add_live_pages)
    app.connect("autodoc-process-docstring", leave_out_aliases)
    # After napoleon, whose priority is 500.
    app.connect("autodoc-process-docstring", describe_environment, 900)
