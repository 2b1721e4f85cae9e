"""``vpo serve``: a policy behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import os
import sys

from vpo_agent.command.parser import DTYPE_HELP, Commands, add_thinking_option, add_trust_option, at_least


def add_parser(commands: Commands) -> None:
    """Add ``vpo serve``."""
    parser = commands.add_parser(
        "serve",
        help="put a model behind an OpenAI-compatible endpoint",
        description="Load a model and answer chat and completion requests at http://HOST:PORT/v1 until Ctrl-C.",
    )
    add = parser.add_argument
    add("target", help="run, or model (bundled, folder, GGUF file, Hub name)")
    add("--checkpoint", type=int, metavar="STEP", help="step of the run's checkpoint (default: the newest)")
    add(
        "--host",
        default="127.0.0.1",
        metavar="TEXT",
        help="address to listen on (default: 127.0.0.1, this machine only)",
    )
    add(
        "--port",
        type=at_least(0, 65535),
        default=8000,
        metavar="N",
        help="port to listen on; 0: any free port (default: 8000)",
    )
    add("--device", default="auto", metavar="TEXT", help="auto, cpu, cuda or cuda:0 (default: auto)")
    add(
        "--dtype",
        default="auto",
        metavar="TEXT",
        help=f"{DTYPE_HELP} (default: auto)",
    )
    add_thinking_option(parser, "default: the run's, or off; a request may choose otherwise")
    add(
        "--rows",
        type=at_least(1, 4096),
        default=64,
        metavar="N",
        help="responses decoded at the same time (default: 64)",
    )
    add(
        "--max-tokens",
        type=at_least(1, 10**6),
        default=4096,
        metavar="N",
        help="length limit of a response, in tokens (default: 4096)",
    )
    add(
        "--allow-host",
        dest="allowed",
        action="append",
        default=[],
        metavar="NAME",
        help="further name of this server, or site whose pages may send requests; may be repeated. Addresses and names "
        "of this machine are always allowed",
    )
    add_trust_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from vpo_agent.policy.downloads import check_model
    from vpo_agent.runs.targets import find_model, load_policy, target_name

    check_model(find_model(arguments.target, arguments.checkpoint))
    from vpo_agent.serve.server import Server

    # A large model takes minutes to load, but a bad address is known now; connections wait.
    name = target_name(arguments.target)
    limits = {"rows": arguments.rows, "max_tokens": arguments.max_tokens}
    with Server(arguments.host, arguments.port, name, **limits, allowed=arguments.allowed) as server:
        policy = load_policy(
            arguments.target, arguments.checkpoint, arguments.device, arguments.dtype, arguments.thinking
        )
        print(f"serving {name} ({policy.device}) on {server.base_url}; Ctrl-C stops it", flush=True)
        if arguments.host not in ("localhost", "127.0.0.1", "::1"):
            warning = f"warning: --host {arguments.host} lets any machine that reaches this one use the model"
            print(warning, file=sys.stderr, flush=True)
        try:
            server.answer(policy)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr, flush=True)
            sys.stdout.flush()
            # Python takes seconds to end on a busy machine, and aborts where the model is in the middle of a pass.
            os._exit(130)
