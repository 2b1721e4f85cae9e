"""The second half of the program inside the sandbox, after ``confine.py``: a process that forks once for each test.

It reads two frames from descriptor 0 (how to confine itself; the candidate with its inputs) and writes one frame when
it is ready and four for each test (how it ended; its output, result and errors). It never sees what a test expects.
"""

from __future__ import annotations

import _io
import atexit
import builtins
import ctypes
import gc
import json
import os
import select
import signal
import site
import struct
import sys
import threading
import time
import traceback
import types
from typing import Any, NoReturn

from vpo_envs.sandbox.confine import SET_PDEATHSIG, SET_SECCOMP, Filter, confine, limit_test, prctl

CHUNK = 65536
STDERR_CAP = 2000
SECCOMP_FILTER = 2  # SECCOMP_MODE_FILTER
RECURSION_LIMIT = 50_000
"""The recursion limit of programs and functions, which LiveCodeBench's judge sets. MBPP's judge leaves the default."""
NAMES: dict[str, Any] = {}
"""Names that are predefined. LiveCodeBench's judge predefines the same names and those of ``statistics``, whose import
takes as long as all others."""
PRELUDE = """
from typing import *
from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from itertools import *
from functools import *
from operator import *
from io import *
from sys import *
from json import *
from builtins import *
import bisect, collections, copy, datetime, functools, heapq, io
import itertools, json, math, operator, random, re, string, sys
"""


# Frames --------------------------------------------------------------------------------------------------------------


def read_frame() -> Any:
    """Read one JSON frame: its length in four bytes, then its text; the end of input ends this process."""
    length = sys.stdin.buffer.read(4)
    if len(length) < 4:
        os._exit(0)
    return json.loads(sys.stdin.buffer.read(struct.unpack(">I", length)[0]))


def write_frame(payload: bytes) -> None:
    """Write the length of some bytes in four bytes, then the bytes."""
    sys.stdout.buffer.write(struct.pack(">I", len(payload)) + payload)
    sys.stdout.buffer.flush()


# One test ------------------------------------------------------------------------------------------------------------


