"""A red team inside the sandbox: nothing read, nothing written, nothing surviving, no verdict changed.

Every attack runs in every tier that the machine offers, or in the one that ``VPO_SANDBOX_TIER`` names, but for those
that the tier does not promise to hold. An attack returns a true value where it got through; what can be seen from
outside is looked at from outside.
"""

from __future__ import annotations

import json
import os
import platform
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from vpo_envs.sandbox import (
    HOLDS,
    PROMISES,
    Limits,
    Program,
    RunResult,
    SandboxUnavailable,
    Tier,
    choose_tier,
    run_program,
)
from vpo_envs.sandbox import interpreters as interpreters_module
from vpo_envs.tasks.code.task import CodeOutcome, CodeTask, CodeTest, run_tests

LIMITS = Limits(seconds=0.5, memory_mb=256, output_bytes=1 << 20)
UNHURRIED = LIMITS._replace(seconds=20.0)
SECRET = "the-secret-of-the-parent-8f1c"


@pytest.fixture(scope="module", params=os.environ.get("VPO_SANDBOX_TIER", "A B").split())
def tier(request: pytest.FixtureRequest) -> Tier:
    try:
        return choose_tier(request.param)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


def need(tier: Tier, *promises: str) -> None:
    """Skip where the tier does not hold what the attack is against; one that is not held would hurt this machine."""
    for promise in promises:
        if promise not in HOLDS[tier]:
            pytest.skip(f"tier {tier} does not promise that code {PROMISES[promise]}")


@pytest.fixture(autouse=True)
def nothing_survives(tier: Tier) -> Iterator[None]:
    """Every attack ends with no process of the sandbox left: none below this one, none of the sandboxes' users."""
    # Other tests may keep processes, such as those of scorers.
    before = set(survivors())
    yield
    deadline = time.monotonic() + 60
    while set(survivors()) - before and time.monotonic() < deadline:
        select.select([], [], [], 0.01)
    assert set(survivors()) - before == set()


def survivors() -> list[str]:
    """Processes that run as a user of this process's sandboxes, and children of this process."""
    first = 0x70000000 + (os.getpid() % (1 << 14) << 12)
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if first <= int(fields["Uid"].split()[0]) < first + 4096 or int(fields["PPid"]) == os.getpid():
            found.append(f"{fields['Pid']} {fields['Name']}")
    return found


def attack(source: str, *arguments: Any, tier: Tier) -> RunResult:
    """Run ``attack(*arguments)``, and an honest test after it, which must not feel it; both end soon."""
    if "def attack" not in source:
        source = "def attack(*args):\n" + "".join(f"    {line}\n" for line in source.strip().splitlines())
    source += "\ndef f(honest, *args):\n    return 'honest' if honest else attack(*args)\n"
    inputs = (json.dumps([False, *arguments]), "[true]")
    for limits in (LIMITS, UNHURRIED):
        start = time.monotonic()
        hit, honest = run_program(Program(source, "call", inputs, "f"), tier, limits)
        assert time.monotonic() - start < 40 + limits.seconds
        if honest.ending != "timed_out":  # so may a machine under load have it, but not with as much time as the second
            break
    assert honest.result == b'"honest"', honest
    return hit


def held(run: RunResult) -> bool:
    """Whether an attack brought nothing back: it failed, was ended, or returned nothing."""
    return run.ending != "exited" or run.code != 0 or run.result in (b"null", b"false", b'["l"]', b'""', b"0")


def test_the_tier_of_the_red_team_is_said(tier: Tier, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nred team runs in tier {tier}, against {len(HOLDS[tier])} of {len(PROMISES)} promises", end=" ")
    assert run_program(Program("print('up')", "stdin", ("",)), tier, UNHURRIED)[0].stdout == b"up\n"


# --- nothing read ---


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc/hostname",
        "/etc/shadow",
        "/proc/1/environ",
        "/proc/self/maps",
        "/proc/self/environ",
        "/dev/mem",
    ],
)
def test_no_file_of_the_system_is_read(path: str, tier: Tier) -> None:
    need(tier, "reading")
    for how in ("open(args[0], 'rb').read(1)", "__import__('os').listdir(args[0].rpartition('/')[0])"):
        assert held(attack(f"return {how}", path, tier=tier))


