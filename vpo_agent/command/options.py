"""Command-line options made from the settings, so that ``--help`` and the configuration cannot disagree."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from vpo_agent.command.parser import (
    Parser,
    add_accept_option,
    add_import_option,
    add_method_option,
    add_trust_option,
    json_list,
    json_object,
)
from vpo_agent.command.rewards import add_rewards_options, with_own_rewards
from vpo_agent.config import CONFIG_FILE, DEFAULT_RUNS_DIR, FRESH, GROUPS, Job, TrainConfig, make_config, read_config
from vpo_agent.estimators.choices import settings_for_search
from vpo_agent.policy.downloads import check_saved_model
from vpo_envs.common.imports import import_modules, is_imported
from vpo_envs.common.paths import path_of
from vpo_envs.common.trust import trust
from vpo_envs.common.wording import did_you_mean
from vpo_envs.registration import check_saved_arguments

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

    The first preset is the default. ``program`` is the command's name in ``--help``; by default it is the name of the
    script. A bad setting is a ValueError.
    """
    default_preset = next(iter(presets))
    parser = settings_parser(program, description, presets, default_preset)
    arguments = vars(parser.parse_args(argv))
    preset, config_file = arguments.pop("preset"), arguments.pop("config")
    resume, overwrite = arguments.pop("resume"), arguments.pop("overwrite")
    accept_changes = arguments.pop("accept_changes")
    trust(arguments.pop("trusted"))
    if resume and overwrite:
        raise ValueError("--resume and --overwrite are mutually exclusive: give only one")
    if accept_changes and not resume:
        raise ValueError("--accept-changes is for a run that is continued: add --resume, or leave it out")
    if preset is not None and preset not in presets:
        hint = did_you_mean(preset, presets)
        raise ValueError(f"unknown preset {preset!r}: {hint}choose one of {', '.join(presets)}")
    has_own_rewards = arguments["rewards"] is not None
    arguments = with_own_rewards(arguments)
    if has_own_rewards and preset is not None:
        raise ValueError(f"--preset {preset} is for another environment than --rewards: leave one of them out")
    given = {name: typed(TrainConfig, name, value) for name, value in arguments.items() if value not in (None, [])}

    resumes_by_name = resume and preset is None and config_file is None and given.get("name") is not None
    if resumes_by_name:
        runs_dir = given.get("runs_dir", presets[default_preset].get("runs_dir", DEFAULT_RUNS_DIR))
        config_file = Path(runs_dir) / given["name"] / CONFIG_FILE
        if not config_file.is_file():
            raise ValueError(
                f"there is no run to resume in {str(config_file.parent)!r}: give another --name or --runs-dir, or "
                "leave --resume out"
            )
    in_file = read_config(config_file) if config_file is not None else {}
    if resumes_by_name:
        # A run that was moved, or that somebody else made, states another folder.
        in_file["runs_dir"] = str(runs_dir)
    values = _merged(_preset_settings(presets, preset, {**in_file, **given}), in_file, given)

    # Modules may register an estimator as well, which the settings are checked against. A settings file of --config is
    # asked for. A saved run may come from anybody: its modules are not imported unless they are given again.
    import_modules((given if resumes_by_name else values).get("imports", []))
    if resumes_by_name:
        refuse_unasked(values, given, "the run")
    if has_own_rewards and "model" not in values:
        raise ValueError(
            "--rewards needs --model: a pretrained model such as models/SmolLM2-135M-Instruct.Q4_1.gguf (make "
            "smollm2), or a model that vpo warm-start taught these prompts"
        )
    source = "the settings" if config_file is None else f"the settings, including {str(config_file)!r}"
    return Job(make_config(values, source), resume, overwrite, accept_changes)


