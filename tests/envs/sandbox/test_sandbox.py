"""The sandbox runs programs as the interpreter would, holds its limits, and says when it cannot be set up."""

from __future__ import annotations

import ast
import json
import logging
import math
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from processes import killing_children

from vpo_envs.sandbox import (
    HOLDS,
    PROMISES,
    Claim,
    Close,
    Limits,
    Program,
    RunResult,
    SandboxUnavailable,
    Tier,
    choose_tier,
    not_held,
    run_program,
    same_output,
)
from vpo_envs.sandbox import interpreters as interpreters_module
from vpo_envs.sandbox.preflight import CANARY, canaries
from vpo_envs.sandbox.seccomp import MACHINES, candidate_filter
from vpo_envs.sandbox.tiers import user_changer
from vpo_envs.sandbox.zygote import plain

SHORT = Limits(seconds=0.5, memory_mb=256)


@cache
def missing(tier: Tier) -> str:
    """Why a tier cannot be had on this machine; empty where it can."""
    try:
        choose_tier(tier.value)
    except SandboxUnavailable as error:
        return str(error)
    return ""


def need(tier: Tier) -> None:
    if missing(tier):
        pytest.skip(missing(tier))


@pytest.fixture(scope="module")
def tier() -> Tier:
    return choose_tier()


def call(source: str, *arguments: Any, tier: Tier, limits: Limits = Limits()) -> RunResult:  # noqa: B008 - frozen
    return run_program(Program(source, "call", (json.dumps(arguments),), "f"), tier, limits)[0]


def program(source: str, *inputs: str, tier: Tier, limits: Limits = Limits()) -> list[RunResult]:  # noqa: B008
    return run_program(Program(source, "stdin", inputs), tier, limits)


# --- tiers ---


@pytest.mark.parametrize("each", list(Tier))
def test_every_tier_holds_its_canaries(each: Tier) -> None:
    need(each)
    assert canaries(each) == []


def test_canaries_get_through_where_nothing_holds_them() -> None:
    attacks = {name: [] for name in PROMISES if name not in ("time", "output")} | {
        "tracing": [[("getpid", 39)]],
        "kernel_interfaces": [[("getpid", 39)]],
        "memory": [1],
    }
    script = f"{CANARY}\nprint([name for name, given in {attacks}.items() if answer(name, *given)])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    assert ast.literal_eval(done.stdout) == [name for name in attacks if name != "descriptors"]


def test_each_tier_holds_no_more_than_the_better_one() -> None:
    for better, worse in zip(list(Tier), list(Tier)[1:], strict=False):
        assert set(HOLDS[worse]) <= set(HOLDS[better])
    assert not_held(Tier.A) == []
    assert not_held(Tier.B) == [PROMISES["file_names"], PROMISES["process_list"]]


def test_the_table_in_the_security_document_is_what_the_tiers_hold() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = {
        cells[0].strip("`"): (cells[1], cells[2:])
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
        if len(cells) == 4 and cells[0].startswith("`")
    }
    assert {name: phrase for name, (phrase, _) in rows.items()} == PROMISES
    for i, each in enumerate(Tier):
        assert tuple(name for name in PROMISES if rows[name][1][i] == "yes") == tuple(
            name for name in PROMISES if name in HOLDS[each]
        )
        assert all(marks[i] in ("yes", "no") for _, marks in rows.values())