def test_no_file_of_the_parent_is_read(tier: Tier, tmp_path: Path) -> None:
    need(tier, "reading")
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    for path in (secret, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o005) if path.stat().st_uid == os.getuid() and path != Path("/") else None
    project = Path(__file__).resolve()
    for path in (secret, project):
        assert held(attack("return open(args[0]).read()", str(path), tier=tier))
        via = "import os\nfd = os.open(args[0], os.O_PATH)\nreturn os.read(os.open('', 0, dir_fd=fd), 1)"
        assert held(attack(via, str(path), tier=tier))


def test_installed_packages_with_their_expected_outputs_are_not_read(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter with packages in its own library, as in a container: this project's problems could lie there."""
    need(tier, "reading")
    copied = interpreters_module.staged_copy(os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable))
    assert copied is not None
    for name in ("site-packages", "dist-packages"):
        package = Path(
            copied.environment[0][1], f"python{sys.version_info[0]}.{sys.version_info[1]}", name, "envs_data"
        )
        package.mkdir(parents=True)
        (package / "problems.json").write_text(SECRET)
        for path in (package.parent, package, package / "problems.json"):
            path.chmod(0o755)
    python = interpreters_module.describe(copied.executable, copied.environment)
    assert python is not None
    monkeypatch.setattr("vpo_envs.sandbox.tiers.interpreter", lambda as_other_user: python)
    source = "import os, zlib\nreturn [open(os.path.join(path, 'envs_data/problems.json')).read() for path in args]"
    assert held(attack(source, *python.hidden, tier=tier))
    assert len([folder for folder in python.hidden if folder.startswith(copied.environment[0][1])]) == 2
    # What is not hidden is still there, or the attack would fail for no reason.
    fine = attack("import os, zlib\nreturn len(open(os.__file__).read()) > 0", tier=tier)
    assert fine.result == b"true"


def test_the_process_of_the_parent_is_not_read(tier: Tier) -> None:
    need(tier, "reading", "tracing")
    places = [f"/proc/{os.getpid()}/{name}" for name in ("environ", "cmdline", "mem", "fd", "maps", "cwd/tests")]
    for place in [*places, "/proc/self/fd", "/proc/self/root/etc/passwd", "/proc/self/cwd"]:
        assert held(attack("import os\nreturn os.listdir(args[0])", place, tier=tier))
        assert held(attack("return open(args[0], 'rb').read(10)", place, tier=tier))


