"""Command-line options made from the settings, so that ``--help`` and the configuration cannot disagree."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vpo_agent.config import DEFAULT_RUNS_DIR, Job, TrainConfig, make_config, read_config
from vpo_agent.errors import RunStopped

_NO_BREAK = "\N{NO-BREAK SPACE}"


def parse_job(
    argv: Sequence[str] | None,
    *,
    description: str,
    presets: Mapping[str, Mapping[str, Any]],
    default_preset: str,
    program: str | None = None,
) -> Job:
    """Read a training command line.

    Later sources win: the defaults, the preset, ``--config FILE``, the options. With ``--resume`` and neither
    ``--preset`` nor ``--config``, the resumed run's own ``config.json`` stands in their place.

    Args:
        argv: Arguments; those of the process where ``None``.
        description: Shown on top of ``--help``.
        presets: Settings by preset name.
        default_preset: The preset where none is named.
        program: How ``--help`` calls the command; the script's name where ``None``.

    Raises:
        ValueError: A bad setting, in one sentence.
    """
    parser = _Parser(prog=program, description=description, formatter_class=_HelpFormatter, allow_abbrev=False)
    preset_help = f"settings to start from: {', '.join(presets)} (default: {default_preset})"
    parser.add_argument("--preset", default=None, metavar="NAME", help=preset_help)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings from a .json or .toml file, over the preset's"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run --name from its last checkpoint")
    parser.add_argument("--overwrite", action="store_true", help="delete what the run folder holds and start again")
    settings = parser.add_argument_group("settings")
    shown = presets[default_preset]
    options = []
    for name, field in TrainConfig.model_fields.items():
        default = shown.get(name, field.get_default(call_default_factory=True))
        options.append("--" + name.replace("_", "-"))
        # A switch may stand alone, or with true or false.
        alone: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        settings.add_argument(
            options[-1],
            metavar="VALUE",
            default=None,
            help=f"{field.description} (default:{_NO_BREAK}{_shown(default)})".replace("%", "%%"),
            **alone,
        )
    known, unknown = parser.parse_known_args(argv)
    if unknown:
        near = difflib.get_close_matches(unknown[0].split("=")[0], options, n=1)
        hint = f"did you mean {near[0]}?" if near else "see --help for all of them"
        raise ValueError(f"unknown argument {unknown[0]!r}: {hint}")
    arguments = vars(known)
    preset, config_file = arguments.pop("preset"), arguments.pop("config")
    resume, overwrite = arguments.pop("resume"), arguments.pop("overwrite")
    if resume and overwrite:
        raise ValueError("--resume and --overwrite exclude each other: give one of them")
    if preset is not None and preset not in presets:
        raise ValueError(f"unknown preset {preset!r}: choose one of {', '.join(presets)}")
    given = {name: _value(name, text) for name, text in arguments.items() if text is not None}
    if resume and preset is None and config_file is None and given.get("name") is not None:
        runs = given.get("runs_dir", shown.get("runs_dir", DEFAULT_RUNS_DIR))
        config_file = Path(runs) / given["name"] / "config.json"
        if not config_file.is_file():
            raise ValueError(f"there is no run to resume in {str(config_file.parent)!r}")
    values: dict[str, Any] = dict(presets[preset or default_preset])
    if config_file is not None:
        values.update(read_config(config_file))
    values.update(given)
    return Job(make_config(values), resume, overwrite)


def run(main: Callable[[], None]) -> None:
    """Call ``main``, and turn what a user can do something about into one line on standard error.

    The exit status is 2 for a bad setting, 1 for a run that diverged or lacked room, 130 for Ctrl-C.
    """
    try:
        main()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except RunStopped as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(130) from None


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps "(default: value" on one line."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line.replace(_NO_BREAK, " ") for line in super()._split_lines(text, width)]


class _Parser(argparse.ArgumentParser):
    """Reports errors as the settings do, without half a hundred lines of usage before them."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see --help")


def _value(name: str, text: str) -> Any:
    """The value that an option's text stands for; pydantic does the rest."""
    annotation = str(TrainConfig.model_fields[name].annotation)
    if "None" in annotation and text.lower() == "none":
        return None
    if "dict" not in annotation and "list" not in annotation:
        return text
    if "list" in annotation and not text.lstrip().startswith("["):
        text = f"[{text}]"
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"--{name.replace('_', '-')} takes JSON, got {text!r}: {error}") from None


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return json.dumps(default) if isinstance(default, dict | list | bool) else str(default)