def test_without_bubblewrap_the_next_tier_is_used() -> None:
    code = """
from vpo_envs.sandbox import *
try:
    print(choose_tier())
except SandboxUnavailable:
    print("none")
try:
    choose_tier("A")
except SandboxUnavailable as error:
    print(error)
"""
    environment = {**os.environ, "VPO_SANDBOX_BWRAP": "/nowhere/bwrap"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    chosen, reason = done.stdout.splitlines()
    assert chosen == ("none" if missing(Tier.B) else "B")
    assert reason.endswith("(A: VPO_SANDBOX_BWRAP=/nowhere/bwrap is not a program)")


@pytest.mark.parametrize("changer", ["setpriv", "popen"])
def test_root_starts_each_sandbox_as_a_user_of_its_own(
    changer: str, monkeypatch: pytest.MonkeyPatch, tier: Tier
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process as another user")
    if changer == "popen":
        monkeypatch.setattr("vpo_envs.sandbox.tiers.user_changer", lambda: None)
    elif user_changer() is None:
        pytest.skip("setpriv is not installed")
    source = "import os\ndef f():\n    return [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()]"
    seen = [json.loads(call(source, tier=tier).result)[1:] for _ in range(2)]
    for ids in seen:
        assert len(ids) == 4
        assert len(set(ids)) == 1
        assert ids[0] != 0
    assert seen[0] != seen[1] or seen[0][0] == 65534


def test_the_preflight_logs_the_tier_and_what_it_does_not_guarantee(caplog: pytest.LogCaptureFixture) -> None:
    need(Tier.B)
    from vpo_envs.sandbox import preflight

    with caplog.at_level(logging.INFO, "vpo_envs.sandbox"):
        assert preflight._try(Tier.B) == ""
    assert "sandbox tier B passed its preflight" in caplog.text
    assert "cannot ask whether a file exists" in caplog.text


def test_an_unknown_tier_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown sandbox tier 'C': choose one of auto, A, B"):
        choose_tier("C")  # type: ignore[arg-type]  # the error is about just that


@pytest.mark.parametrize("each", list(Tier))
def test_every_tier_gives_the_same_runs(each: Tier) -> None:
    need(each)
    source = "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))\n"
    runs = program(source, "1 2\n3 4\n", "", "x\n", tier=each)
    assert [run.stdout for run in runs] == [b"3\n7\n", b"", b""]
    assert [(run.ending, run.code) for run in runs] == [("exited", 0), ("exited", 0), ("exited", 1)]
    assert b"invalid literal" in runs[2].stderr


# --- as the interpreter would ---


@pytest.mark.parametrize(
    ("source", "code", "out"),
    [
        ("print(input())", 0, b"one\n"),
        ("import sys\nprint(sys.stdin.read().split())", 0, b"['one', 'two']\n"),
        ("import sys\nprint(sys.stdin.buffer.readline())", 0, b"b'one\\n'\n"),
        ("print(open(0).read(), end='')", 0, b"one\ntwo\n"),
        ("import os\nos.write(1, os.read(0, 4))", 0, b"one\n"),
        ("import sys\ndef main():\n    print(input())\nsys.exit(main())", 0, b"one\n"),
        ("import sys\nif __name__ == '__main__':\n    print('main')\n    sys.exit(0)", 0, b"main\n"),
        ("import sys\nprint('before')\nsys.exit(3)", 3, b"before\n"),
        ("import sys\nprint('before')\nsys.exit('message')", 1, b"before\n"),
        ("raise SystemExit", 0, b""),
        ("print('before')\n1 / 0", 1, b"before\n"),
        ("def f(:", 1, b""),
        ("import atexit\natexit.register(lambda: print('last'))\nprint('first')", 0, b"first\nlast\n"),
        ("import threading\nthreading.Thread(target=lambda: print(input())).start()", 0, b"one\n"),
        ("import os\nprint('lost')\nos._exit(0)", 0, b""),
        ("import os\nos.abort()", -11, b""),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))", 0, b"A(x=1)\n"),
        ("import sys\nsys.setrecursionlimit(30000)\nf = lambda n: n and f(n - 1)\nprint(f(20000))", 0, b"0\n"),
        ("import asyncio\nasync def f():\n    return 5\nprint(asyncio.run(f()))", 0, b"5\n"),
        ("import decimal, fractions, statistics, zlib, hashlib, datetime\nprint(hashlib.md5().name)", 0, b"md5\n"),
        ("print('\\u00e9\\U0001f600')", 0, "é😀\n".encode()),
        ("import sys\nprint(sys.argv, __file__ if '__file__' in globals() else '')", 0, b"['answer.py'] \n"),
    ],
)
def test_programs_run_as_the_interpreter_would_run_them(source: str, code: int, out: bytes, tier: Tier) -> None:
    run = program(source, "one\ntwo\n", tier=tier)[0]
    assert (run.ending, run.stdout) == ("exited", out), run.stderr
    assert run.code == code or (code < 0 and run.code < 0)