def test_the_environment_of_the_parent_is_not_seen(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    need(tier, "environment")
    monkeypatch.setenv("SECRET", SECRET)
    assert held(attack("import os\nreturn sorted(set(os.environ) - {'PWD', 'LC_CTYPE'})", tier=tier))
    memory = """
import ctypes
found = []
environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')
i = 0
while environ and environ[i]:
    found.append(environ[i].decode())
    i += 1
return [entry for entry in found if not entry.startswith(('PWD=', 'LC_CTYPE=', 'PYTHONHASHSEED=', 'LD_LIBRARY_PATH='))]
"""
    assert held(attack(memory, tier=tier))


def test_no_descriptor_of_the_parent_is_there(tier: Tier, tmp_path: Path) -> None:
    need(tier, "descriptors")
    with (tmp_path / "open.txt").open("w+") as file:
        os.set_inheritable(file.fileno(), True)
        source = """
import os
found = []
for number in range(4, 1024):
    try:
        found.append(os.fstat(number).st_ino)
    except OSError:
        pass
return found
"""
        assert held(attack(source, tier=tier))


def test_file_names_and_other_processes_are_hidden_where_the_tier_says_so(tier: Tier) -> None:
    need(tier, "file_names", "process_list")
    assert held(
        attack("import os\nreturn [p for p in args if os.path.exists(p)]", "/etc/passwd", "/root", "/proc", tier=tier)
    )
    assert held(attack("import os\nreturn os.getppid() > 1", tier=tier))


# --- nothing sent ---


def test_nothing_reaches_a_listener(tier: Tier) -> None:
    need(tier, "network")
    name = f"\0vpo-red-team-{os.getpid()}"
    with ExitStack() as stack:
        tcp, udp, unix, datagrams = [
            stack.enter_context(socket.socket(family, style))
            for family in (socket.AF_INET, socket.AF_UNIX)
            for style in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        ]
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        udp.bind(("127.0.0.1", 0))
        unix.bind(name)
        unix.listen()
        datagrams.bind(name + "-dgram")
        source = """
import socket
tcp, udp, name = args
done = []
def attempt(act):
    try:
        act()
        done.append(True)
    except OSError:
        pass
attempt(lambda: socket.create_connection(("127.0.0.1", tcp), 0.2))
attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", udp)))
attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0" + name))
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "\\0" + name + "-dgram"))
attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", "\\0" + name + "-dgram"))
attempt(lambda: socket.socketpair()[0].sendto(b"x", "\\0" + name + "-dgram"))
attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
return done
"""
        run = attack(source, tcp.getsockname()[1], udp.getsockname()[1], name[1:], tier=tier)
        assert held(run), run
        assert select.select([tcp, udp, unix, datagrams], [], [], 0.05)[0] == []


def test_no_memory_is_shared_under_a_name(tier: Tier) -> None:
    need(tier, "kernel_interfaces", "writing")
    assert held(
        attack(
            "from multiprocessing.shared_memory import SharedMemory\nreturn SharedMemory('x', True, 9).size", tier=tier
        )
    )
    assert held(attack("import os\nreturn os.memfd_create('x')", tier=tier))
    assert held(attack("import os\nreturn os.path.isdir('/dev/shm') and os.listdir('/dev/shm') or None", tier=tier))


# --- nothing written ---


def test_nothing_is_written_anywhere(tier: Tier, tmp_path: Path) -> None:
    need(tier, "writing")
    tmp_path.chmod(0o777)
    kept = tmp_path / "kept.txt"
    kept.write_text("kept")
    kept.chmod(0o666)
    source = """
import os, sys
folder, kept = args
done = []
def attempt(name, act):
    try:
        act()
        done.append(name)
    except OSError:
        pass
for place in ('/', '/tmp', '/var/tmp', '/dev/shm', '/run', '/usr/lib', '.', folder, os.path.dirname(os.__file__)):
    target = place + '/red-team'
    attempt('open ' + place, lambda: open(target, 'w').close())
    attempt('mkdir ' + place, lambda: os.mkdir(target))
    attempt('symlink ' + place, lambda: os.symlink('x', target))
    attempt('mkfifo ' + place, lambda: os.mkfifo(target))
    attempt('tmpfile ' + place, lambda: os.open(place, os.O_TMPFILE | os.O_RDWR))
    attempt('chmod ' + place, lambda: os.chmod(place, 0o777))
for path in (kept, os.__file__):
    attempt('append', lambda: open(path, 'a').close())
    attempt('truncate', lambda: os.truncate(path, 0))
    attempt('open and truncate', lambda: os.open(path, os.O_RDONLY | os.O_TRUNC))
    attempt('unlink', lambda: os.unlink(path))
    attempt('rename', lambda: os.rename(path, path + '2'))
    attempt('link', lambda: os.link(path, path + '3'))
    attempt('utime', lambda: os.utime(path))
    attempt('xattr', lambda: os.setxattr(path, 'user.x', b'1'))
return done
"""
    run = attack(source, str(tmp_path), str(kept), tier=tier)
    assert held(run), run
    assert sorted(tmp_path.iterdir()) == [kept]
    assert kept.read_text() == "kept"


# --- nothing used up ---


BOMBS = {
    "processes": [
        "import os\nwhile True: os.fork()",
        "import subprocess\nreturn subprocess.run(['/bin/true'])",
        "import os\nreturn os.execv('/usr/bin/python3', ['python3'])",
        "import multiprocessing\nreturn multiprocessing.Process(target=print).start() or True",
        "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        held = bytearray(128 << 20)\n"
        "        time.sleep(60)\nreturn 1",
        "import os\nos.setsid()\nreturn 1",
    ],
    "memory": [
        "import threading, time\nthreads = 0\ntry:\n  while True:\n    threading.Thread(target=time.sleep, args=(60,), "
        "daemon=True).start()\n    threads += 1\nexcept RuntimeError:\n  return threads > 100",
        "return len(bytearray(512 << 20))",
        "held = []\nwhile True: held.append('x' * (1 << 20) + str(len(held)))",
        "import mmap\nreturn len([mmap.mmap(-1, 128 << 20) for _ in range(4)])",
        "def g(): return g()\nimport sys\nsys.setrecursionlimit(10 ** 9)\nreturn g()",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nreturn 1",
    ],
    "descriptors": ["import os\npipes = [os.pipe() for _ in range(1000)]\nreturn len(pipes)"],
    "output": [
        "while True: print('x' * 65536)",
        "import os\nwhile True: os.write(2, b'x' * 65536)",
        "import os\nwhile True: os.write(3, b'x' * 65536)",
    ],
    "writing": [
        "for i in range(100000): open(f'/tmp/{i}', 'w')",
        "import os\nfor i in range(100000): os.mkdir(f'd{i}')",
    ],
    "time": [
        "x = 9 ** 9 ** 9\nreturn 1",
        "return eval('(' * 100000)",
        "import time, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(60)\nreturn 1",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))\nreturn 1",
        "import os\nos.nice(-20)\nreturn 1",
    ],
}


