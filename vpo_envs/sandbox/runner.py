"""Run one candidate in one fresh sandbox, from outside: the parent's end of the pipes, the clock and the caps."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from envs_data.parsing import parse_json
from vpo_envs.sandbox.interpreters import SandboxUnavailable
from vpo_envs.sandbox.tiers import Limits, Tier, start_plan

START_SECONDS = 20.0
"""Seconds within which a sandbox must be set up."""
GRACE_SECONDS = 5.0
"""Seconds after its time limit within which the result of a test may still arrive."""

Kind = Literal["stdin", "call", "expression"]
Ending = Literal["exited", "timed_out", "output_limit"]


class Program(NamedTuple):
    """Model-written code and what to run it on."""

    source: str
    kind: Kind
    inputs: tuple[str, ...]
    """One input for each test. ``"stdin"``: the text of standard input; ``"call"``: the arguments as a JSON array;
    ``"expression"``: a Python expression."""
    entry: str = ""
    """Name of the function, or of the method of ``class Solution``, that ``"call"`` calls."""
    setup: str = ""
    """Python that runs after the candidate, before the call or expression."""


class RunResult(NamedTuple):
    """The result of one test. All but ``ending`` is a claim of the code that ran."""

    ending: Ending
    code: int
    """Exit code; minus the signal's number where a signal ended it."""
    stdout: bytes
    result: bytes
    """The value of the call or expression, in the encoding that :mod:`vpo_envs.sandbox.values` reads."""
    stderr: bytes
    """The end of standard error, for people."""


class Died(Exception):
    """The sandbox closed its pipe or broke the protocol."""


@functools.cache
def inside_code() -> str:
    """Return the program that runs inside: ``confine.py`` and ``zygote.py`` as one text."""
    lines = ["from __future__ import annotations"]
    for name in ("confine.py", "zygote.py"):
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        lines += [line for line in text.splitlines() if not line.startswith(("from __future__", "from vpo_envs"))]
    return "\n".join(lines)


