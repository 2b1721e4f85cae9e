"""Command-line options made from the settings, so that ``--help`` and the configuration cannot disagree."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from vpo_agent.command.parser import Parser, add_import_option, add_method_option, json_list, json_object
from vpo_agent.command.rewards import add_rewards_options, own_rewards
from vpo_agent.config import CONFIG_FILE, DEFAULT_RUNS_DIR, GROUPS, Job, TrainConfig, make_config, read_config
from vpo_agent.estimators.choices import settings_for_search
from vpo_envs.common.imports import import_modules, is_imported
from vpo_envs.common.wording import did_you_mean

ROLLOUTS: int = TrainConfig.model_fields["rollouts_per_prompt"].default


def parse_job(
    argv: Sequence[str] | None,
    *,
    description: str,
    presets: Mapping[str, Mapping[str, Any]],
    program: str | None = None,
) -> Job:
    """Read a training command line.

    Later sources win: the defaults, the preset, ``--config FILE``, the options. The default preset does not apply
    if a file or an option names another environment. With ``--resume`` and neither ``--preset`` nor ``--config``, the
    resumed run's own ``config.json`` replaces both.

    The first preset is the default. ``program``, the command's name in ``--help``, is that of the script by default.
    A bad setting is a ValueError.
    """
    default = next(iter(presets))
    usual = presets[default]
    parser = settings_parser(program, description, presets, default)
    given = {name: value for name, value in vars(parser.parse_args(argv)).items() if value not in (None, [])}
    preset, config_file = given.pop("preset", None), given.pop("config", None)
    resume, overwrite = given.pop("resume"), given.pop("overwrite")
    if resume and overwrite:
        raise ValueError("--resume and --overwrite are mutually exclusive: give only one")
    if preset is not None and preset not in presets:
        hint = did_you_mean(preset, presets)
        raise ValueError(f"unknown preset {preset!r}: {hint}choose one of {', '.join(presets)}")
    own = own_rewards(given)
    if own and preset is not None:
        raise ValueError(f"--preset {preset} is for another environment than that of --rewards: leave one of them out")
    given = {name: typed(TrainConfig, name, value) for name, value in {**given, **own}.items()}
    saved_run = resume and preset is None and config_file is None and given.get("name") is not None
    if saved_run:
        config_file = Path(given.get("runs_dir", usual.get("runs_dir", DEFAULT_RUNS_DIR))) / given["name"] / CONFIG_FILE
        if not config_file.is_file():
            raise ValueError(f"there is no run to resume in {str(config_file.parent)!r}")
    in_file = read_config(config_file) if config_file is not None else {}
    base = presets[preset] if preset is not None else usual
    if preset is None and {**base, **in_file, **given}.get("env") != base.get("env"):
        base = {}
    options_of_method = dict(given.pop("method_options", []))
    values = _layered(_layered(base, in_file), given)
    if options_of_method:
        values["method_options"] = {**values.get("method_options", {}), **options_of_method}
    if "imports" in given:
        # The file that a saved run names may have moved, and be given anew.
        kept = [
            one for one in in_file.get("imports", []) if not one.endswith(".py") or Path(one).expanduser().is_file()
        ]
        values["imports"] = [*kept, *given["imports"]]
    # Modules may register an estimator as well, which the settings are checked against. A settings file of --config is
    # asked for; a saved run may come from anybody, and what it names is not imported unasked.
    import_modules((given if saved_run else values).get("imports", []))
    if saved_run:
        needed = dict.fromkeys([*values.get("imports", []), values.get("env", "").rpartition(":")[0]])
        if unasked := [one for one in needed if one and not is_imported(one)]:
            options = " ".join(f"--import {one}" for one in unasked)
            raise ValueError(
                f"the run needs {' and '.join(unasked)}, which runs only if you ask for it: add {options}, "
                "or the place that it has moved to"
            )
    if own and "model" not in values:
        raise ValueError(
            "--rewards needs --model: one such as models/SmolLM2-135M-Instruct.Q4_1.gguf (make smollm2), "
            "or one that vpo warm-start taught these prompts"
        )
    source = "the settings" if config_file is None else f"the settings, with those of {str(config_file)!r}"
    return Job(make_config(values, source), resume, overwrite)


def settings_parser(
    program: str | None, description: str, presets: Mapping[str, Mapping[str, Any]], usual: str
) -> Parser:
    """Return a parser with an option for each setting; help states the defaults of the preset ``usual``."""
    parser = Parser(
        prog=program,
        usage="%(prog)s [--preset NAME] [--config FILE] [--resume | --overwrite] [--SETTING VALUE ...]",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help=f"settings to start from: {', '.join(presets)} (default: {usual}, unless --env or "
        "--config names another environment)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML or JSON settings, over the preset's")
    parser.add_argument("--resume", action="store_true", help="continue the run --name from its last checkpoint")
    parser.add_argument("--overwrite", action="store_true", help="delete what the run folder holds and start again")
    add_rewards_options(parser)
    for group, fields in GROUPS.items():
        section = parser.add_argument_group(f"{group}: {fields.__doc__}")
        for name, field in fields.model_fields.items():
            if name == "imports":
                add_import_option(section)
                continue
            default = presets[usual].get(name, field.get_default(call_default_factory=True))
            help_text = f"{field.description} (default: {_shown(default)})".replace("%", "%%")
            option, annotation = "--" + name.replace("_", "-"), str(field.annotation)
            if name == "method_options":
                help_text = help_text.replace("options of", "an option of").replace(", by name", "; may be repeated")
                add_method_option(section, help_text)
            elif field.annotation is bool:  # A switch may stand alone, or with true or false.
                section.add_argument(option, nargs="?", const="true", metavar="VALUE", help=help_text)
            else:
                kind = json_object if "dict" in annotation else _list_or_none if "list" in annotation else str
                section.add_argument(option, type=kind, metavar="VALUE", help=help_text)
    return parser


def _list_or_none(text: str) -> Any:
    try:
        return text if text.lower() == "none" else json_list(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"must be numbers separated by commas, such as 1,3; got {text!r}") from None


def typed(kind: type[BaseModel], name: str, value: Any) -> Any:
    """Return the value of a setting of ``kind``, given as text; the text itself if it is no value of that type."""
    annotation: Any = kind.model_fields[name].annotation
    if isinstance(value, str) and value.lower() == "none" and "None" in str(annotation):
        return None
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return value


def _layered(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes`` over it; settings that depend on a changed one follow it."""
    values = {**base, **changes}
    if budget := base.get("search_budget"):
        # What follows from the budget follows from that of the changes, and from their rollouts.
        followed = settings_for_search(budget, {}, base.get("rollouts_per_prompt", ROLLOUTS))
        values = {name: one for name, one in values.items() if name in changes or followed.get(name, ...) != one}
    if changes.get("method", base.get("method")) != base.get("method") and "method_options" not in changes:
        values.pop("method_options", None)
    prompts, minibatch = changes.get("prompts_per_step"), base.get("minibatch_prompts")
    if minibatch and "minibatch_prompts" not in changes and isinstance(prompts, int):
        values["minibatch_prompts"] = max(1, round(prompts * minibatch / base.get("prompts_per_step", prompts)))
    return values


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return json.dumps(default) if isinstance(default, dict | list | bool) else str(default)