@pytest.mark.parametrize(("promise", "bomb"), [(promise, bomb) for promise, bombs in BOMBS.items() for bomb in bombs])
def test_bombs_hurt_their_own_test_alone(promise: str, bomb: str, tier: Tier) -> None:
    need(tier, promise)
    run = attack(bomb, tier=tier)
    assert held(run), run
    assert max(len(run.stdout), len(run.result), len(run.stderr)) <= LIMITS.output_bytes


def test_a_daemon_does_not_survive(tier: Tier) -> None:
    need(tier, "processes")
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
return True
"""
    assert held(attack(source, tier=tier))
    # The fixture sees that nothing is left.


# --- no other process touched ---


@pytest.mark.parametrize(
    "shot",
    [
        "os.kill(args[0], 9)",
        "os.kill(os.getppid(), 9)",
        "os.kill(1, 9)",
        "os.kill(-1, 9)",
        "os.killpg(0, 9)",
        "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
        "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
        "resource.prlimit(args[0], resource.RLIMIT_NOFILE)",
        "fcntl.fcntl(0, 8, os.getppid())",
        "fcntl.fcntl(0, 10, 9)",
        "os.sched_setaffinity(os.getppid(), {0})",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "signal.pthread_kill(threading.main_thread().ident, 0) or os.kill(os.getppid(), 0)",
    ],
)
def test_no_other_process_is_signalled(shot: str, tier: Tier) -> None:
    need(tier, "signals")
    assert held(attack(f"import fcntl, os, resource, signal, threading\n{shot}\nreturn True", os.getpid(), tier=tier))


CALLS = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "unshare": 272, "setns": 308,
        "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "bpf": 321, "perf_event_open": 298,
        "keyctl": 250, "add_key": 248, "shmget": 29, "msgget": 68, "semget": 64, "memfd_create": 319, "seccomp": 317,
        "userfaultfd": 323, "init_module": 175, "kexec_load": 246, "reboot": 169, "swapon": 167, "prctl": 157,
        "personality": 135, "setuid": 105, "capset": 126, "fanotify_init": 300, "inotify_init1": 294, "quotactl": 179,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "unshare": 97, "setns": 268,
        "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280, "perf_event_open": 241, "keyctl": 219,
        "add_key": 217, "shmget": 194, "msgget": 186, "semget": 190, "memfd_create": 279, "seccomp": 277,
        "userfaultfd": 282, "init_module": 105, "kexec_load": 104, "reboot": 142, "swapon": 224, "prctl": 167,
        "personality": 92, "setuid": 146, "capset": 91, "fanotify_init": 262, "inotify_init1": 26, "quotactl": 60,
    },
}  # fmt: skip
GENERIC = {
    "io_uring_setup": 425, "io_uring_enter": 426, "pidfd_open": 434, "pidfd_getfd": 438, "clone3": 435,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "landlock_create_ruleset": 444, "memfd_secret": 447,
    "process_madvise": 440, "openat2": 437, "close_range": 436, "futex_waitv": 449,
}  # fmt: skip


def test_no_way_into_the_kernel_is_open_beyond_the_list(tier: Tier) -> None:
    need(tier, "kernel_interfaces", "tracing")
    calls = {**CALLS.get(platform.machine(), {}), **GENERIC}
    source = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
done = []
for name, number in args[0].items():
    ctypes.set_errno(0)
    # Refused before it is looked at: not permitted or not implemented, whatever the arguments.
    if libc.syscall(number, 0, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38):
        done.append(name)
return done
"""
    run = attack(source, calls, tier=tier)
    assert run.result == b'["l"]', run


