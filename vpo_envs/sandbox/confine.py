"""The first half of the program inside the sandbox: a process gives up its own rights.

This file and ``zygote.py`` are sent as one text to a bare interpreter, so they import only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
# Numbers from the kernel's headers; Python has no names for them.
LANDLOCK = (444, 445, 446)  # create a ruleset, add a rule, restrict: system calls, the same on every architecture
SET_PDEATHSIG, SET_DUMPABLE, SET_SECCOMP, SET_SUBREAPER, SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38  # options of prctl
READ_FILE, READ_FOLDER = 4, 8  # rights of Landlock


class Filter(ctypes.Structure):
    """A seccomp filter: ``struct sock_fprog``."""

    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def checked(result: int, what: str) -> int:
    """Return the result of a C call; a negative one becomes an error that names the call."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, value: int, extra: Any = None) -> None:
    """Call ``prctl(2)``."""
    zero = ctypes.c_ulong(0)
    checked(LIBC.prctl(option, ctypes.c_ulong(value), zero if extra is None else extra, zero, zero), f"prctl {option}")


def landlock(paths: list[tuple[str, bool]]) -> int:
    """Allow reading below ``paths`` and no other use of any file; return the version of Landlock, 0 without it.

    Args:
        paths: Each with whether everything below may be read; otherwise only its names may be listed.
    """
    create, add, restrict = LANDLOCK
    version: int = LIBC.syscall(create, None, ctypes.c_size_t(0), 1)
    if version <= 0:
        return 0
    # Every right that this version knows is denied unless a rule grants it. Version 1 has 13 rights of files, and
    # versions 2, 3 and 5 add one each. Version 4 adds two rights of TCP and version 6 two scopes (abstract sockets and
    # signals), in fields of their own.
    bits = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = struct.pack("=QQQ", (1 << bits) - 1, 3, 3)[:size]
    ruleset = checked(LIBC.syscall(create, rules, ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    for path, whole in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        access = READ_FILE * whole | READ_FOLDER * os.path.isdir(path)
        checked(LIBC.syscall(add, ruleset, 1, struct.pack("=Qi", access, descriptor), 0), "landlock_add_rule")
        os.close(descriptor)
    prctl(SET_NO_NEW_PRIVS, 1)
    checked(LIBC.syscall(restrict, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
    return version


def confine(plan: dict[str, Any]) -> int:
    """Give up the rights of this process, before it holds any model-written code; return what Landlock returns."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    prctl(SET_SUBREAPER, 1)
    prctl(SET_DUMPABLE, 0)
    prctl(SET_NO_NEW_PRIVS, 1)
    os.environ.clear()
    version = landlock(plan["readable"])
    if plan["needs_landlock"] and not version:
        raise OSError("this kernel has no Landlock")
    return version


def limit_test(limits: dict[str, int | None]) -> None:
    """Set the resource limits of the process of one test; ``soft == hard``, so none can be raised again."""
    for name in ("AS", "CPU", "NOFILE", "NPROC", "STACK"):
        wanted = limits.get(name)
        if wanted is not None:
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(kind, (value, value))
    for name in ("FSIZE", "CORE", "MEMLOCK", "MSGQUEUE", "RTPRIO"):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (0, 0))
