"""Canary attacks: a tier is used only if it is seen to keep its promises on this machine."""

from __future__ import annotations

import json
import logging
import platform
import threading
from typing import Literal, get_args

from vpo_envs.sandbox.interpreters import SandboxUnavailable
from vpo_envs.sandbox.runner import Program, run_program
from vpo_envs.sandbox.tiers import HOLDS, Limits, Tier, not_held

logger = logging.getLogger("vpo_envs.sandbox")

Wanted = Literal["auto", "A", "B"]
LIMITS = Limits(seconds=10.0, memory_mb=256)

# Each function is named for a promise and returns a true value if its attack succeeds.
CANARY = """
import os, sys

def reading():
    return any(map(readable, ["/etc/passwd", "/etc/hostname", "/proc/self/status", "/proc/1/environ", "/dev/zero"]))

def readable(path):
    try:
        with open(path, "rb") as file:
            return len(file.read(1))
    except OSError:
        return False

def writing():
    for path in ("/canary", "/tmp/canary", "/dev/shm/canary", "/var/tmp/canary", "canary"):
        try:
            open(path, "x").close()
            os.unlink(path)
            return True
        except OSError:
            pass

def network():
    import socket
    for kind in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        for style in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                socket.socket(kind, style).close()
                return True
            except OSError:
                pass

def processes():
    pid = os.fork()
    if not pid:
        os._exit(0)
    return True

def signals():
    os.kill(os.getppid(), 0)
    return True

def calls(numbers):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for name, number in numbers:
        ctypes.set_errno(0)
        if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38):
            return name

def tracing(numbers):
    return calls(numbers)

kernel_interfaces = tracing

def environment():
    return sorted(set(os.environ) - {"LC_CTYPE", "PWD"})

def descriptors():
    found = []
    for number in range(4, 256):
        try:
            os.fstat(number)
            found.append(number)
        except OSError:
            pass
    return found

def memory(megabytes):
    return len(bytearray(megabytes << 20))

def file_names():
    return os.path.exists("/etc/passwd") or os.path.exists("/root") or os.path.exists("/proc")

def process_list():
    return os.path.exists("/proc/self") or os.getppid() > 1

def answer(name, *args):
    try:
        return globals()[name](*args)
    except (OSError, MemoryError):
        return None
"""
GENERIC_CALLS = [("io_uring_setup", 425), ("pidfd_send_signal", 424), ("open_tree", 428), ("landlock", 444)]
MACHINE_CALLS = {
    "x86_64": [("unshare", 272), ("mount", 165), ("memfd_create", 319), ("keyctl", 250), ("shmget", 29), ("bpf", 321)],
    "aarch64": [("unshare", 97), ("mount", 40), ("memfd_create", 279), ("keyctl", 219), ("shmget", 194), ("bpf", 280)],
}
TRACE_CALLS = {
    "x86_64": [("ptrace", 101), ("process_vm_readv", 310), ("process_vm_writev", 311)],
    "aarch64": [("ptrace", 117), ("process_vm_readv", 270), ("process_vm_writev", 271)],
}

_lock = threading.Lock()
_broken: dict[Tier, str] = {}
"""Why a tier that was tried is not used; empty if it is used."""


def canaries(tier: Tier) -> list[str]:
    """Attack ``tier``, and return the promises that it broke, with what the attacks returned.

    The limits on time and output are not attacked, since they are enforced outside, on any machine.
    """
    arguments: dict[str, list[object]] = {
        "tracing": [TRACE_CALLS.get(platform.machine(), [])],
        "kernel_interfaces": [GENERIC_CALLS + MACHINE_CALLS.get(platform.machine(), [])],
        "memory": [2 * LIMITS.memory_mb],
    }
    names = [name for name in HOLDS[tier] if name not in ("time", "output")]
    inputs = tuple(json.dumps([name, *arguments.get(name, [])]) for name in names)
    runs = run_program(Program(CANARY, "call", inputs, "answer"), tier, LIMITS)
    broken = []
    for name, run in zip(names, runs, strict=True):
        if run.ending != "exited" or run.code != 0 or run.result not in (b"null", b"false", b'["l"]'):
            shown = run.result.decode("ascii", "replace") or run.stderr.decode("utf-8", "replace")[-200:]
            broken.append(f"{name} ({run.ending} {run.code}: {shown})")
    return broken


def check_wanted(wanted: Wanted) -> None:
    """Raise ValueError for an unknown tier; no tier is tried."""
    if wanted not in get_args(Wanted):
        raise ValueError(f"unknown sandbox tier {wanted!r}: choose one of {', '.join(get_args(Wanted))}")


def choose_tier(wanted: Wanted = "auto") -> Tier:
    """Return the best tier that works on this machine, or the wanted one, after its preflight.

    Raises:
        ValueError: Unknown tier.
        SandboxUnavailable: No such tier works on this machine; the message gives the reason for each.
    """
    check_wanted(wanted)
    tiers = list(Tier) if wanted == "auto" else [Tier(wanted)]
    with _lock:
        for tier in tiers:
            if tier not in _broken:
                _broken[tier] = _try(tier)
            if not _broken[tier]:
                return tier
        reasons = "; ".join(f"{tier}: {_broken.pop(tier)}" for tier in tiers)
    raise SandboxUnavailable(f"no sandbox for model-written code can be set up here ({reasons})")


def _try(tier: Tier) -> str:
    """Return why ``tier`` cannot be used, empty if it can, and log it."""
    try:
        broken = canaries(tier)
    except SandboxUnavailable as error:
        logger.info("sandbox tier %s is unavailable: %s", tier, error)
        return str(error)
    if broken:
        logger.warning("sandbox tier %s is not used, canaries got through: %s", tier, "; ".join(broken))
        return f"canaries got through: {'; '.join(broken)}"
    logger.info(
        "sandbox tier %s passed its preflight; not guaranteed is that code %s",
        tier,
        "; ".join([*not_held(tier), "makes no use of a bug of the kernel, or of the time that things take"]),
    )
    return ""