def test_no_namespace_or_process_comes_out_of_clone(tier: Tier) -> None:
    need(tier, "kernel_interfaces", "processes")
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
return [flags for flags in args if libc.syscall({number}, flags, 0, 0, 0, 0) >= 0]
"""
    new = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
    assert held(
        attack(source, 17, 0, 0x4111, *new, *(flag | 17 for flag in new), *(flag | 0x10000 for flag in new), tier=tier)
    )


# --- no verdict changed ---

WANTED = "wanted-2b7e"
CHEATS = {
    "sys.exit(0)": "import sys\ndef f(x): sys.exit(0)",
    "exit at once": "import sys\nsys.exit(0)",
    "os._exit(0)": "import os\ndef f(x): os._exit(0)",
    "exit at once, hard": "import os\nos._exit(0)",
    "always equal": "class A:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return A()",
    "always equal str": "class A(str):\n    def __eq__(self, other): return True\ndef f(x): return A('no')",
    "always equal list": "class A(list):\n    def __eq__(self, other): return True\ndef f(x): return A()",
    "always equal int": "class A(int):\n    def __eq__(self, other): return True\ndef f(x): return A(1)",
    "always equal dict": "class A(dict):\n    def __eq__(self, other): return True\ndef f(x): return A()",
    "always equal tuple": "class A(tuple):\n    def __eq__(self, other): return True\ndef f(x): return A((1,))",
    "frames": """
import sys
def f(x):
    frame, seen = sys._getframe(), []
    while frame:
        seen += [value for value in [*frame.f_locals.values(), *frame.f_globals.values()] if 'wanted-' in repr(value)]
        frame = frame.f_back
    return seen[0] if seen else 'nothing'
""",
    "garbage collector": """
import gc
def f(x):
    for thing in gc.get_objects():
        for value in (thing.values() if type(thing) is dict else thing if type(thing) in (list, tuple) else ()):
            if type(value) is str and value.startswith('wanted-') and len(value) < 20:
                return value
    return 'nothing'
""",
    "own memory": """
import re
def f(x):
    # Put together here, so that it does not find itself.
    wanted = re.compile(b'want' + b'ed-2' + b'[0-9a-f]{3}')
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
        for line in maps:
            first, last = (int(part, 16) for part in line.split()[0].split('-'))
            try:
                memory.seek(first)
                found = wanted.search(memory.read(last - first))
            except (OSError, ValueError, OverflowError):
                continue
            if found:
                return found.group().decode()
    return 'nothing'
""",
    "patched json": "import json\njson.dumps = lambda *a, **k: '\"wanted\"'\nclass A: pass\ndef f(x): return A()",
    "patched builtins": "import builtins\nbuiltins.isinstance = lambda *a: True\ndef f(x): return []",
    "patched print": """
import builtins, io, sys
builtins.print = lambda *a, **k: None
class Out(io.StringIO):
    def flush(self): raise SystemExit(0)