def _preset_settings(
    presets: Mapping[str, Mapping[str, Any]], name: str | None, changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the settings of a preset; by default the first, unless ``changes`` name another environment."""
    if name is not None:
        return presets[name]
    first = next(iter(presets.values()))
    return first if {**first, **changes}.get("env") == first.get("env") else {}


def _merged(preset: Mapping[str, Any], in_file: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a preset, overridden by a file and then by the command line."""
    method_options = dict(given.get("method_options", []))
    given = {name: value for name, value in given.items() if name != "method_options"}
    values = _with_changes(_with_changes(preset, in_file), given)
    if method_options:
        values["method_options"] = {**values.get("method_options", {}), **method_options}
    if "imports" in given:
        # A file that a saved run names may have moved since, and be given anew.
        saved = [module for module in in_file.get("imports", []) if not _is_missing_file(module)]
        values["imports"] = [*saved, *given["imports"]]
    return values


def _with_changes(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` overridden by ``changes``; settings that follow from a changed setting change with it."""
    values = {**settings, **changes}
    if budget := settings.get("search_budget"):
        # These followed from the budget and the rollouts. `TrainConfig` derives them anew from the changed ones.
        derived = settings_for_search(budget, {}, settings.get("rollouts_per_prompt", ROLLOUTS))
        for name, value in derived.items():
            if name not in changes and values.get(name) == value:
                del values[name]
    method = settings.get("method")
    if changes.get("method", method) != method and "method_options" not in changes:
        values.pop("method_options", None)
    prompts, minibatch = changes.get("prompts_per_step"), settings.get("minibatch_prompts")
    if minibatch and "minibatch_prompts" not in changes and isinstance(prompts, int):
        values["minibatch_prompts"] = max(1, round(prompts * minibatch / settings.get("prompts_per_step", prompts)))
    return values


def _is_missing_file(module: str) -> bool:
    return module.endswith(".py") and not path_of(module).is_file()


def refuse_unasked(settings: Mapping[str, Any], given: Mapping[str, Any], owner: str) -> None:
    """Raise ValueError if saved settings choose what the user has to ask for.

    Args:
        settings: Saved settings, overridden by options of the command line; modules that these options name are
            imported.
        given: Settings that the user chose on the command line.
        owner: What the settings are saved in, for messages.
    """
    saved = {name: value for name, value in settings.items() if name not in given}
    env_module, _, env_id = str(saved.get("env", "")).rpartition(":")
    needed = dict.fromkeys([*settings.get("imports", []), env_module])
    unasked = [module for module in needed if module and not is_imported(module)]
    if unasked:
        options = " ".join(f"--import {shlex.quote(module)}" for module in unasked)
        raise ValueError(
            f"{owner} needs {' and '.join(unasked)}, which runs only if you ask for it: add {options}, "
            "or the place that it has moved to"
        )
    if env_id and "env_kwargs" in saved:
        check_saved_arguments(env_id, saved["env_kwargs"])
    if saved.get("model", FRESH) != FRESH:
        check_saved_model(saved["model"], owner)


def settings_parser(
    program: str | None, description: str, presets: Mapping[str, Mapping[str, Any]], default_preset: str
) -> Parser:
    """Return a parser with an option for each setting; help states the defaults of the default preset."""
    parser = Parser(
        prog=program,
        usage="%(prog)s [--preset NAME] [--config FILE] [--resume [--accept-changes] | --overwrite] "
        "[--SETTING VALUE ...]",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help=f"settings to start from: {', '.join(presets)} (default: {default_preset}, which gives the "
        "defaults below; no preset if --env or --config names another environment)",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML or JSON file of settings, over the preset")
    parser.add_argument("--resume", action="store_true", help="continue the run --name from its last checkpoint")
    add_accept_option(parser)
    parser.add_argument("--overwrite", action="store_true", help="delete what the run folder holds and start again")
    add_rewards_options(parser)
    for group, fields in GROUPS.items():
        section = parser.add_argument_group(f"{group}: {fields.__doc__}")
        for name, field in fields.model_fields.items():
            if name == "imports":
                add_import_option(section)
                add_trust_option(section)
                continue
            default = presets[default_preset].get(name, field.get_default(call_default_factory=True))
            help_text = f"{field.description} (default: {_shown(default)})".replace("%", "%%")
            option, annotation = "--" + name.replace("_", "-"), str(field.annotation)
            if name == "method_options":
                help_text = help_text.replace("options of", "an option of").replace(", by name", "; may be repeated")
                add_method_option(section, help_text)
            elif field.annotation is bool:  # A switch may stand alone, or with true or false.
                section.add_argument(option, nargs="?", const="true", metavar="{true,false}", help=help_text)
            else:
                reader: Callable[[str], Any] = str
                if "dict" in annotation:
                    reader = json_object
                elif "list" in annotation:
                    reader = _list_or_none
                section.add_argument(option, type=reader, metavar=value_kind(field.annotation), help=help_text)
    return parser


def value_kind(annotation: Any) -> str:
    """Return the placeholder that help shows for the value of a setting: its choices, or a word for its type."""
    if get_origin(annotation) is Literal:
        return "{" + ",".join(get_args(annotation)) + "}"
    text = str(annotation)
    if "'auto'" in text:
        return "{N,auto}"
    words = {"dict": "JSON", "list": "N,…", "str": "TEXT", "Path": "PATH", "float": "NUMBER", "int": "N"}
    return next(word for part, word in words.items() if part in text)


def _list_or_none(text: str) -> Any:
    try:
        return text if text.lower() == "none" else json_list(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"must be numbers separated by commas, such as 1,3; got {text!r}") from None


def typed(kind: type[BaseModel], name: str, value: Any) -> Any:
    """Return the value of the setting ``name`` of ``kind``, given as text; the text itself if it is not of its type."""
    annotation: Any = kind.model_fields[name].annotation
    if isinstance(value, str) and value.lower() == "none" and "None" in str(annotation):
        return None
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return value


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return json.dumps(default) if isinstance(default, dict | list | bool) else str(default)
