"""The first half of what runs inside the sandbox: a process takes its own rights away.

It and ``zygote.py`` are sent as one text to a bare interpreter, so they import the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
LANDLOCK = (444, 445, 446)  # create, add, restrict: the same numbers on every machine
SET_PDEATHSIG, SET_DUMPABLE, SET_SECCOMP, SET_SUBREAPER, SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38


class Filter(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def checked(result: int, what: str) -> int:
    """The result of a C call, or an error that names it."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def prctl(option: int, value: int, extra: Any = None) -> None:
    """``prctl(2)``."""
    zero = ctypes.c_ulong(0)
    checked(LIBC.prctl(option, ctypes.c_ulong(value), zero if extra is None else extra, zero, zero), f"prctl {option}")


def enter_namespaces(plan: dict[str, Any]) -> None:
    """Tier B: a user, mount, process, network, IPC, host name and cgroup namespace of its own, on a bare root.

    Returns only in the first process of the new process namespace, without any capability.
    """
    uid, gid = os.getuid(), os.getgid()
    checked(LIBC.unshare(0x7E020000), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)

    def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
        words = [None if word is None else word.encode() for word in (source, target, kind)]
        options = None if data is None else data.encode()
        checked(LIBC.mount(*words, ctypes.c_ulong(flags), options), f"mount {target}")

    readonly, nosuid, nodev, remount, bind, recursive, private = 1, 2, 4, 32, 4096, 16384, 1 << 18
    base = plan["base"]
    mount(None, "/", None, recursive | private)
    mount("tmpfs", base, "tmpfs", nosuid | nodev, "size=1m,mode=755")
    for path in plan["paths"]:
        target = base + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
        mount(path, target, None, bind | recursive)
        kept = os.statvfs(target).f_flag & (nosuid | nodev | 8 | 1024 | 2048)  # flags that a remount may not drop
        if os.statvfs(target).f_flag & 4096:
            kept |= 1 << 21  # relatime
        mount(None, target, None, remount | bind | readonly | nosuid | nodev | kept)
    for path in plan["hidden"]:
        mount("tmpfs", base + path, "tmpfs", readonly | nosuid | nodev, "size=4k,mode=755")
    for link, destination in plan["links"]:
        os.symlink(destination, base + link)
    os.mkdir(base + "/.old")
    checked(LIBC.syscall(plan["pivot_root"], base.encode(), (base + "/.old").encode()), "pivot_root")
    os.chdir("/")
    checked(LIBC.umount2(b"/.old", 2), "umount")
    os.rmdir("/.old")
    mount(None, "/", None, remount | bind | readonly | nosuid | nodev)
    outer = os.fork()
    if outer:
        os.close(0)
        os.close(1)
        os.waitpid(outer, 0)
        os._exit(0)
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    checked(LIBC.capset(header, nothing), "capset")


def landlock(paths: list[tuple[str, bool]]) -> int:
    """Allow reading below ``paths`` and no other use of any file.

    Args:
        paths: Each with whether what lies below may be read, or only the names in it be listed.

    Returns:
        The version of the kernel's interface; 0 where it has none.
    """
    create, add, restrict = LANDLOCK
    version: int = LIBC.syscall(create, None, ctypes.c_size_t(0), 1)
    if version <= 0:
        return 0
    bits = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = struct.pack("=QQQ", (1 << bits) - 1, 3, 3)[:size]
    ruleset = checked(LIBC.syscall(create, rules, ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    read_file, read_folder = 4, 8
    for path, whole in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        access = read_file * whole | read_folder * os.path.isdir(path)
        checked(LIBC.syscall(add, ruleset, 1, struct.pack("=Qi", access, descriptor), 0), "landlock_add_rule")
        os.close(descriptor)
    prctl(SET_NO_NEW_PRIVS, 1)
    checked(LIBC.syscall(restrict, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
    return version


def confine(plan: dict[str, Any]) -> int:
    """Everything that is done once, before there is any model-written code in this process.

    Returns:
        The version of Landlock in use; 0 where it is not.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if plan["namespaces"]:
        # A root file system of its own is made of files, so the limit on their size comes after it.
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
    """Resource limits of the process of one test; ``soft == hard``, so none can be raised again."""
    for name in ("AS", "CPU", "NOFILE", "NPROC", "STACK"):
        wanted = limits.get(name)
        if wanted is not None:
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(kind, (value, value))
    for name in ("FSIZE", "CORE", "MEMLOCK", "MSGQUEUE", "RTPRIO"):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (0, 0))
