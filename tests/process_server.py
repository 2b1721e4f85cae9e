"""Forks Python processes that have the heavy libraries loaded already: `python process_server.py SOCKET`.

Each connection to the socket asks for one process, by JSON and the three standard streams. It is told the process's id
and then, when the process has ended, its exit status. The server ends when its standard input does, and
removes the folder of the socket.
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
import shutil
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = (
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "scipy.stats",
    "torch.utils.tensorboard",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen3.modeling_qwen3",
)
"""What takes seconds in a new process; most of it would otherwise be imported on first use."""


def preload(*names: str) -> None:
    """Import modules, and all that packages offer by name."""
    for name in names:
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()) if name.startswith("vpo_") else ():
            getattr(module, public)
    # A collection in a forked process would copy all pages that these objects are on.
    gc.freeze()


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
            shutil.rmtree(Path(listener.getsockname()).parent)
            os._exit(0)
        connection, _ = listener.accept()
        message, streams, _, _ = socket.recv_fds(connection, 2**20, 3)
        request = json.loads(message)
        preload(*request.get("preload", ()))
        if streams and not os.fork():
            listener.close()
            if fork_and_watch(connection, streams):
                return request, streams
        connection.close()
        for stream in streams:
            os.close(stream)


def fork_and_watch(connection: socket.socket, streams: list[int]) -> bool:
    """Fork; return in the new process, and in this one tell how it ends, or end it when nobody listens any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        connection.close()
        return True
    for stream in streams:
        os.close(stream)
    connection.sendall(b"%d\n" % child)
    ready, _, _ = select.select([connection, os.pidfd_open(child)], [], [])
    if connection in ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(b"%d\n" % status)
    os._exit(0)


def become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run what ``python ARGUMENTS`` would run, and end as it would."""
    for place, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        os.dup2(streams[place], place)
        os.close(streams[place])
        setattr(sys, name, os.fdopen(place, mode, buffering=1, closefd=False))
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
    """Run a script, ``-c CODE`` or ``-m MODULE`` with its options; ``-P`` keeps the working directory off the path."""
    safe_path = False
    while first in ("-u", "-P"):
        safe_path |= first == "-P"
        first, *rest = rest
    if first in ("-c", "-m"):
        sys.path[:1] = [] if safe_path else [""]
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
    preload(*PRELOADED, "vpo_agent", "vpo_envs")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(sys.argv[1])
        opened.listen()
        print("ready", flush=True)
        become(*next_request(opened))