ENDINGS = {
    "exit": "print(7)\nexit()",
    "exit with a code": "print(7)\nexit(0)",
    "quit": "print(7)\nquit()",
    "sys.exit": "import sys\nprint(7)\nsys.exit()",
    "raised": "print(7)\nraise SystemExit(0)",
    "exit in a function": "def main():\n    print(7)\n    exit()\nmain()\nprint(8)",
    "exit that names a failure": "print(7)\nexit('no')",
    "input after quit": "print(7)\ntry:\n    quit()\nexcept SystemExit:\n    pass\nprint(8)",
    "a file of its own": "out = open(1, 'w')\nout.write('7\\n')",
    "a file of its own after print": "out = open(1, 'w')\nout.write('8\\n')\nprint(7)",
    "a binary file": "import io\nout = io.BufferedWriter(io.FileIO(1, 'w'))\nout.write(b'7\\n')",
    "os.fdopen": "import os\nprint(7, file=os.fdopen(1, 'w'))",
    "os.write": "import os\nos.write(1, b'7\\n')",
    "the buffer": "import sys\nsys.stdout.buffer.write(b'7\\n')",
    "a kept stdout": "import io, sys\nout = sys.stdout\nsys.stdout = io.StringIO()\nprint(7)\nout.write('7\\n')",
    "__stdout__": "import sys\nsys.stdout = None\nsys.__stdout__.write('7\\n')",
    "another wrapper": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint(7)",
    "a file in a cycle": "class A: pass\na = A()\na.a, a.out = a, open(1, 'w')\na.out.write('7\\n')\ndel a",
    "a file of a library": "import builtins\nbuiltins.out = open(1, 'w')\nout.write('7\\n')",
    "atexit": "import atexit, sys\natexit.register(lambda: sys.__stdout__.write('7\\n'))",
    "a finaliser": "class A:\n    def __del__(self):\n        print(7)\na = A()",
    "a finaliser with a global": "n = 7\nclass A:\n    def __del__(self):\n        print(n)\na = A()\ndef f(): pass",
    "a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print(7))).start()",
    "a closed stdout": "import sys\nprint(7)\nsys.stdout.close()",
    "a stdout that cannot be flushed": "import os\nprint(7)\nos.close(1)",
    "a replaced builtin": "import builtins\nbuiltins.print = lambda text, f=print: f(text + 1)\nprint(6)",
}
"""Programs with output that they leave to the interpreter, by name."""


@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_ends_as_the_interpreter_ends_it(name: str, tier: Tier) -> None:
    command = [sys.executable, "-I", "-X", "utf8", "-c", ENDINGS[name]]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    run = program(ENDINGS[name], "", tier=tier)[0]
    assert (run.ending, run.stdout, run.code) == ("exited", done.stdout, done.returncode), run.stderr


@pytest.mark.parametrize(
    "recursion",
    [
        "def f(n):\n    return n and f(n - 1)",
        "@cache\ndef f(n):\n    return n and f(n - 1)",
        "class Solution:\n    def f(self, n):\n        return n and self.f(n - 1)",
        "def f(n):\n    return n and sum(f(m - 1) for m in [n])",
        "def f(n):\n    return n and max(map(f, [n - 1]))",
    ],
)
def test_functions_and_programs_recurse_as_deeply_as_the_judge_of_livecodebench_lets_them(
    recursion: str, tier: Tier
) -> None:
    run = call(recursion, 12_000, tier=tier)
    assert run.result == b"0", run.stderr
    run = program(f"{recursion}\nprint((Solution().f if 'Solution' in globals() else f)(12000))", "", tier=tier)[0]
    assert run.stdout == b"0\n", run.stderr
    endless = "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n"
    assert int(call(endless, 0, tier=tier).result) == pytest.approx(50_000, abs=100)


def test_programs_print_numbers_of_any_length(tier: Tier) -> None:
    run = program("n = int(input())\nprint(n * 10)", "9" * 6000, tier=tier)[0]
    assert same_output(run.stdout, "9" * 6000 + "0"), run.stderr


def test_expressions_recurse_as_deeply_as_the_interpreter_lets_them(tier: Tier) -> None:
    asked = Program("def f(n):\n    return n and f(n - 1)", "expression", ("f(900)", "f(1000)"))
    assert [run.result for run in run_program(asked, tier, Limits())] == [b"0", b""]


@pytest.mark.parametrize("name", ["Counter", "List", "gcd", "inf", "bisect_left", "heapq", "sys", "json", "reduce"])
def test_the_names_of_the_judge_of_livecodebench_need_no_import(name: str, tier: Tier) -> None:
    assert program(f"print({name} is not None)", "", tier=tier)[0].stdout == b"True\n"
    assert call(f"def f():\n    return {name} is not None", tier=tier).result == b"true"


def test_a_predefined_name_is_no_answer(tier: Tier) -> None:
    empty = [Program("x = 1", "call", ("[4, 6]",), "gcd"), Program("x = 1", "expression", ("gcd(4, 6)",))]
    named = [asked._replace(source="from math import gcd") for asked in empty]
    results = [run_program(asked, tier, Limits())[0].result for asked in (*empty, *named)]
    assert results == [b"", b"", b"2", b"2"]


