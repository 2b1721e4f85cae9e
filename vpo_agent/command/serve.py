"""``vpo serve``: a policy behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from typing import TYPE_CHECKING

from vpo_envs.command.parser import at_least

if TYPE_CHECKING:
    from vpo_agent.serve import RunningServer
    from vpo_envs.command.parser import Commands


def add_parser(commands: Commands) -> None:
    """Add ``vpo serve``."""
    parser = commands.add_parser("serve", help="put a trained policy behind an OpenAI-compatible endpoint")
    add = parser.add_argument
    add("target", help="a run folder, a model's folder or Hugging Face name, or tiny-maze")
    add("--checkpoint", type=int, metavar="STEP", help="step of the run's checkpoint; default: the newest")
    add("--host", default="127.0.0.1", help="address to listen on, default 127.0.0.1: this machine only")
    add("--port", type=at_least(0, 65535), default=8000, help="default 8000; 0: any free port")
    add("--served-name", metavar="NAME", help="name of the model in requests; default: from the target")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:1; default auto")
    add("--dtype", default="auto", help="auto, float32 or bfloat16; default auto")
    add("--rows", type=at_least(1, 4096), default=64, help="answers decoded at the same time, default 64")
    add("--waiting", type=at_least(1, 10**6), default=1024, help="answers that may wait in the queue, default 1024")
    add("--max-tokens", type=at_least(1, 10**6), default=4096, help="longest answer in tokens, default 4096")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    try:
        from vpo_agent.serve import Limits, listening, serve
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None
    from vpo_agent.runs.targets import load_policy, target_name

    def ready(server: RunningServer) -> None:
        print(f"serving {server.model} ({policy.device}) on {server.base_url}; Ctrl-C stops it", flush=True)
        if not _is_loopback(chosen.host):
            print(
                f"warning: --host {chosen.host} lets any machine that reaches this one use the model",
                file=sys.stderr,
                flush=True,
            )

    # A large model takes minutes to load, but a bad address is known now.
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
