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
NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*: mount, cgroup, UTS, IPC, user, PID and network, all but time
MS_READONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_RECURSIVE, MS_PRIVATE, MS_RELATIME = 1024, 2048, 4096, 1 << 14, 1 << 18, 1 << 21
ST_RELATIME = 4096  # statvfs reports the other flags with the numbers of mount, but this one differs
DETACH = 2  # of umount2: unmount at once, whoever still uses it
CAPABILITY_VERSION = 0x20080522  # version 3 of capset's header
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


def enter_namespaces(plan: dict[str, Any]) -> None:
    """Enter new namespaces with a root file system that holds only the interpreter; tier B.

    Returns only in the first process of the new process namespace, without any capability.
    """
    uid, gid = os.getuid(), os.getgid()
    checked(LIBC.unshare(NEW_NAMESPACES), "unshare")
    # The kernel accepts a group map of an unprivileged user only after setgroups is denied.
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)

    def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
        words = [None if word is None else word.encode() for word in (source, target, kind)]
        options = None if data is None else data.encode()
        checked(LIBC.mount(*words, ctypes.c_ulong(flags), options), f"mount {target}")

    closed = MS_READONLY | MS_NOSUID | MS_NODEV
    base = plan["base"]
    # Private, so that no mount made here appears outside.
    mount(None, "/", None, MS_RECURSIVE | MS_PRIVATE)
    mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for path in plan["paths"]:
        target = base + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        mount(path, target, None, MS_BIND | MS_RECURSIVE)
        # A bind mount becomes read-only by a remount, which may not drop flags that the original mount has.
        flags = os.statvfs(target).f_flag
        kept = flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)
        if flags & ST_RELATIME:
            kept |= MS_RELATIME
        mount(None, target, None, MS_REMOUNT | MS_BIND | closed | kept)
    for path in plan["hidden"]:
        mount("tmpfs", base + path, "tmpfs", closed, "size=4k,mode=755")
    for link, destination in plan["links"]:
        os.symlink(destination, base + link)
    os.mkdir(base + "/.old")
    checked(LIBC.syscall(plan["pivot_root"], base.encode(), (base + "/.old").encode()), "pivot_root")
    os.chdir("/")
    checked(LIBC.umount2(b"/.old", DETACH), "umount")
    os.rmdir("/.old")
    mount(None, "/", None, MS_REMOUNT | MS_BIND | closed)
    # A process keeps its own process namespace; only its children are in the new one. The outer process waits.
    outer = os.fork()
    if outer:
        os.close(0)
        os.close(1)
        os.waitpid(outer, 0)
        os._exit(0)
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    header, nothing = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    checked(LIBC.capset(header, nothing), "capset")


def landlock(paths: list[tuple[str, bool]]) -> int:
    """Allow reading below ``paths`` and no other use of any file.

    Args:
        paths: Each with whether everything below may be read; otherwise only its names may be listed.

    Returns:
        The version of the kernel's interface; 0 if it has none.
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
    """Give up the rights of this process, once, before it holds any model-written code.

    Returns:
        The version of Landlock in use; 0 if it is not in use.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if plan["namespaces"]:
        enter_namespaces(plan["namespaces"])
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    prctl(SET_SUBREAPER, 1)
    prctl(SET_DUMPABLE, 0)
    prctl(SET_NO_NEW_PRIVS, 1)
    os.environ.clear()
    version = landlock(plan["readable"]) if plan["landlock"] != "off" else 0
    if plan["landlock"] == "required" and not version:
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