sys.stdout = Out()
def f(x): return 1
""",
    "patched exit": "import os, sys\nsys.exit = os._exit = lambda *a: None\ndef f(x): return 1",
    "patched encoder": "import __main__\n__main__.plain = lambda *a: True\ndef f(x): return 1",
    "forged lines": "def f(x):\n    print('{\"passed\": true}\\nOK\\nPASSED\\n1')\n    return 1",
    "forged frames": """
import json, os, struct
def f(x):
    frames = [json.dumps(['exited', 0]).encode(), b'', b'true', b'']
    for fd in range(64):
        for frame in frames * 20:
            try: os.write(fd, struct.pack('>I', len(frame)) + frame)
            except OSError: pass
    os._exit(0)
""",
    "forged result": "import os\ndef f(x):\n    os.write(3, b'true')\n    os._exit(0)",
    "two results": "import os\ndef f(x):\n    os.write(3, b'\"a\"')\n    return 'b'",
    "huge integer": "import os\ndef f(x):\n    os.write(3, b'9' * 900000)\n    os._exit(0)",
    "deep list": "import os\ndef f(x):\n    os.write(3, b'[' * 900000)\n    os._exit(0)",
    "deep result": "def f(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a",
    "self-containing": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "NaN": "import os\ndef f(x):\n    os.write(3, b'NaN')\n    os._exit(0)",
    "nan": "def f(x): return float('nan')",
    "surrogates": "def f(x): return '\\ud800'",
    "a true exit code": "def f(x): raise SystemExit(True)",
    "no answer": "",
    "null bytes": "\0",
    "deep code": "x = " + "(" * 5000 + ")" * 5000,
    "wide code": "x = " + "-" * 60000 + "1",
    "a class for anything": "class Solution:\n    def __getattr__(self, name): return Solution\nf = Solution()",
}


def score(source: str, tier: Tier, limits: Limits = LIMITS) -> CodeOutcome:
    tests = (CodeTest(input="[1]", output=json.dumps(WANTED)), CodeTest(input="[2]", output='["wanted-list", 7]'))
    task = CodeTask(title="", statement="Find out.", kind="call", entry="f", tests=(*tests,))
    return run_tests(task, source, tier, limits)


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_function_passes_without_the_answer(cheat: str, tier: Tier) -> None:
    assert score(CHEATS[cheat], tier).passed == (False, False)


def test_a_function_with_the_answer_passes(tier: Tier) -> None:
    honest = f"def f(x): return {WANTED!r} if x == 1 else ('wanted-list', 7)"
    assert score(honest, tier, UNHURRIED).passed == (True, True)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos._exit(0)",
        "raise SystemExit(0)",
        "import sys\nsys.stdout = None",
        "print('PASSED')\nprint('{\"passed\": true}')",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'wanted\\n')\n    except OSError: pass",
        "print('wanted')\nraise SystemExit(1)",
        "print('wanted')\n1 / 0",
        "print('wanted', flush=True)\nimport time\ntime.sleep(60)",
        "print('wanted', flush=True)\nimport os\nos.abort()",
        "print('\\0wanted')",
    ],
)
def test_no_program_passes_without_the_answer_and_a_clean_end(source: str, tier: Tier) -> None:
    task = CodeTask(title="", statement="Find out.", kind="stdin", tests=(CodeTest(input="", output="wanted\n"),))
    assert run_tests(task, source, tier, LIMITS).passed == (False,)


def test_the_sandbox_is_sent_no_expected_output(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: sent.append(bytes(data)) or write(fd, data))
    score("def f(x): return 1", tier)
    assert sent
    assert b"def f(x)" in b"".join(sent)
    assert WANTED.encode() not in b"".join(sent)
    assert b"wanted-list" not in b"".join(sent)


def test_one_sandbox_leaves_nothing_for_the_next(tier: Tier) -> None:
    spoil = "import builtins, sys\nbuiltins.len = lambda x: 7\nsys.modules['json'] = None\ndef f(x): return len('')"
    assert run_program(Program(spoil, "call", ("[1]",), "f"), tier, UNHURRIED)[0].code in (0, 1)
    clean = run_program(Program("import json\ndef f(x): return len('')", "call", ("[1]",), "f"), tier, UNHURRIED)
    assert clean[0].result == b"0"
