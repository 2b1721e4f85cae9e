"""``vpo completion``: a script that completes commands, options and names of ``vpo`` in bash and zsh."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from vpo_agent.command import plan
from vpo_envs.command.parser import Commands, Parser

SCRIPT = """\
# Completes vpo in bash and zsh.
[ -n "${ZSH_VERSION:-}" ] && autoload -Uz compinit bashcompinit && compinit -i && bashcompinit
_vpo() {
    local words word=${COMP_WORDS[COMP_CWORD]}
    case "$COMP_CWORD ${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in
%s    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
# Files, where nothing else fits.
complete -o default -o bashdefault -F _vpo vpo
"""


def add_parser(commands: Commands) -> None:
    """Add ``vpo completion``."""
    parser = commands.add_parser(
        "completion",
        help="print a script for completion in bash and zsh",
        description="Print a script that completes commands, options and names. For bash: "
        "vpo completion > ~/.local/share/bash-completion/completions/vpo; for zsh, at the end of ~/.zshrc: "
        'eval "$(vpo completion)".',
    )
    parser.set_defaults(run=partial(run, commands.choices))


def run(commands: Mapping[str, Parser], arguments: argparse.Namespace) -> None:
    """Print the script."""
    print(SCRIPT % "".join(_cases(commands)), end="")


def _cases(commands: Mapping[str, Parser]) -> Iterator[str]:
    """Yield the branches of the script: position of the word, command, word before it."""
    from envs_data import BUNDLED_MODELS
    from vpo_agent.command.options import settings_parser
    from vpo_agent.estimators import available_estimators
    from vpo_agent.presets import ALL
    from vpo_envs.registration import env_ids

    names: dict[str, Iterable[str]] = {
        "--env": env_ids(),
        "--model": BUNDLED_MODELS,
        "--method": available_estimators(),
        "--preset": ALL,
    }
    settings = _actions(settings_parser("vpo train", "", ALL, next(iter(ALL))))
    yield _case("'1 '*", commands)
    for name, command in commands.items():
        # The options of a training run are not declared by its commands, but made from the settings.
        own = {"train": [], "plan": _actions(plan.own_options())}.get(name)
        words: list[str] = []
        for action in _actions(command) if own is None else [*own, *settings]:
            words += action.option_strings or action.choices or (env_ids() if action.dest == "id" else [])
            for option in action.option_strings:
                if values := action.choices or names.get(option):
                    yield _case(f"*' {name} {option}'", map(str, values))
        yield _case(f"*' {name} '*", words)


def _actions(parser: Parser) -> list[argparse.Action]:
    """Return the arguments of a command, with those of its own commands."""
    parser.declare_now()
    below = [one for action in parser._actions if isinstance(action.choices, dict) for one in action.choices.values()]
    return [*parser._actions, *(action for one in below for action in _actions(one))]


def _case(pattern: str, words: Iterable[str]) -> str:
    return f"        {pattern}) words='{' '.join(dict.fromkeys(words))}' ;;\n"
