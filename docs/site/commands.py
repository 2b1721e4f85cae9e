"""The pages of all commands with their options, and of all settings of a training run, made from the parsers."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from vpo_agent.command import make_parser
from vpo_agent.command.options import settings_parser
from vpo_agent.command.parser import Parser
from vpo_agent.command.train import DESCRIPTION
from vpo_agent.config import GROUPS, MAY_CHANGE_ON_RESUME, TrainConfig
from vpo_agent.pages.page import markdown_table
from vpo_agent.presets import ALL

SETTINGS = "settings"
"""Name of the page of settings."""


def commands_page() -> str:
    """Return the page of all commands: what each does, its arguments and its options."""
    lines = ["# Commands", "", "Each command prints the same with `--help`."]
    for name, parser in command_parsers().items():
        lines += ["", f"## vpo {name}", "", prose(parser.description or "")]
        for group in parser._action_groups:
            actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
            rows = [row for action in actions if not is_setting(name, action) for row in option_rows(action)]
            if not rows:
                continue
            if group.title not in ("options", "positional arguments"):
                lines += ["", prose(f"{group.title}: {group.description or ''}".rstrip(": ")) + ":"]
            lines += ["", markdown_table(("argument", "meaning"), rows, "ll")]
        if name == "train":
            lines += ["", f"Every [setting]({SETTINGS}.md) is an option as well: `learning_rate` is `--learning-rate`."]
    return "\n".join(lines) + "\n"


def command_parsers() -> dict[str, Parser]:
    """Return the parser of each command, with all its options declared."""
    parsers = {}
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers = dict(action.choices)
    for parser in parsers.values():
        if parser.declare is not None:
            parser.declare(parser)
    parsers["train"] = settings_parser("vpo train", DESCRIPTION, ALL, next(iter(ALL)))
    return parsers


def is_setting(command: str, action: argparse.Action) -> bool:
    """Return whether an option of a command is on the page of settings."""
    options = {f"--{name.replace('_', '-')}" for name in TrainConfig.model_fields}
    return command == "train" and not options.isdisjoint(action.option_strings)


def option_rows(action: argparse.Action) -> Iterator[list[str]]:
    """Yield the row of an argument: how it is written, and what it means; none for the help."""
    if isinstance(action, argparse._HelpAction):
        return
    if action.option_strings:
        formatter = argparse.HelpFormatter("vpo")
        default = formatter._get_default_metavar_for_optional(action)
        value = "" if action.nargs == 0 else formatter._format_args(action, default)
        shown = f"{', '.join(action.option_strings)} {value}".strip()
    else:
        shown = str(action.metavar or action.dest)
    needed = "required: " if action.required and action.option_strings else ""
    yield [f"`{shown}`", needed + prose((action.help or "").replace("%%", "%"))]


def settings_page() -> str:
    """Return the page of all settings of a run, and of what each preset sets."""
    lines = [
        "# Settings of a training run",
        "",
        "`vpo train` takes each setting as an option, with `-` for `_`. A file for `--config`, the `config.json` of a "
        "run and `vpo_agent.make_config({…})` have them by name. A setting that *may change* can be given anew with "
        "`--resume`.",
    ]
    for group, fields in GROUPS.items():
        rows = []
        for name in fields.model_fields:
            field = TrainConfig.model_fields[name]
            default = field.get_default(call_default_factory=True)
            shown = [f"`{name}`", kind(field), f"`{written(default)}`", prose(field.description or "")]
            rows.append([*shown, "yes" if name in MAY_CHANGE_ON_RESUME else ""])
        about = prose(f"{fields.__doc__}.")
        lines += ["", f"## {group}", "", about[0].upper() + about[1:], ""]
        lines.append(markdown_table(("setting", "kind", "default", "meaning", "may change"), rows, "lllll"))
    lines += ["", "## Presets", "", "What `vpo train --preset NAME` sets beside the defaults:", ""]
    rows = []
    for name, settings in ALL.items():
        values = [f"`{key}={written(value)}`" for key, value in settings.items() if key != "env"]
        rows.append([f"`{name}`", f"`{settings['env']}`", ", ".join(values)])
    lines.append(markdown_table(("preset", "environment", "settings"), rows, "lll"))
    return "\n".join(lines) + "\n"


def kind(field: FieldInfo) -> str:
    """Return the type of a setting as it is written in Python, with its bounds."""
    annotation = field.annotation
    text = annotation.__name__ if isinstance(annotation, type) and "[" not in str(annotation) else str(annotation)
    bounds = [
        f"{words} {getattr(bound, name)}"
        for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
        for bound in field.metadata
        if hasattr(bound, name)
    ]
    return ", ".join([f"`{text.replace('typing.', '')}`", *bounds])


def written(value: Any) -> str:
    """Return a value as a settings file in JSON writes it; none where nothing is set."""
    return "none" if value is None else json.dumps(value) if isinstance(value, dict | list | bool) else str(value)


def prose(text: str) -> str:
    """Return text of a help message in Markdown: what looks like markup stands for itself."""
    return re.sub(r"([\\<>*_`\[\]])", r"\\\1", " ".join(text.split()))
