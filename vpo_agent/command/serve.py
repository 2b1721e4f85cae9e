"""``vpo serve``: a policy behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import ipaddress
import sys

from vpo_envs.command.parser import Commands, at_least


def add_parser(commands: Commands) -> None:
    """Add ``vpo serve``."""
    parser = commands.add_parser("serve", help="put a trained policy behind an OpenAI-compatible endpoint")
    add = parser.add_argument
    add("target", help="a run folder, a model's folder or Hugging Face name, a GGUF file, or tiny-maze")
    add("--checkpoint", type=int, metavar="STEP", help="step of the run's checkpoint; default: the newest")
    add("--host", default="127.0.0.1", help="address to listen on, default 127.0.0.1: this machine only")
    add("--port", type=at_least(0, 65535), default=8000, help="default 8000; 0: any free port")
    add("--served-name", metavar="NAME", help="name of the model in requests; default: from the target")
    engines = ("auto", "native", "vllm")
    add("--engine", choices=engines, default="auto", help="default auto: vllm on a GPU if it is installed, else native")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:1; default auto")
    add("--dtype", default="auto", help="auto, float32 or bfloat16; default auto")
    add("--rows", type=at_least(1, 4096), default=64, help="answers decoded at the same time, default 64")
    add("--waiting", type=at_least(1, 10**6), default=1024, help="native: answers that may wait, default 1024")
    add("--max-tokens", type=at_least(1, 10**6), default=4096, help="native: longest answer, default 4096")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from vpo_agent.runs.targets import find_model, load_policy, target_name
    from vpo_agent.serve import Limits, listening, serve
    from vpo_agent.serve.vllm import choose_engine, start_vllm, vllm_command

    def say(what: str, where: str) -> None:
        print(f"serving {name} ({what}) on {where}; Ctrl-C stops it", flush=True)
        if not _is_loopback(chosen.host):
            warning = f"warning: --host {chosen.host} lets any machine that reaches this one use the model"
            print(warning, file=sys.stderr, flush=True)

    # A large model takes minutes to load, but a bad address is known now.
    with listening(chosen.host, chosen.port) as listener:
        port = listener.getsockname()[1]
    name = chosen.served_name or target_name(chosen.target)
    if choose_engine(chosen.engine, chosen.device) == "vllm":
        model = find_model(chosen.target, chosen.checkpoint)
        settings = {"host": chosen.host, "port": port, "device": chosen.device, "dtype": chosen.dtype}
        command = vllm_command(model, name=name, rows=chosen.rows, **settings)
        say("vLLM", f"http://{chosen.host}:{port}/v1")
        start_vllm(command, chosen.device)
    limits = Limits(rows=chosen.rows, waiting=chosen.waiting, max_tokens=chosen.max_tokens)
    policy = load_policy(chosen.target, chosen.checkpoint, chosen.device, chosen.dtype)
    serve(
        policy,
        name=name,
        host=chosen.host,
        port=chosen.port,
        limits=limits,
        ready=lambda server: say(str(policy.device), server.base_url),
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
