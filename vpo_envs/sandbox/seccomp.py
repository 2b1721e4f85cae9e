"""The system calls that model-written code may make, as a seccomp filter in classic BPF.

The filter is an allow list: computing, memory, threads, its own pipes, clocks, reading files. It lets no code start a
process, open a socket, signal or trace another process, write, make or remove a file, mount, or make a namespace. Other
calls fail with "function not implemented", so a C library falls back as it would on an older kernel.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

X86_64 = """
read=0 write=1 readv=19 writev=20 pread64=17 pwrite64=18 close=3 lseek=8 fstat=5 newfstatat=262 statx=332
readlinkat=267 faccessat=269 faccessat2=439 getdents64=217 getcwd=79 dup=32 dup2=33 dup3=292 pipe2=293 poll=7
ppoll=271 select=23 pselect6=270 epoll_create1=291 epoll_ctl=233 epoll_wait=232 epoll_pwait=281 eventfd2=290
sendmsg=46 recvmsg=47 sendto=44 recvfrom=45 shutdown=48 mmap=9 munmap=11 mprotect=10 mremap=25 madvise=28 brk=12
rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 rt_sigpending=127 rt_sigtimedwait=128 rt_sigsuspend=130
sigaltstack=131 pause=34 alarm=37 getitimer=36 setitimer=38 futex=202 set_robust_list=273 get_robust_list=274
rseq=334 set_tid_address=218 sched_yield=24 sched_getaffinity=204 membarrier=324 nanosleep=35
clock_nanosleep=230 clock_gettime=228 clock_getres=229 gettimeofday=96 time=201 times=100 getrusage=98
getrlimit=97 setrlimit=160 sysinfo=99 uname=63 getpid=39 getppid=110 gettid=186 getuid=102 geteuid=107
getgid=104 getegid=108 getgroups=115 getpgrp=111 getpgid=121 getsid=124 umask=95 getrandom=318 getpriority=140
restart_syscall=219 exit=60 exit_group=231 access=21 stat=4 lstat=6 readlink=89 getcpu=309
openat=257 clone=56 prlimit64=302 fcntl=72 ioctl=16 socketpair=53
open=2 creat=85 fork=57 vfork=58 execve=59 execveat=322 kill=62 tkill=200 tgkill=234 socket=41
"""
AARCH64 = """
read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68 close=57 lseek=62 fstat=80 newfstatat=79 statx=291
readlinkat=78 faccessat=48 faccessat2=439 getdents64=61 getcwd=17 dup=23 dup3=24 pipe2=59 ppoll=73 pselect6=72
epoll_create1=20 epoll_ctl=21 epoll_pwait=22 eventfd2=19 sendmsg=211 recvmsg=212 sendto=206 recvfrom=207
shutdown=210 mmap=222 munmap=215 mprotect=226 mremap=216 madvise=233 brk=214 rt_sigaction=134 rt_sigprocmask=135
rt_sigreturn=139 rt_sigpending=136 rt_sigtimedwait=137 rt_sigsuspend=133 sigaltstack=132 getitimer=102
setitimer=103 futex=98 set_robust_list=99 get_robust_list=100 rseq=293 set_tid_address=96 sched_yield=124
sched_getaffinity=123 membarrier=283 nanosleep=101 clock_nanosleep=115 clock_gettime=113 clock_getres=114
gettimeofday=169 times=153 getrusage=165 getrlimit=163 setrlimit=164 sysinfo=179 uname=160 getpid=172
getppid=173 gettid=178 getuid=174 geteuid=175 getgid=176 getegid=177 getgroups=158 getpgid=155 getsid=156
umask=166 getrandom=278 getpriority=141 restart_syscall=128 exit=93 exit_group=94 getcpu=168
openat=56 clone=220 prlimit64=261 fcntl=25 ioctl=29 socketpair=199
execve=221 execveat=281 kill=129 tkill=130 tgkill=131 socket=198
"""
# These fail with "operation not permitted" instead, a clearer message for code that is likely to try them.
REFUSED = ("open", "creat", "fork", "vfork", "execve", "execveat", "kill", "tkill", "tgkill", "socket")

THREAD = 0x00010000  # CLONE_THREAD
NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
WRITING = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC; O_TMPFILE needs one of the first two
FCNTL = (0, 1, 2, 3, 4, 1030)  # duplicate, and flags of descriptors; never F_SETOWN, which can aim a signal
IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # is it a terminal, bytes waiting, blocking, close-on-exec

# Instructions of classic BPF: load a word of seccomp_data, jump if equal, bitwise and, return.
LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000  # SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in seccomp_data; each argument has eight bytes
AF_UNIX, SOCK_STREAM, SOCKET_TYPE = 1, 1, 0xF  # a type without its flags


class Machine(NamedTuple):
    """A processor architecture, as a filter needs it."""

    audit: int
    """AUDIT_ARCH number of the architecture."""
    calls: dict[str, int]
    """Number of each system call."""


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (entry.split("=") for entry in text.split())}


MACHINES = {"x86_64": Machine(0xC000003E, _table(X86_64)), "aarch64": Machine(0xC00000B7, _table(AARCH64))}


def fail(number: int) -> int:
    """Return the filter's verdict that makes a system call fail with an error number: SECCOMP_RET_ERRNO."""
    return 0x00050000 | number


def candidate_filter(machine: str | None = None) -> bytes | None:
    """Return the filter of a machine, by default this one, as ``struct sock_filter``; ``None`` if it is unknown."""
    known = MACHINES.get(platform.machine() if machine is None else machine)
    if known is None:
        return None
    calls = dict(known.calls)
    # An instruction is (code, jump if equal, jump if not, value); jumps skip that many instructions. Calls of another
    # architecture's numbering would get past the rules, so they end the process.
    program: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, known.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]

    def rule(name: str, body: list[tuple[int, int, int, int]]) -> None:
        program.extend([(EQUAL, 0, len(body), calls.pop(name)), *body])

    def one_of(argument: int, values: tuple[int, ...], otherwise: int) -> list[tuple[int, int, int, int]]:
        checks = [(EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
        return [(LOAD, 0, 0, ARGUMENTS + 8 * argument), *checks, (RETURN, 0, 0, fail(otherwise)), (RETURN, 0, 0, ALLOW)]

    def masked(argument: int, mask: int, value: int, otherwise: int) -> list[tuple[int, int, int, int]]:
        return [
            (LOAD, 0, 0, ARGUMENTS + 8 * argument),
            (AND, 0, 0, mask),
            (EQUAL, 1, 0, value),
            (RETURN, 0, 0, fail(otherwise)),
            (RETURN, 0, 0, ALLOW),
        ]

    refused = [calls.pop(name) for name in REFUSED if name in calls]
    rule("openat", masked(2, WRITING, 0, errno.EACCES))
    rule("clone", masked(0, THREAD | NAMESPACES, THREAD, errno.EPERM))
    rule("prlimit64", one_of(0, (0,), errno.EPERM))
    rule("fcntl", one_of(1, FCNTL, errno.EPERM))
    rule("ioctl", one_of(1, IOCTL, errno.ENOTTY))
    # Streams only: a datagram socket could send to any socket that has a name.
    pair = [(LOAD, 0, 0, ARGUMENTS), (EQUAL, 1, 0, AF_UNIX), (RETURN, 0, 0, fail(errno.EPERM))]
    rule("socketpair", [*pair, *masked(1, SOCKET_TYPE, SOCK_STREAM, errno.EPERM)])
    for number in calls.values():
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    for number in refused:
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, fail(errno.EPERM))]
    program.append((RETURN, 0, 0, fail(errno.ENOSYS)))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
