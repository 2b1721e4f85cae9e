"""What every command of ``vpo`` shares: arguments with checked values, one-line errors, exit statuses."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from envs_data.parsing import parse_json
from vpo_agent.errors import RunStopped
from vpo_agent.runs.continuing import when_stopped

Commands: TypeAlias = "argparse._SubParsersAction[Any]"


DTYPE_HELP = "auto (bfloat16 on a GPU, else float32), float32 or bfloat16"
ENV_HELP = "id of an environment, such as vpo/Maze-v0, or MODULE:ID for a module or .py file that registers your own"
RENAMED = {"--arms": "--methods", "--goal": "--measure", "--instances": "--num-tasks"}
"""Options that were renamed: the new name by the old one."""


class Failed(Exception):
    """A command found something wrong with what it was given to check; the exit status is 1."""


class HelpShown(SystemExit):
    """A parser has printed what was asked for, its help or the version, and the command ends."""


class Parser(argparse.ArgumentParser):
    """Raises :class:`ValueError` in one sentence instead of printing the usage.

    Attributes:
        declare: Adds arguments that are slow to declare; it is called once, when its command is.
        where_set: Says where an option is set that is not an argument of this command; returns an empty text for an
            option that it does not know.
    """

    declare: Callable[[Parser], None] | None = None
    where_set: Callable[[str], str] | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        # A list of numbers such as -1,1 is a value as well, though argparse takes it for an option.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse unknown arguments; ``argparse`` calls this for each command, which knows its own."""
        parsed, unknown = self.parse_declared(args, namespace)
        if unknown:
            raise ValueError(f"unknown argument {unknown[0]!r}: {self._advice(unknown[0].partition('=')[0])}")
        return parsed, unknown

    def parse_declared(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments that this parser declares; return them, and a list of all others."""
        declare, self.declare = self.declare, None
        if declare is not None:
            declare(self)
        return super().parse_known_args(args, namespace)

    def _advice(self, option: str) -> str:
        from vpo_envs.common.wording import did_you_mean

        where = self.where_set(option) if self.where_set is not None else ""
        if where:
            return where
        options = [text for action in self._actions for text in action.option_strings]
        if option == "--preset" and "--env-kwargs" in options:
            return """a preset is an argument of the environment: --env-kwargs '{"preset": "compact"}'"""
        if RENAMED.get(option) in options:
            return f"its name is {RENAMED[option]} now"
        return did_you_mean(option, options).strip() or "see --help for all of them"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from vpo_envs.common.wording import did_you_mean

            choices = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), choices)
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}: {hint}choose one of {', '.join(choices)}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command; ``argparse`` calls this after the help or the version."""
        raise HelpShown(status)

    def error(self, message: str) -> NoReturn:
        """Raise the error that ``argparse`` found."""
        raise ValueError(f"{message.removeprefix('argument ').replace(': must', ' must', 1)}; see --help")


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return an argument type: whole numbers from ``least``, and up to ``most`` if that is given."""

    def whole_number(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None
        if number < least or (most is not None and number > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"must be {bounds}, got {number}")
        return number

    return whole_number


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object; an argument type."""
    value = _json(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, got {text!r}")
    return value


def json_list(text: str) -> list[Any]:
    """Read a JSON list, whose brackets may be left out; an argument type."""
    value = _json(text if text.lstrip().startswith("[") else f"[{text}]")
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError(f"must be a JSON list, got {text!r}")
    return value


def names(text: str) -> list[str]:
    """Read names separated by commas; an argument type."""
    return [name for part in text.split(",") if (name := part.strip())]


def named_value(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``, where the value is JSON or else plain text; an argument type."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, such as beta=8, got {text!r}")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None


def add_import_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--import``, which names the modules of a user's own environments."""
    help_text = "module or .py file that registers an environment or a method of your own; may be repeated"
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE", help=help_text)


def add_accept_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--accept-changes``, for commands that may continue with other inputs than before."""
    help_text = "continue although prompts, rewards or models have changed, and measure the base again"
    parser.add_argument("--accept-changes", action="store_true", help=help_text)


def add_thinking_option(parser: argparse._ActionsContainer, note: str) -> None:
    """Add ``--thinking``, what a chat template is asked for."""
    parser.add_argument(
        "--thinking",
        choices=["on", "off"],
        help=f"whether the chat template asks for thoughts before the answer ({note})",
    )


def add_trust_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--trust``, which names what runs and sample files may choose."""
    parser.add_argument(
        "--trust",
        dest="trusted",
        action="extend",
        default=[],
        type=names,
        metavar="NAME,…",
        help="what to trust in a saved run or sample file: an argument of its environment, by name, such as source; "
        "models, to fetch the models that it names; programs, to run the programs in it; sizes, to read a sample file "
        "of unusual size",
    )


def add_env_options(parser: argparse.ArgumentParser, default: dict[str, Any] | None = None, note: str = "") -> None:
    """Add ``--env-kwargs``, whose help ends with ``note``, and ``--import``."""
    help_text = 'arguments of the environment as a JSON object, such as \'{"preset": "conflict"}\'' + note
    parser.add_argument("--env-kwargs", type=json_object, metavar="JSON", default=default, help=help_text)
    add_import_option(parser)


def add_method_option(parser: argparse._ActionsContainer, help_text: str) -> None:
    """Add ``--method-option``, which may be repeated."""
    parser.add_argument(
        "--method-option",
        dest="method_options",
        action="append",
        default=[],
        type=named_value,
        metavar="NAME=VALUE",
        help=help_text,
    )


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parse ``argv``, call the chosen command's ``run(arguments)``, and return its :func:`exit_status`."""

    def command() -> None:
        with when_stopped("nothing was done yet: give the same command again"):
            arguments = parser.parse_args(argv)
            arguments.argv = sys.argv[1:] if argv is None else [*argv]
            if hasattr(arguments, "rewards"):
                from vpo_agent.command.rewards import with_own_rewards

                vars(arguments).update(with_own_rewards(vars(arguments)))
            if modules := getattr(arguments, "imports", []):
                from vpo_envs.common.imports import import_modules

                import_modules(modules)
        try:
            if not hasattr(arguments, "trusted"):
                arguments.run(arguments)
                return
            from vpo_envs.common.trust import trusting

            with trusting(arguments.trusted):
                arguments.run(arguments)
        except HelpShown:
            raise
        except SystemExit as end:
            from vpo_envs.common.wording import told

            raise Failed(f"an environment or other code of your own ended the process: {told(end)}") from end

    return exit_status(command)


def run_script(main: Callable[[], None]) -> None:
    """Call the ``main`` of a script and exit with its :func:`exit_status`."""
    if status := exit_status(main):
        raise SystemExit(status)


def exit_status(command: Callable[[], None]) -> int:
    """Call a command, turn errors that a user can mend into one line on standard error, and return the exit status.

    Warnings are shown in one line as well. The exit status is 0 if the command succeeded and 2 for a bad
    request. It is 1 for a failed check, or a run that diverged or ran out of memory or disk. It is 130 after Ctrl-C or
    SIGTERM, with the message of the ``KeyboardInterrupt`` if it has one. Any other error is a bug and keeps its
    traceback.
    """
    from vpo_agent.progress import visible_streams

    with visible_streams():
        return _exit_status(command)


def _exit_status(command: Callable[[], None]) -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal that lacks a character shows a question mark. A redirected stream may refuse.
            with contextlib.suppress(OSError):
                reconfigure(errors="replace")
    former_format, warnings.formatwarning = warnings.formatwarning, _one_line
    former = signal.getsignal(signal.SIGTERM)
    handled = former == signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    try:
        if handled:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        command()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as head, has seen enough; Python's own flush at the end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        # Loaded only now, because the package takes longer to import than most commands need to answer.
        from vpo_envs.contract.errors import AnswerTimeout, ScorerFailure

        stopped = isinstance(error, RunStopped | Failed)
        if not stopped and not isinstance(error, ValueError | ScorerFailure | AnswerTimeout):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 1 if stopped else 2
    except KeyboardInterrupt as stop:
        print(*("stopped", *stop.args), sep="; ", file=sys.stderr)
        return 130
    finally:
        warnings.formatwarning = former_format
        if handled:
            signal.signal(signal.SIGTERM, former)
    return 0


def _one_line(message: Warning | str, *_place: Any, **_line: Any) -> str:
    """Return a warning as a command shows it, without the line of source that gave it."""
    return f"warning: {' '.join(str(message).split())}\n"
