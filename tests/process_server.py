"""Forks Python processes that have the heavy libraries loaded already: `python process_server.py SOCKET`.

Each connection to the socket asks for one process, by a line of JSON and the three standard streams. It is told the
process's id and then, when the process has ended, its exit status. The server ends when its standard input does.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn


def preload() -> None:
    """Import what takes seconds in a new process, most of which is otherwise imported on first use."""
    for name in ("matplotlib.backends.backend_agg", "matplotlib.pyplot", "scipy.stats", "torch.utils.tensorboard"):
        importlib.import_module(name)
    for name in ("AutoModelForCausalLM", "AutoTokenizer", "LlamaForCausalLM", "Qwen3ForCausalLM"):
        getattr(importlib.import_module("transformers"), name)
    for package in ("vpo_agent", "vpo_envs"):
        module = importlib.import_module(package)
        for name in module.__all__:
            getattr(module, name)


def forget_children(*_: object) -> None:
    """Take note of children that have ended, so that their processor time counts as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def next_request(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Wait for requests; return in a new process for each."""
    signal.signal(signal.SIGCHLD, forget_children)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if listener not in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        # This process waits for the one that was asked for, whose parent it is.
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, streams, _, _ = socket.recv_fds(connection, 2**20, 3)
        child = os.fork()
        if not child:
            connection.close()
            return json.loads(message), streams
        for stream in streams:
            os.close(stream)
        connection.sendall(b"%d\n" % child)
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run what ``python ARGUMENTS`` would run, and end as it would."""
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    sys.stdout.reconfigure(write_through=True)
    # Where the tests run in the background, Ctrl-C is ignored in all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    status, interrupted = 0, False
    try:
        execute(*request["arguments"])
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        traceback.print_exc()
        status, interrupted = 1, isinstance(error, KeyboardInterrupt)
    # The interpreter's own end takes seconds, in which it frees all that the libraries hold.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def execute(first: str, *rest: str) -> None:
    """Run a script, ``-c CODE`` or ``-m MODULE`` with its options."""
    if first in ("-c", "-m"):
        sys.path[0] = ""
        what, *options = rest
        sys.argv = [first, *options]
        if first == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), sys.modules["__main__"].__dict__)
    else:
        sys.path[0] = str(Path(first).parent)
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    preload()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(sys.argv[1])
        opened.listen()
        print("ready", flush=True)
        become(*next_request(opened))