def plain(value: Any, depth: int = 0) -> Any:
    """Encode a result as JSON that keeps Python's plain types apart; other types raise TypeError."""
    if depth > 60:
        raise TypeError("the result is nested too deeply")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return ["f", float.hex(float.__add__(value, 0.0))]
    if isinstance(value, complex):
        return ["c", float.hex(value.real), float.hex(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["b", bytes(value).hex()]
    kinds: tuple[tuple[Any, str], ...] = ((list, "l"), (tuple, "t"), (set, "s"), (frozenset, "s"))
    for kind, letter in kinds:
        if isinstance(value, kind):
            return [letter, *[plain(item, depth + 1) for item in kind.__iter__(value)]]
    if isinstance(value, dict):
        return ["d", *[[plain(key, depth + 1), plain(item, depth + 1)] for key, item in dict.items(value)]]
    raise TypeError(f"the result is a {type(value).__name__}, not plain data")


def run_candidate(job: dict[str, Any], text: str) -> None:
    """Run the candidate on one input as the interpreter would; the value of a call is written to descriptor 3."""
    kind, entry = job["kind"], job["entry"]
    name = "__main__" if kind == "stdin" else "answer"
    module = types.ModuleType(name)
    sys.modules[name] = module
    sys.argv = ["answer.py"]
    space = module.__dict__
    expression = compile(text, "test", "eval", dont_inherit=True) if kind == "expression" else None
    asked = (entry,) if expression is None else expression.co_names
    # What a test asks for is the candidate's to define: gcd would do without an answer.
    space.update((name, value) for name, value in NAMES.items() if name not in asked)
    exec(compile(job["source"], "answer.py", "exec", dont_inherit=True), space)
    if kind == "stdin":
        return
    if job["setup"]:
        exec(compile(job["setup"], "setup.py", "exec", dont_inherit=True), space)
    if expression is not None:
        value = eval(expression, space)
    else:
        function = space.get(entry)
        if "Solution" in space and hasattr(space["Solution"], entry):
            function = getattr(space["Solution"](), entry)
        if function is None:
            raise NameError(f"there is no function {entry}")
        value = function(*json.loads(text))
    with open(3, "wb") as file:
        file.write(json.dumps(plain(value), separators=(",", ":")).encode())
    os._exit(0)


def predefine() -> None:
    """Fill :data:`NAMES`, and give builtins what ``site`` adds to them: ``exit``, ``quit`` and others."""
    site.setquit()
    site.setcopyright()
    site.sethelper()
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    # Builtins are left out, so that a program can replace them for itself.
    NAMES.update((name, value) for name, value in names.items() if name[:2] != "__" and not hasattr(builtins, name))


def flushed(stream: Any) -> bool:
    """Flush a standard stream, and return false where that fails; one that is closed or absent has nothing to flush."""
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    except Exception:
        return False
    return True


def leave(code: int) -> NoReturn:
    """Exit as the interpreter does: join threads, run exit functions, drop what the code holds, flush every file.

    Finalising the interpreter itself would take longer than everything else that a short test does.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself calls at its end
    atexit._run_exitfuncs()
    clean = all([flushed(stream) for stream in (sys.stdout, sys.stderr)])
    sys.modules.pop("__main__", None)
    gc.collect()
    files = [held for held in gc.get_objects() if issubclass(type(held), _io._IOBase)]
    for file in files:
        flushed(file)
    os._exit(code if clean else 120)  # the code that the interpreter itself exits with


def child(job: dict[str, Any], text: str, ends: list[int], barrier: Filter) -> NoReturn:
    """The process of one test."""
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    for number, end in enumerate(ends):
        os.dup2(end, number)
    os.closerange(len(ends), 256)
    streams: dict[str, Any] = {
        "stdin": open(0, encoding="utf-8", closefd=False),  # noqa: SIM115 - they live as long as the process
        "stdout": open(1, "w", encoding="utf-8", closefd=False),  # noqa: SIM115
        "stderr": open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False),  # noqa: SIM115
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    NAMES.update(streams)
    limit_test(job["limits"])
    prctl(SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(barrier))
    NAMES["random"].seed(0)  # code that does not seed draws the same numbers in every run
    if job["kind"] != "expression":
        sys.setrecursionlimit(RECURSION_LIMIT)
        sys.set_int_max_str_digits(0)  # contests ask for numbers of more than 4,300 digits
    code = 0
    try:
        run_candidate(job, text)
    except SystemExit as end:
        code = 0 if end.code is None else end.code & 255 if isinstance(end.code, int) else 1
    except BaseException:
        code = 1
        traceback.print_exc(limit=-4)
    leave(code)


def run_test(job: dict[str, Any], text: str, barrier: Filter) -> tuple[str, int, bytearray, bytearray, bytearray]:
    """Run one test in a forked process.

    Returns:
        How it ended, its exit code, its output, its result and the end of its errors.
    """
    pipes = [os.pipe() for _ in range(4)]
    pid = os.fork()
    if not pid:
        try:
            child(job, text, [pipes[0][0], *(end for _, end in pipes[1:])], barrier)
        finally:
            os._exit(1)
    deadline = time.monotonic() + job["seconds"]
    os.close(pipes[0][0])
    for _, end in pipes[1:]:
        os.close(end)
    feed = pipes[0][1]
    pending = memoryview(text.encode("utf-8", "replace") if job["kind"] == "stdin" else b"")
    streams = {pipes[1][0]: bytearray(), pipes[2][0]: bytearray(), pipes[3][0]: bytearray()}
    out, err, result = streams
    poll = select.poll()
    for descriptor in streams:
        os.set_blocking(descriptor, False)
        poll.register(descriptor, select.POLLIN)
    os.set_blocking(feed, False)
    if pending:
        poll.register(feed, select.POLLOUT)
    else:
        os.close(feed)
        feed = -1
    try:
        ended = os.pidfd_open(pid)
        poll.register(ended, select.POLLIN)
    except OSError:
        ended = -1
    how, status = "exited", -1
    while status < 0:
        left = deadline - time.monotonic()
        if left <= 0:
            how = "timed_out"
            break
        wait = left if ended >= 0 else min(left, 0.002)
        events = poll.poll(wait * 1000 + 1)
        for descriptor, _ in events:
            if descriptor == feed:
                try:
                    pending = pending[os.write(feed, pending[:CHUNK]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    pending = pending[:0]
                if not pending:
                    poll.unregister(feed)
                    os.close(feed)
                    feed = -1
            elif descriptor in streams and not collect(descriptor, streams[descriptor]):
                poll.unregister(descriptor)
        del streams[err][:-STDERR_CAP]
        if max(len(streams[out]), len(streams[result])) > job["output"]:
            how = "output_limit"
            break
        if ended < 0 or any(descriptor == ended for descriptor, _ in events):
            done, code = os.waitpid(pid, os.WNOHANG)
            status = code if done else -1
    if status < 0:
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    # Output written just before the end is still in the pipes.
    for descriptor, kept in streams.items():
        while len(kept) <= job["output"] and collect(descriptor, kept):
            pass
        os.close(descriptor)
        if how == "exited" and descriptor != err and len(kept) > job["output"]:
            how = "output_limit"
    for descriptor in (feed, ended):
        if descriptor >= 0:
            os.close(descriptor)
    sweep()
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return how, code, streams[out], streams[result], streams[err][-STDERR_CAP:]


def collect(descriptor: int, kept: bytearray) -> bool:
    """Append what a pipe holds to ``kept``; return false if it holds nothing or is at its end."""
    try:
        piece = os.read(descriptor, CHUNK)
    except BlockingIOError:
        return False
    kept += piece
    return bool(piece)


def sweep() -> None:
    """Kill the processes that a test left behind: as a subreaper, this process inherits orphans."""
    for _ in range(1000):
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.001)
        except ChildProcessError:
            return


def main() -> NoReturn:
    """Confine this process, report that it is ready, run every test, exit."""
    sys.path[:] = [path for path in sys.path if path]
    plan = read_frame()
    try:
        version = confine(plan)
        # Imported here once, so that no test has to.
        predefine()
        gc.freeze()  # what tests share is not theirs to collect
        rules = bytes.fromhex(plan["filter"])
        barrier = Filter(len(rules) // 8, rules)
    except Exception as error:
        write_frame(json.dumps({"failed": str(error) or type(error).__name__}).encode())
        os._exit(1)
    write_frame(json.dumps({"ready": sys.version.split()[0], "landlock": version}).encode())
    job = read_frame()
    job["limits"] = plan["limits"]
    for text in job.pop("inputs"):
        how, code, out, result, err = run_test(job, text, barrier)
        write_frame(json.dumps([how, code]).encode())
        for stream in (out, result, err):
            write_frame(bytes(stream[: job["output"]]))
    os._exit(0)


if __name__ == "__main__":
    main()
