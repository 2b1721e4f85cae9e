"""Processes that tests start, most of them forked from one that has torch and the agent loaded, to save seconds."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from paths import ROOT, TESTS

PATIENCE = 300
"""Seconds that a process may take on a machine that is busy with other things."""


def heed_interrupts() -> None:
    """Called in a new process, have Ctrl-C reach it, also where the tests run in the background and ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@functools.cache
def _server() -> str:
    """Start the process that the others are forked from; return the path of its socket."""
    folder = tempfile.TemporaryDirectory(prefix="vpo-tests-")
    path = f"{folder.name}/socket"
    command = [sys.executable, str(TESTS / "process_server.py"), path]
    # Without a network the Hub's client tries for most of a minute before it gives up.
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return path


class PythonProcess:
    """A process that runs what ``python ARGUMENTS`` would run: a script, ``-c CODE`` or ``-m MODULE``, and its options.

    Code under test then starts within milliseconds. What is loaded before the first line, and options of the
    interpreter itself, can only be tested with ``subprocess``.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None,
        stdin: IO[str] | int,
        stdout: IO[str] | int,
        stderr: IO[str] | int,
    ) -> None:
        self.returncode: int | None = None
        request = {"arguments": list(arguments), "cwd": str(cwd), "env": {**(os.environ if env is None else env)}}
        streams = [stream if isinstance(stream, int) else stream.fileno() for stream in (stdin, stdout, stderr)]
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server())
        socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
        self._answers = self._connection.makefile("r")
        self.pid = int(self._answers.readline())

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait until the process has ended; return its exit status, negative if a signal ended it."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process is known to have ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)


def run_python(
    arguments: Sequence[str],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` to its end, with nothing to read, and return what it wrote."""
    with open(os.devnull) as nothing, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = PythonProcess(arguments, cwd=cwd, env=env, stdin=nothing, stdout=out, stderr=err)
        try:
            process.wait(timeout)
        except TimeoutError:
            process.kill()
            err.seek(0)
            raise subprocess.TimeoutExpired(list(arguments), timeout, stderr=err.read()) from None
        written = []
        for stream in (out, err):
            stream.seek(0)
            written.append(stream.read())
        return subprocess.CompletedProcess(list(arguments), process.wait(), *written)
