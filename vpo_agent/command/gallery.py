"""Writes the page of every environment, with examples: ``python -m vpo_agent.command.gallery > docs/gallery.md``."""

from __future__ import annotations

import inspect
import re

from vpo_agent.command.show import good_example, show_vector
from vpo_envs.core import VectorTextEnv
from vpo_envs.registration import env_ids, env_type, make_text_env, text_env_ids
from vpo_envs.scoring.scorers import AnyEnv
from vpo_envs.wording import cut

EXAMPLES = 3
HEADING = """\
# The environments, with examples

Each environment as its class describes it, and the first three tasks of each text environment as a model sees them,
with default arguments and with `preset="compact"` where there is one, one answer wanted, and the best answer by the
task's scalar weights. Long prompts are cut where no tag is lost. Made by
`python -m vpo_agent.command.gallery > docs/gallery.md`; a test compares.
"""


def gallery() -> str:
    """Return the whole page, in Markdown."""
    in_text = text_env_ids()
    return "\n".join([HEADING, shared_section(), *(section(env_id, env_id in in_text) for env_id in env_ids())])


def shared_section() -> str:
    """Return what all text environments have in common, which their own docstrings do not repeat."""
    return f"## Every text environment\n\n{page(inspect.getdoc(VectorTextEnv) or '')}\n"


def section(env_id: str, in_text: bool) -> str:
    """Return the section of one environment: the docstring of its class, and examples if it takes text."""
    described = page(inspect.getdoc(env_type(env_id)) or "")
    lines = [f"## {env_id}", "", described, ""]
    if not in_text:
        return "\n".join(lines)
    lines += examples(env_id, make_text_env(env_id))
    if "compact" in getattr(env_type(env_id), "presets", ()):
        env, title = make_text_env(env_id, preset="compact"), f"{env_id}, preset compact"
        if type(env) is not env_type(env_id):
            described = page(inspect.getdoc(env) or "").replace("### ", "#### ")
            lines += [f"### {title}", "", described, ""]
        lines += examples(title, env)
    return "\n".join(lines)


def examples(title: str, env: AnyEnv) -> list[str]:
    """Return the lines of the first tasks of an environment, each with a good answer."""
    lines: list[str] = []
    for index in range(EXAMPLES):
        task = env.task(index)
        lines += [f"### {title}, task {index}", "", fenced(cut(env.prompt(task, 1))), ""]
        good = good_example(env, task)
        if good is not None:
            vector = show_vector(env, task, good.vector)
            lines += ["A good answer:", "", fenced(cut(good.answer)), "", f"Its vector: {vector}.", ""]
    return lines


def page(docstring: str) -> str:
    """Return the docstring of an environment as Markdown, one heading level down, with its arguments as a list."""
    text, _, arguments = re.sub(r":[a-z]+:(?=`)", "", docstring).partition("\nArgs:\n")
    text = re.sub(r"^## ", "### ", text.rstrip(), flags=re.MULTILINE).replace("``", "`")
    if not arguments:
        return text
    entries = re.findall(r"^    (\**\w+): (.+(?:\n     .+)*)", arguments, flags=re.MULTILINE)
    listed = [f"- `{name}`: {' '.join(meaning.split())}".replace("``", "`") for name, meaning in entries]
    return "\n".join([text, "", "### Arguments", "", *listed])


def fenced(text: str) -> str:
    """Return ``text`` as a Markdown block, in a fence that is longer than any inside."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


if __name__ == "__main__":
    print(gallery(), end="")
