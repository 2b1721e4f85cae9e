"""Runs one candidate in one fresh sandbox, from outside: the parent's end of the pipes, the clock and the caps."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import selectors
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vpo_envs.sandbox.interpreters import SandboxUnavailable
from vpo_envs.sandbox.tiers import Limits, Tier, start_plan

START_SECONDS = 20.0
"""Longest that a sandbox may take to set itself up."""
GRACE_SECONDS = 5.0
"""How much later than its own clock a test may be reported."""

Kind = Literal["stdin", "call", "expression"]
Ending = Literal["exited", "timed_out", "output_limit", "died"]


class Program(NamedTuple):
    """Model-written code and what to run it on."""

    source: str
    kind: Kind
    inputs: tuple[str, ...]
    """One for each test. ``"stdin"``: the text of standard input; ``"call"``: the arguments as a JSON array;
    ``"expression"``: a Python expression."""
    entry: str = ""
    """``"call"``: the function, or the method of ``class Solution``."""
    setup: str = ""
    """Python that runs after the candidate, before the call or expression."""


class RunResult(NamedTuple):
    """What became of one test. Everything here is a claim of the code that ran, but for ``ending``."""

    ending: Ending
    code: int
    """Exit code; minus the signal's number where a signal ended it."""
    stdout: bytes
    result: bytes
    """The value of the call or expression, in the encoding that :mod:`vpo_envs.sandbox.values` reads."""
    stderr: bytes
    """The end of it, for people."""


class Died(Exception):
    """The sandbox closed its pipe or broke the protocol."""


class SetupFailed(SandboxUnavailable):
    """One sandbox did not come up."""


@functools.cache
def inside_code() -> str:
    """The text that runs inside: ``confine.py`` and ``zygote.py`` as one."""
    lines = ["from __future__ import annotations"]
    for name in ("confine.py", "zygote.py"):
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        lines += [line for line in text.splitlines() if not line.startswith(("from __future__", "from vpo_envs"))]
    return "\n".join(lines)


class _Process:
    """A started sandbox: frames in and out, always against a deadline."""

    def __init__(self, tier: Tier, limits: Limits) -> None:
        start = start_plan(tier, limits, inside_code())
        self.layered = tier in (Tier.A, Tier.B)
        self.buffer = bytearray()
        self.errors = bytearray()
        # A frame is at most the output cap, but the cap is checked here and not left to the other side.
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
            raise SetupFailed(f"tier {tier}: {error}") from None
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
            told = json.loads(self.receive(deadline))
        except (Died, TimeoutError, ValueError) as error:
            self.close()
            said = self.errors.decode("utf-8", "replace").strip().splitlines()
            raise SetupFailed(f"tier {tier}: {said[-1] if said else error or 'it did not start'}") from None
        if "ready" not in told:
            self.close()
            raise SetupFailed(f"tier {tier}: {told.get('failed', 'it did not start')}")

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
        """The next frame.

        Raises:
            Died: There is none to come.
            TimeoutError: It did not come in time.
        """
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
        """Wait for the end of everything of this sandbox, and kill what does not end by itself.

        Bubblewrap, and the outer process of tier B, only wait for the first process of the sandbox's namespace. That
        one is killed first, so that it is waited for where it belongs and leaves nothing behind.

        Args:
            finished: The last test has ended, so that the sandbox is about to end by itself.
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
        """Whether the process ends within a second."""
        if self.process.poll() is not None:
            return True
        try:
            handle = os.pidfd_open(self.process.pid)
        except OSError:  # a kernel before 5.3
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)
            return self.process.returncode is not None
        # Popen's own wait looks now and then, in steps that grow; this one wakes at once.
        end = select.poll()
        end.register(handle, select.POLLIN)
        end.poll(1000)
        os.close(handle)
        return self.process.poll() is not None

    def _inner(self) -> list[int]:
        """Children of the process that was started: the first of the namespace, or in tier D what a test left."""
        pid = self.process.pid
        try:
            # Its end was not waited for yet, so this is still its number, and these are still its children.
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []


def run_program(program: Program, tier: Tier, limits: Limits) -> list[RunResult]:
    """Run ``program`` on each of its inputs, in a fresh sandbox and a process of its own for each.

    Should a sandbox die in the midst of a test, which no code can bring about in tiers A to C, that test is tried once
    more in a new one and then counts as ended by the code; the tests after it run in a new sandbox as well.

    Returns:
        One run for each input, in order.

    Raises:
        SandboxUnavailable: A sandbox could not be set up; this says nothing about the program.
    """
    runs: list[RunResult] = []
    deaths_here = 0
    while len(runs) < len(program.inputs):
        before = len(runs)
        try:
            _run_rest(program, tier, limits, runs)
        except (Died, TimeoutError) as error:
            deaths_here = deaths_here + 1 if len(runs) == before else 1
            if deaths_here == 2 or isinstance(error, TimeoutError):
                ending: Ending = "timed_out" if isinstance(error, TimeoutError) else "died"
                runs.append(RunResult(ending, -signal.SIGKILL, b"", b"", str(error).encode()))
                deaths_here = 0
    return runs


def _run_rest(program: Program, tier: Tier, limits: Limits, runs: list[RunResult]) -> None:
    """Run the tests that ``runs`` does not hold yet, and add to it as they end."""
    process = _Process(tier, limits)
    finished = False
    try:
        job = {
            "source": program.source,
            "kind": program.kind,
            "entry": program.entry,
            "setup": program.setup,
            "tests": program.inputs[len(runs) :],
            "seconds": limits.seconds,
            "output": limits.output_bytes,
        }
        process.send(job, time.monotonic() + START_SECONDS)
        while len(runs) < len(program.inputs):
            deadline = time.monotonic() + limits.seconds + GRACE_SECONDS
            try:
                ending, code = json.loads(process.receive(deadline))
                if ending not in ("exited", "timed_out", "output_limit") or type(code) is not int:
                    raise Died("it broke the protocol")
                stdout, result, stderr = (process.receive(deadline) for _ in range(3))
            except (ValueError, TypeError):
                raise Died("it broke the protocol") from None
            runs.append(RunResult(ending, code, stdout, result, stderr))
        finished = True
    finally:
        process.close(finished=finished)
