"""The four tiers of confinement, what each holds, and how the sandboxed interpreter is started in each."""

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
    """The same namespaces made by this project, seccomp, Landlock where the kernel has it, resource limits."""
    C = "C"
    """Landlock, seccomp, resource limits."""
    D = "D"
    """Resource limits alone."""


SECCOMP_HOLDS = ("network", "processes", "signals", "tracing", "kernel_interfaces", "writing")
ALWAYS_HOLDS = ("environment", "descriptors", "time", "memory", "output")
HOLDS: dict[Tier, tuple[str, ...]] = {
    Tier.A: (*ALWAYS_HOLDS, *SECCOMP_HOLDS, "reading", "file_names", "process_list"),
    Tier.B: (*ALWAYS_HOLDS, *SECCOMP_HOLDS, "reading", "file_names", "process_list"),
    Tier.C: (*ALWAYS_HOLDS, *SECCOMP_HOLDS, "reading"),
    Tier.D: ALWAYS_HOLDS,
}
"""What each tier keeps model-written code from, by the names of :data:`PROMISES`."""
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


def not_held(tier: Tier) -> list[str]:
    """The promises that ``tier`` does not keep, as phrases."""
    return [phrase for name, phrase in PROMISES.items() if name not in HOLDS[tier]]


class Limits(NamedTuple):
    """What one test may use."""

    seconds: float = 6.0
    """Wall-clock time."""
    memory_mb: int = 1024
    """Address space."""
    output_bytes: int = 4 << 20
    """Standard output; more ends the test."""
    threads: int = 64
    stack_mb: int = 64


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"
"""Where programs that a sandbox is made with are looked for before ``PATH``."""

_numbers = itertools.count()


def fresh_user() -> int | None:
    """A user id that nothing else runs as, for one sandbox; ``None`` unless this process is root.

    One id a sandbox keeps sandboxes from signalling each other, and their resource limits from adding up. Where the
    process lives in a user namespace without such ids, it is "nobody".
    """
    if os.geteuid() != 0:
        return None
    wanted = 0x70000000 + (os.getpid() % (1 << 14) << 12) + next(_numbers) % (1 << 12)
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= wanted < first + count:
            return wanted
    return 65534


@functools.cache
def user_changer() -> str | None:
    """``setpriv`` of util-linux, where it is installed.

    Where ``Popen`` itself is to change the user it forks, which copies the page tables of this process: with a few
    gigabytes in it that takes longer than all else. Without a user it uses ``vfork``, which copies nothing.
    """
    program = shutil.which("setpriv", path=SYSTEM_PATH)
    known = (
        ""
        if program is None
        else subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    )
    return program if "--clear-groups" in known and "--reuid" in known else None


class Start(NamedTuple):
    """How one sandbox is started."""

    command: list[str]
    user: int | None
    """Whom ``Popen`` is to make of it; ``None`` where the command does so itself, or nobody need."""
    environment: dict[str, str]
    plan: dict[str, Any]
    """The first frame for ``confine.py``."""


def start_plan(tier: Tier, limits: Limits, code: str) -> Start:
    """The command of one sandbox and what it is told first.

    Args:
        tier: How it is confined.
        limits: Of each test.
        code: The text of ``confine.py``.

    Raises:
        SandboxUnavailable: The tier cannot be had here.
    """
    user = fresh_user()
    python = interpreter(user is not None)
    # Not -I: the environment is read, for it holds the seed of hashes, and nothing that is anyone else's.
    command = [python.executable, "-S", "-s", "-P", "-B", "-X", "utf8", "-c", code]
    environment = {"PYTHONHASHSEED": "0", **dict(python.environment)}
    code_filter = candidate_filter()
    if code_filter is None and tier is not Tier.D:
        raise SandboxUnavailable(f"no table of system calls for {platform.machine()}, so no seccomp filter")
    # Where the user is not fresh, the limit on processes would count what else the user runs.
    own_count = user is not None or tier in (Tier.A, Tier.B)
    rlimits = {
        "AS": limits.memory_mb << 20,
        "CPU": int(limits.seconds) + 2,
        "NOFILE": 64,
        "NPROC": limits.threads if own_count else None,
        "STACK": limits.stack_mb << 20,
    }
    plan: dict[str, Any] = {
        "limits": rlimits,
        "filter": "" if tier is Tier.D or code_filter is None else code_filter.hex(),
        "landlock": {Tier.C: "required", Tier.D: "off"}.get(tier, "wanted"),
        # Where the root file system is its own, the folders in it that stay hidden are covered.
        "readable": [[path, True] for path in python.paths] if tier is not Tier.C else readable_parts(python),
        "namespaces": None,
    }
    if tier is Tier.A:
        command = [*bubblewrap(python), "--", *command]
    changer = user_changer() if user is not None else None
    if changer is not None:
        command = [changer, f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *command]
        user = None
    if tier is Tier.B:
        # A folder to build the new root on; it is covered by that, so nothing that is needed may lie in it.
        free = (
            path
            for path in ("/tmp", "/mnt", "/var/tmp", "/home", "/srv")
            if os.path.isdir(path) and not any(needed.startswith(path + "/") for needed in python.paths)
        )
        base = next(free, None)
        if base is None:
            raise SandboxUnavailable("no folder to build a root file system on")
        pivot_root = {"x86_64": 155, "aarch64": 41}[platform.machine()]
        plan["namespaces"] = {
            "base": base,
            "paths": list(python.paths),
            "hidden": list(python.hidden),
            "links": [list(link) for link in python.links],
            "pivot_root": pivot_root,
        }
    return Start(command, user, environment, plan)


@functools.cache
def bubblewrap(python: Interpreter) -> tuple[str, ...]:
    """The bubblewrap command up to ``--``: every namespace, nothing writable, no /proc, no capability."""
    named = os.environ.get("VPO_SANDBOX_BWRAP")
    program = shutil.which(named or "bwrap", path=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}")
    if program is None:
        raise SandboxUnavailable(
            f"VPO_SANDBOX_BWRAP={named} is no program" if named else "bubblewrap (bwrap) is not installed"
        )
    known = subprocess.run([program, "--help"], capture_output=True, text=True, cwd="/", check=False).stdout
    words = [program, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"]
    if "--disable-userns" in known:
        words.append("--disable-userns")
    words += ["--cap-drop", "ALL", "--hostname", "sandbox"]
    for path in python.paths:
        words += ["--ro-bind", path, path]
    for path in python.hidden:
        words += ["--tmpfs", path, "--remount-ro", path]
    for link, target in python.links:
        words += ["--symlink", target, link]
    return (*words, "--remount-ro", "/", "--chdir", "/")