class _Process:
    """A started sandbox, which frames are sent to and received from, always with a deadline."""

    def __init__(self, tier: Tier, limits: Limits) -> None:
        start = start_plan(tier, limits, inside_code())
        self.layered = tier is Tier.A
        self.buffer = bytearray()
        self.errors = bytearray()
        # The other side caps its output as well, but it is not trusted.
        self.largest = limits.output_bytes + 4096
        try:
            self.process = subprocess.Popen(
                start.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=start.environment,
                cwd="/",
                close_fds=True,
                start_new_session=True,
                user=start.user,
                group=start.user,
                extra_groups=None if start.user is None else [],
            )
        except OSError as error:
            raise SandboxUnavailable(f"tier {tier}: {error}") from None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.input, self.output, self.error = self.process.stdin, self.process.stdout, self.process.stderr
        self.selector = selectors.DefaultSelector()
        for stream in (self.input, self.output, self.error):
            os.set_blocking(stream.fileno(), False)
        self.selector.register(self.output, selectors.EVENT_READ)
        self.selector.register(self.error, selectors.EVENT_READ)
        try:
            deadline = time.monotonic() + START_SECONDS
            self.send(start.plan, deadline)
            told = parse_json(self.receive(deadline))
        except (Died, TimeoutError, ValueError) as error:
            self.close()
            said = self.errors.decode("utf-8", "replace").strip().splitlines()
            raise SandboxUnavailable(f"tier {tier}: {said[-1] if said else error or 'it did not start'}") from None
        if "ready" not in told:
            self.close()
            raise SandboxUnavailable(f"tier {tier}: {told.get('failed', 'it did not start')}")

    def send(self, message: dict[str, Any], deadline: float) -> None:
        text = json.dumps(message).encode()
        data = memoryview(struct.pack(">I", len(text)) + text)
        self.selector.register(self.input, selectors.EVENT_WRITE)
        try:
            while data:
                self._turn(deadline)
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self.input.fileno(), data) :]
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise Died(f"it closed its input ({error.strerror})") from None
        finally:
            self.selector.unregister(self.input)

    def receive(self, deadline: float) -> bytes:
        """Return the next frame; :class:`Died` if the sandbox ended or sent none, TimeoutError if it is late."""
        while True:
            if len(self.buffer) >= 4:
                length = struct.unpack(">I", self.buffer[:4])[0]
                if length > self.largest:
                    raise Died("it wrote a frame beyond its cap")
                if len(self.buffer) >= 4 + length:
                    frame = bytes(self.buffer[4 : 4 + length])
                    del self.buffer[: 4 + length]
                    return frame
            self._turn(deadline)

    def _turn(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it did not answer in time")
        for key, _ in self.selector.select(left):
            if key.fileobj is self.input:
                continue
            piece = b""
            with contextlib.suppress(BlockingIOError):
                piece = os.read(key.fd, 1 << 18)
            if key.fileobj is self.error:
                self.errors += piece
                del self.errors[:-4096]
                if not piece:
                    self.selector.unregister(self.error)
            elif piece:
                self.buffer += piece
            else:
                raise Died("it ended early")

    def close(self, *, finished: bool = False) -> None:
        """Wait until every process of this sandbox has ended, and kill those that do not end by themselves.

        Bubblewrap only waits for the first process of the sandbox's namespace. That process is killed first, so that
        its own parent reaps it and no zombie remains.
        """
        if not (finished and self._ended()):
            for inner in self._inner():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(inner, signal.SIGKILL)
            if self.layered:
                self._ended()
            if self.process.returncode is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.selector.close()
        for stream in (self.output, self.error):
            stream.close()
        with contextlib.suppress(OSError):
            self.input.close()

    def _ended(self) -> bool:
        """Return whether the process ends within a second."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        return self.process.returncode is not None

    def _inner(self) -> list[int]:
        """Return the children of the started process: the first of the namespace, or the process of a test."""
        pid = self.process.pid
        try:
            # The process has not been reaped, so its number cannot belong to another one.
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []


def run_program(program: Program, tier: Tier, limits: Limits) -> list[RunResult]:
    """Run ``program`` on each of its inputs, in a fresh sandbox with a process of its own for each.

    If a sandbox dies or stops answering during a test, the test runs once more in a new one, and the tests after it in
    that one too. Code cannot cause either, since it signals no other process, so a second failure is the host's.

    Raises:
        SandboxUnavailable: A sandbox could not be set up, or the host failed; this says nothing about the program.
    """
    runs: list[RunResult] = []
    failed_on = -1
    while len(runs) < len(program.inputs):
        try:
            _run_rest(program, tier, limits, runs)
        except (Died, TimeoutError) as error:
            if failed_on == len(runs):
                number = len(runs) + 1
                raise SandboxUnavailable(f"tier {tier}: a sandbox failed twice on test {number}: {error}") from None
            failed_on = len(runs)
    return runs


def _run_rest(program: Program, tier: Tier, limits: Limits, runs: list[RunResult]) -> None:
    """Run the tests without a result in ``runs``, and append their results."""
    process = _Process(tier, limits)
    finished = False
    try:
        job = {
            **program._replace(inputs=program.inputs[len(runs) :])._asdict(),
            "seconds": limits.seconds,
            "output": limits.output_bytes,
        }
        process.send(job, time.monotonic() + START_SECONDS)
        while len(runs) < len(program.inputs):
            deadline = time.monotonic() + limits.seconds + GRACE_SECONDS
            try:
                ending, code = parse_json(process.receive(deadline))
                if ending not in ("exited", "timed_out", "output_limit") or type(code) is not int:
                    raise Died("it broke the protocol")
                stdout, result, stderr = (process.receive(deadline) for _ in range(3))
            except (ValueError, TypeError):
                raise Died("it broke the protocol") from None
            runs.append(RunResult(ending, code, stdout, result, stderr))
        finished = True
    finally:
        process.close(finished=finished)