def test_large_inputs_and_outputs_pass_through(tier: Tier) -> None:
    text = "0123456789" * 100_000
    assert program("import sys\nsys.stdout.write(sys.stdin.read())", text, tier=tier)[0].stdout == text.encode()
    assert program("pass", text, tier=tier)[0].ending == "exited"


@pytest.mark.parametrize(
    "source",
    [
        "def f(a, b):\n    return a + b",
        "class Solution:\n    def f(self, a: List[int], b: List[int]) -> List[int]:\n        return a + b",
        "from __future__ import annotations\nf = lambda a, b: [*a, *b]",
        "print('noise')\nimport operator\nf = operator.add\nif __name__ == '__main__':\n    raise ValueError",
    ],
)
def test_functions_are_found_as_they_are_written(source: str, tier: Tier) -> None:
    run = call(source, [1], [2, 3], tier=tier)
    assert Claim(run.result).equals([1, 2, 3], as_json=True), run.stderr


def test_what_one_test_changes_no_other_test_sees(tier: Tier) -> None:
    source = (
        "import builtins\nseen = []\ndef f(x):\n    seen.append(x)\n    builtins.len = lambda _: 99\n    return seen"
    )
    runs = run_program(Program(source, "call", ("[1]", "[2]"), "f"), tier, Limits())
    assert [run.result for run in runs] == [b'["l",1]', b'["l",2]']


def test_setup_runs_between_the_answer_and_an_expression(tier: Tier) -> None:
    asked = Program(
        "class Node:\n    pass", "expression", ("root.x", "[root.x] * 2"), setup="root = Node()\nroot.x = 5"
    )
    assert [run.result for run in run_program(asked, tier, Limits())] == [b"5", b'["l",5,5]']


def test_equal_runs_are_equal_also_where_code_draws_or_hashes(tier: Tier) -> None:
    source = "import random\ndef f():\n    return [random.random(), list({'a', 'b', 'c', 'd', 'e'}), hash('text')]"
    assert len({call(source, tier=tier).result for _ in range(3)}) == 1


# --- limits ---


def test_every_test_is_run_also_after_one_that_fails(tier: Tier) -> None:
    source = """
import os, sys, time
task = input()
if task == "sleep": time.sleep(60)
if task == "loop":
    while True: pass
if task == "eat": bytearray(1 << 30)
if task == "crash": os.abort()
if task == "flood":
    while True: print("x" * 1000)
print("fine")
"""
    asked = ("fine", "sleep", "crash", "fine", "flood", "eat", "loop", "fine")
    runs = program(source, *asked, tier=tier, limits=SHORT)
    endings = ["exited", "timed_out", "exited", "exited", "output_limit", "exited", "timed_out", "exited"]
    assert [run.ending for run in runs] == endings
    assert [run.stdout == b"fine\n" for run in runs] == [name == "fine" for name in asked]
    assert b"MemoryError" in runs[5].stderr
    assert runs[2].code < 0


def test_output_just_below_its_limit_is_kept_and_more_is_not(tier: Tier) -> None:
    limits = Limits(output_bytes=1000)
    sizes = ["998", "999", "1000", "50000"]
    runs = program("print('x' * int(input()))", *sizes, tier=tier, limits=limits)
    assert [run.ending for run in runs] == ["exited", "exited", "output_limit", "output_limit"]
    assert all(len(run.stdout) <= 1000 for run in runs)


def test_no_descriptor_is_left_open(tier: Tier) -> None:
    call("def f():\n    return 1", tier=tier)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        call("def f():\n    return 1", tier=tier)
        call("def f():\n    while True: pass", tier=tier, limits=Limits(seconds=0.05))
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("each", [Tier.A, Tier.B])
def test_a_failure_of_the_host_is_no_result_of_the_code(each: Tier) -> None:
    need(each)
    with killing_children(), pytest.raises(SandboxUnavailable, match=f"tier {each}: a sandbox failed twice on test 1"):
        program("import time\ntime.sleep(30)", "", tier=each, limits=Limits(seconds=40.0))


# --- setting up ---


