"""``vpo serve``: a policy behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from vpo_agent.serve import RunningServer
    from vpo_envs.command import Commands


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("serve", help="put a trained policy behind an OpenAI-compatible endpoint")
    parser.add_argument("target", help="a run folder, a model's folder or Hugging Face name, or tiny-maze")
    parser.add_argument("--checkpoint", type=int, metavar="STEP", help="of the run; default: its newest")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on, default 127.0.0.1: this machine alone"
    )
    parser.add_argument("--port", type=int, default=8000, help="default 8000; 0 takes a free one")
    parser.add_argument("--served-name", metavar="NAME", help="of the model in requests; default: from the target")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1; default auto")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16; default auto")
    parser.add_argument("--rows", type=int, default=64, help="answers that are decoded together, default 64")
    parser.add_argument("--waiting", type=int, default=1024, help="answers that may wait for a place, default 1024")
    parser.add_argument("--max-tokens", type=int, default=4096, help="most tokens of an answer, default 4096")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace, stdin: TextIO) -> None:
    """Serve until Ctrl-C.

    Raises:
        ValueError: The target cannot be loaded, an option is out of range, or the address cannot be used.
    """
    for name, least, most in (("port", 0, 65535), ("rows", 1, 4096), ("waiting", 1, 10**6), ("max_tokens", 1, 10**6)):
        value = getattr(chosen, name)
        if not least <= value <= most:
            raise ValueError(f"--{name.replace('_', '-')} must be from {least} to {most}, got {value}")
    try:
        from vpo_agent.serve import Limits, listening, serve
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None
    from vpo_agent.runs.targets import load_policy, target_name

    def ready(server: RunningServer) -> None:
        print(f"serving {server.model} ({policy.device}) on {server.base_url}; Ctrl-C ends it", flush=True)
        if not _is_loopback(chosen.host):
            print(
                f"vpo: --host {chosen.host} lets every machine that reaches this one use the model, without a password",
                file=sys.stderr,
                flush=True,
            )

    # A large model takes minutes to load, and an address that cannot be used is known now.
    listening(chosen.host, chosen.port).close()
    limits = Limits(rows=chosen.rows, waiting=chosen.waiting, max_tokens=chosen.max_tokens)
    policy = load_policy(chosen.target, chosen.checkpoint, chosen.device, chosen.dtype)
    name = chosen.served_name or target_name(chosen.target)
    serve(policy, name=name, host=chosen.host, port=chosen.port, limits=limits, ready=ready)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
