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
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from paths import ROOT, TESTS

PATIENCE = 300
"""Seconds that a process may take on a machine that is busy with other things."""

# Without a network the Hub's client tries for most of a minute before it gives up.
OFFLINE = {"HF_HUB_OFFLINE": "1"}


@functools.cache
def _server() -> str:
    """Start the process that the others are forked from; return the path of its socket."""
    path = f"{tempfile.mkdtemp(prefix='vpo-tests-')}/socket"
    command = [sys.executable, str(TESTS / "process_server.py"), path]
    env = {**os.environ, **OFFLINE, "MPLBACKEND": "Agg"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), str(TESTS), os.environ.get("PYTHONPATH")]))
    server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()

    atexit.register(end)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return path


def _connect() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_server())
    return connection


@functools.cache
def preload(*names: str) -> None:
    """Import modules where processes are forked, so that none of them has to."""
    with _connect() as connection:
        connection.sendall(json.dumps({"preload": names}).encode())
        connection.recv(1)


@functools.cache
def forked_python() -> str:
    """Return a program to give for ``sys.executable`` to code that starts processes; it takes scripts, -c and -m."""
    program = Path(_server()).with_name("python")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {TESTS}/forked_python.py {_server()} "$@"\n')
    program.chmod(0o700)
    return str(program)


class PythonProcess:
    """A process that runs what ``python ARGUMENTS`` would run: a script, ``-c CODE`` or ``-m MODULE``, and its options.

    It starts within milliseconds, has the tests' folder on its path and the environment of the tests, without the
    Hub. What is loaded before its first line, and options of the interpreter, can only be tested with ``subprocess``.

    Args:
        arguments: What follows ``python`` on the command line.
        cwd: Its working directory.
        env: Variables added to those of the tests.
    """

    def __init__(self, arguments: Sequence[str], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
        self.returncode: int | None = None
        self._connection = _connect()
        request = {"arguments": list(arguments), "cwd": str(cwd), "env": {**os.environ, **OFFLINE, **(env or {})}}
        out, err = os.pipe(), os.pipe()
        streams = [os.open(os.devnull, os.O_RDONLY), out[1], err[1]]
        socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
        for stream in streams:
            os.close(stream)
        self.stdout, self.stderr = os.fdopen(out[0]), os.fdopen(err[0])
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
    arguments: Sequence[str], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` as a `PythonProcess` to its end and return what it wrote."""
    process = PythonProcess(arguments, cwd=cwd, env=env)
    # Pipes, since a process under test may limit the size of its files.
    with process.stdout, process.stderr, ThreadPoolExecutor(2) as readers:
        written = [readers.submit(stream.read) for stream in (process.stdout, process.stderr)]
        try:
            status = process.wait(timeout)
        except TimeoutError:
            process.kill()
            said = written[1].result()
            raise subprocess.TimeoutExpired(list(arguments), timeout, stderr=said) from None
        return subprocess.CompletedProcess(list(arguments), status, *(text.result() for text in written))


@contextmanager
def killing_children() -> Iterator[None]:
    """Kill every process that this one starts soon after its start, as a host without memory does."""

    def children() -> set[int]:
        found = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
        return {int(pid) for text in found for pid in text.split()}

    def kill() -> None:
        while not done.wait(1.0):
            for pid in children() - before:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    before, done = children(), threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        done.set()
        killer.join()