def test_a_python_out_of_reach_is_copied(monkeypatch: pytest.MonkeyPatch, tier: Tier) -> None:
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    copied = interpreters_module.staged_copy(executable)
    assert copied is not None
    assert copied.version == sys.version.split()[0]
    monkeypatch.setattr("vpo_envs.sandbox.tiers.interpreter", lambda as_other_user: copied)
    run = call("import sys, zlib\ndef f():\n    return sys.executable", tier=tier)
    assert json.loads(run.result) == copied.executable


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_the_filter_is_an_allow_list(machine: str) -> None:
    calls = MACHINES[machine].calls
    for forbidden in ("ptrace", "mount", "unshare", "bpf", "memfd_create", "connect", "unlinkat", "io_uring_setup"):
        assert forbidden not in calls
    code = candidate_filter(machine)
    assert code is not None
    assert len(code) % 8 == 0
    assert len(code) // 8 < 4096
    assert candidate_filter("pdp11") is None


def test_system_call_numbers_are_those_of_the_kernel_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("the kernel's headers for x86-64 are not installed")
    words = [line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_")]
    numbers = {name.removeprefix("__NR_"): int(number) for _, name, number in words}
    assert {name: numbers[name] for name in MACHINES["x86_64"].calls} == MACHINES["x86_64"].calls


# --- comparing values ---

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
KEYS = st.integers(-5, 5) | st.text(max_size=3)
EXACT = KEYS | st.none() | st.binary(max_size=4)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.sets(KEYS, max_size=4)
            | st.dictionaries(KEYS, inner, max_size=3)
        ),
        max_leaves=10,
    )


RICH = nested(EXACT | st.complex_numbers(max_magnitude=10, allow_nan=False))


def claim(value: object) -> Claim:
    return Claim(json.dumps(plain(value)).encode())


@given(PLAIN)
def test_json_values_equal_themselves(value: object) -> None:
    assert claim(value).equals(value, as_json=True)
    assert claim(value).equals(json.loads(json.dumps(value)), as_json=True)


@given(RICH)
def test_python_values_equal_themselves_after_a_literal(value: object) -> None:
    assert claim(value).equals(ast.literal_eval(repr(value)), as_json=False)


@given(nested(EXACT), nested(EXACT))
def test_python_values_differ_where_python_says_so(left: object, right: object) -> None:
    assert claim(left).equals(right, as_json=False) == (left == right)


@pytest.mark.parametrize(
    ("value", "expected", "as_json", "equal"),
    [
        ((1, 2), [1, 2], True, True),
        ((1, 2), [1, 2], False, False),
        (True, 1, True, False),
        (True, 1, False, True),
        (1, True, True, False),
        (2.0, 2, True, True),
        (0.1 + 0.2, 0.3, True, True),
        (0.3001, 0.3, True, False),
        (float("nan"), 1.0, True, False),
        (float("nan"), float("nan"), False, True),
        (float("inf"), float("inf"), False, True),
        (10**400, float("inf"), False, False),
        (10**400, 1.5, True, False),
        ({1: 2}, {"1": 2}, True, True),
        ({1: 2}, {"1": 2}, False, False),
        ({1, 2}, {2, 1}, False, True),
        ({1, 2}, {2, 3}, False, False),
        ([1, [2, ("x", None)]], [1, [2, ["x", None]]], True, True),
        (b"ab", b"ab", False, True),
        ("1", 1, True, False),
        ([], [[]], True, False),
        (1 + 2j, 1 + 2j, False, True),
    ],
)
def test_values_compare_by_type(value: object, expected: object, as_json: bool, equal: bool) -> None:
    assert claim(value).equals(expected, as_json=as_json) is equal


