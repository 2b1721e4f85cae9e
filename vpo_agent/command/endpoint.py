"""The options of ``vpo eval`` for a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vpo_agent.command.parser import at_least

if TYPE_CHECKING:
    from vpo_agent.rollouts.endpoint.policy import EndpointPolicy

OF_AN_ENDPOINT = ("model", "api", "api_key_env", "concurrency", "timeout", "reply_timeout", "retries")
"""Arguments that need ``--endpoint``."""
REPLY_S = 1800.0
"""Default of ``--reply-timeout``: some servers send blanks while a model thinks, so that no byte is late."""


def add_endpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`open_endpoint` reads."""
    add = parser.add_argument_group("endpoint", "a model behind an OpenAI-compatible endpoint, instead of a target")
    add.add_argument("--endpoint", metavar="URL", help="base of the API, such as http://127.0.0.1:8000/v1")
    add.add_argument("--model", metavar="NAME", help="name of the model there")
    add.add_argument(
        "--api", choices=["chat", "completions"], help="completions: prompts without a chat template (default: chat)"
    )
    add.add_argument("--api-key-env", metavar="VARIABLE", help="environment variable with the key (default: no key)")
    add.add_argument("--concurrency", type=at_least(1, 1024), metavar="N", help="requests at a time (default: 8)")
    add.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="seconds without a byte until a request fails (default: 300)",
    )
    add.add_argument(
        "--reply-timeout",
        type=_seconds,
        metavar="S",
        help=f"seconds until a request fails whose reply is incomplete (default: {REPLY_S:g}, or --timeout if longer)",
    )
    add.add_argument("--retries", type=at_least(0), metavar="N", help="further tries of a request (default: 7)")


def open_endpoint(arguments: argparse.Namespace, journal: Path) -> EndpointPolicy:
    """Return the model that the options name; its answers are kept in the file ``journal``.

    Raises:
        ValueError: An option is missing or wrong.
    """
    from vpo_agent.rollouts.endpoint.policy import EndpointPolicy
    from vpo_envs.endpoint import Client

    key, variable = None, arguments.api_key_env
    if variable is not None:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise ValueError(f"--api-key-env {variable}: this environment variable is not set")
    given = {name: value for name in ("timeout", "retries") if (value := getattr(arguments, name)) is not None}
    whole = arguments.reply_timeout or max(REPLY_S, arguments.timeout or 0)
    client = Client(arguments.endpoint, key=key, key_name=variable or "--api-key-env", whole=whole, **given)
    if arguments.model is None:
        names = ", ".join(str(card.get("id")) for card in client.models()[:10])
        raise ValueError(f"--endpoint needs --model, a name{f' such as {names}' if names else ' of a model there'}")
    chat = arguments.api != "completions"
    return EndpointPolicy(client, arguments.model, chat=chat, concurrency=arguments.concurrency or 8, journal=journal)


def unfinished(out: Path) -> Path:
    """Return the file that keeps the answers for the folder ``out`` until it is written."""
    return out.with_name(f"{out.name}.unfinished.jsonl")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return seconds
