"""The two tiers of confinement: what each one guarantees, and how the sandboxed interpreter starts in it."""

from __future__ import annotations

import functools
import itertools
import os
import platform
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from vpo_envs.sandbox.interpreters import Interpreter, SandboxUnavailable, interpreter, readable_parts
from vpo_envs.sandbox.seccomp import candidate_filter


class Tier(StrEnum):
    """How well model-written code is confined, best first."""

    A = "A"
    """Bubblewrap's namespaces, seccomp, Landlock where the kernel has it, resource limits."""
    B = "B"
    """Landlock, seccomp, resource limits."""


PROMISES = {
    "environment": "sees no environment variable of its parent",
    "descriptors": "has no descriptor but its own pipes",
    "time": "is killed at its time limit",
    "memory": "one process stays below its memory limit",
    "output": "is killed at its output limit",
    "network": "opens no socket",
    "processes": "starts no process, and leaves none behind",
    "signals": "signals no other process",
    "tracing": "traces no other process and reads no other process's memory",
    "kernel_interfaces": "reaches no namespace, mount, io_uring, memfd, shared memory or key of the kernel",
    "writing": "writes, makes or removes no file",
    "reading": "reads no file but the interpreter, its library and the system's shared libraries",
    "file_names": "cannot ask whether a file exists, nor its size or owner",
    "process_list": "sees no other process",
}
HOLDS: dict[Tier, tuple[str, ...]] = {Tier.A: tuple(PROMISES), Tier.B: tuple(PROMISES)[:-2]}
"""The last two take namespaces."""


def not_held(tier: Tier) -> list[str]:
    """Return the promises that ``tier`` does not keep, as phrases."""
    return [phrase for name, phrase in PROMISES.items() if name not in HOLDS[tier]]


class Limits(NamedTuple):
    """Limits of one test."""

    seconds: float = 6.0
    """Wall-clock seconds of a test."""
    memory_mb: int = 1024
    """Megabytes (2²⁰ bytes) of address space."""
    output_bytes: int = 4 << 20
    """Bytes of standard output; more ends the test."""
    threads: int = 64
    stack_mb: int = 64


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"
"""Folders searched for bubblewrap and setpriv before ``PATH``."""

_numbers = itertools.count()


def fresh_user() -> int | None:
    """Return a user id for one sandbox that nothing else runs as; ``None`` unless this process is root.

    Separate ids keep sandboxes from signalling each other and their resource limits from adding up. In a user namespace
    without such ids the user is "nobody".
    """
    if os.geteuid() != 0:
        return None
    # From 0x70000000 on, far above the ids of people and services; some bits from this process, some from a counter.
    wanted = 0x70000000 + (os.getpid() % (1 << 14) << 12) + next(_numbers) % (1 << 12)
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= wanted < first + count:
            return wanted
    return 65534  # nobody


@functools.cache
def user_changer() -> str | None:
    """Return the path of util-linux's ``setpriv``; ``None`` if it is not installed.

    With ``user=``, ``Popen`` forks, which copies the page tables of this process; with gigabytes in it that takes
    longer than everything else. Without a user it calls ``vfork``, which copies nothing: ``setpriv`` changes the user.
    """
    program = shutil.which("setpriv", path=SYSTEM_PATH)
    known = "" if program is None else help_of(program)
    return program if "--clear-groups" in known and "--reuid" in known else None


def help_of(program: str) -> str:
    """Return what ``program --help`` prints."""
    return subprocess.run([program, "--help"], capture_output=True, text=True, cwd="/", check=False).stdout


class Start(NamedTuple):
    """The command that starts one sandbox."""

    command: list[str]
    user: int | None
    """User that ``Popen`` switches to; ``None`` if unnecessary."""
    environment: dict[str, str]
    plan: dict[str, Any]
    """The first frame for ``confine.py``."""


def start_plan(tier: Tier, limits: Limits, code: str) -> Start:
    """Return the command of one sandbox that runs ``code``, and the plan that it receives first."""
    user = fresh_user()
    python = interpreter(user is not None)
    # -S no site-packages, -s no user's packages, -P no folder of the script on the path, -B write no bytecode. Not -I,
    # which would ignore PYTHONHASHSEED; the environment holds nothing else of this process.
    command = [python.executable, "-S", "-s", "-P", "-B", "-X", "utf8", "-c", code]
    environment = {"PYTHONHASHSEED": "0", **dict(python.environment)}
    code_filter = candidate_filter()
    if code_filter is None:
        raise SandboxUnavailable(f"no table of system calls for {platform.machine()}, so no seccomp filter")
    # The kernel counts processes per user, so without a fresh user the limit would count everything else that it runs.
    own_count = user is not None or tier is Tier.A
    rlimits = {
        "AS": limits.memory_mb << 20,
        "CPU": int(limits.seconds) + 2,
        "NOFILE": 64,
        "NPROC": limits.threads if own_count else None,
        "STACK": limits.stack_mb << 20,
    }
    plan: dict[str, Any] = {
        "limits": rlimits,
        "filter": code_filter.hex(),
        "needs_landlock": tier is Tier.B,
        # Tier A covers hidden folders with empty ones; in B Landlock must leave them out.
        "readable": readable_parts(python) if tier is Tier.B else [[path, True] for path in python.paths],
    }
    if tier is Tier.A:
        command = [*bubblewrap(python), "--", *command]
    changer = user_changer() if user is not None else None
    if changer is not None:
        command = [changer, f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *command]
        user = None
    return Start(command, user, environment, plan)


@functools.cache
def bubblewrap(python: Interpreter) -> tuple[str, ...]:
    """Return the bubblewrap command up to ``--``: all namespaces, nothing writable, no /proc, no capability."""
    named = os.environ.get("VPO_SANDBOX_BWRAP")
    program = shutil.which(named or "bwrap", path=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}")
    if program is None:
        raise SandboxUnavailable(
            f"VPO_SANDBOX_BWRAP={named} is not a program" if named else "bubblewrap (bwrap) is not installed"
        )
    words = [program, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"]
    if "--disable-userns" in help_of(program):
        words.append("--disable-userns")
    words += ["--cap-drop", "ALL", "--hostname", "sandbox"]
    for path in python.paths:
        words += ["--ro-bind", path, path]
    for path in python.hidden:
        words += ["--tmpfs", path, "--remount-ro", path]
    for link, target in python.links:
        words += ["--symlink", target, link]
    return (*words, "--remount-ro", "/", "--chdir", "/")