@pytest.mark.parametrize(
    "forged", [b"", b"{", b"NaN", b"[" * 100_000, b'["l"', b"\xff", b"1" * 5000, b"[" * 50_000 + b"]" * 50_000]
)
def test_bytes_that_are_no_value_are_an_error(forged: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the reason is
        Claim(forged)


@pytest.mark.parametrize(
    "forged", [b'["d",1]', b'["d",[1]]', b'["f","x"]', b'["f",1]', b"[[],1]", b'{"a":1}', b'["c","0x1p0"]']
)
def test_malformed_trees_equal_nothing(forged: bytes) -> None:
    for expected in ({}, {1: 2}, 1.0, [1], 1j, [], None):
        assert not Claim(forged).equals(expected, as_json=False)


def test_a_claim_larger_than_expected_costs_nothing() -> None:
    big = json.dumps(["s", *[i * ((1 << 61) - 1) for i in range(100_000)]]).encode()
    start = time.process_time()
    assert not Claim(big).equals({1, 2, 3}, as_json=False)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("written", "expected", "same"),
    [
        (b"1 2\n", "1 2", True),
        (b"1 2  \n\n\n", "1 2\n", True),
        (b"1 2\r\n3\r\n", "1 2\n3", True),
        (b"\n  YES\n", "YES\n", True),
        (b"1\n\n2\n", "1\n2\n", False),
        (b"1  2\n", "1 2\n", True),
        (b"a  b\n", "a b\n", False),
        (b"1\n2\n", "1 2\n", False),
        (b"", "", True),
        (b"\xff", "?", False),
        (b"1.0\n", "1", True),
        (b"1.50 +2 3e2\n", "1.5 2 300", True),
        (b"0.3333333333333333\n", "0.333333333333", True),
        (b"0.33333\n", "0.333333333333", False),
        (b"123456789.5\n", "123456790.0", True),
        (b"4.9999999\n", "5", False),
        (b"4.9999999\n", "5.0", True),
        (b"50000000000000001\n", "50000000000000000", False),
        (b"5e16\n", "50000000000000000", True),
        (b"1 2\n", "1 2 3", False),
        (b"YES 1.0\n", "YES 1", False),
        (b"nan\n", "NaN", False),
        (b"inf\n", "1e400", False),
        (b"1_000\n", "1000", False),
        ("\u0661\n".encode(), "1", False),
        (b"0x10\n", "16", False),
        (b"1e99999999\n", "1e99999998", False),
        (b".\n", "0", False),
    ],
)
def test_output_compares_line_by_line(written: bytes, expected: str, same: bool) -> None:
    assert same_output(written, expected) is same


@given(st.lists(st.integers(-(10**20), 10**20), min_size=1, max_size=4), st.integers(-2, 2), st.data())
def test_whole_numbers_are_compared_exactly_however_they_are_written(
    numbers: list[int], change: int, data: st.DataObject
) -> None:
    forms = [str, "{:+d}".format, "{:d}.0".format, "{:d}.".format, "{:d}e0".format, "{:d}0e-1".format]
    changed = [numbers[0] + change, *numbers[1:]]
    written = data.draw(st.sampled_from([" ", "  ", "\t"])).join(data.draw(st.sampled_from(forms))(n) for n in changed)
    assert same_output(f" {written}\n".encode(), " ".join(map(str, numbers))) is (change == 0)


@given(st.floats(-1e9, 1e9), st.floats(-3e-6, 3e-6))
def test_decimals_are_compared_as_contests_do(number: float, error: float) -> None:
    written = number + error * max(1.0, abs(number))
    expected = f"{number!r} 1"
    limit = 1e-6 * max(1.0, abs(number), abs(written))
    if abs(abs(written - number) - limit) > 1e-9 * limit:
        assert same_output(f"{written!r} 1".encode(), expected) is (abs(written - number) < limit)


def test_long_output_is_compared_in_linear_time() -> None:
    digits = "9" * (4 << 20)
    start = time.process_time()
    for written, expected in ((digits, "1.5"), ("1 " * (2 << 20), "2 " * 4000), ("\n" * (4 << 20) + "1", "1")):
        same_output(written.encode(), expected)
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("value", "number", "tolerances", "equal"),
    [
        (12.56, 12.566, {"rel_tol": 1e-3}, True),
        (12.5, 12.566, {"rel_tol": 1e-3}, False),
        (12, 12.5, {"abs_tol": 0.5}, True),
        (True, 1.0, {}, True),
        ("12.566", 12.566, {}, False),
        ([12.566], 12.566, {}, False),
        (12.566 + 0j, 12.566, {}, False),
        (10**400, 1.0, {"rel_tol": 1e-3}, False),
        (float("nan"), 1.0, {"abs_tol": 9.0}, False),
    ],
)
def test_a_number_has_the_tolerances_of_isclose(
    value: object, number: float, tolerances: dict[str, float], equal: bool
) -> None:
    assert claim(value).equals(Close(number, **tolerances), as_json=False) is equal


@given(st.floats(), st.floats(), st.floats(0, 2), st.floats(0, 2))
def test_close_is_isclose(value: float, number: float, rel_tol: float, abs_tol: float) -> None:
    expected = math.isclose(value, number, rel_tol=rel_tol, abs_tol=abs_tol)
    assert claim(value).equals(Close(number, rel_tol, abs_tol), as_json=False) is expected


@pytest.mark.parametrize("tolerances", [{"rel_tol": -1.0}, {"abs_tol": "1"}, {"rel_tol": None}])
def test_tolerances_are_numbers(tolerances: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Close(1.0, **tolerances)
