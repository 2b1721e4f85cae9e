"""Measure the sandbox, tier by tier.

Run with `python benchmarks/sandbox.py`. One candidate has 16 short tests; its wall-clock time includes starting and
ending its sandbox. Two candidates in flight are compared with the same candidates one at a time; each needs one core,
so two cores are at most twice as fast. For a tier that is unavailable, the reason is printed.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from vpo_envs import CodeEnv, CodeTask, CodeTest
from vpo_envs.sandbox import Limits, Program, SandboxUnavailable, Tier, choose_tier, run_program

TESTS = 16
TARGET_MS = 120
SOURCE = "def squares(n):\n    return sum(i * i for i in range(n))"
TASK = CodeTask(
    title="Squares",
    statement="Add the squares below n.",
    kind="call",
    entry="squares",
    tests=tuple(CodeTest(input=f"[{n}]", output=str(sum(i * i for i in range(n)))) for n in range(0, 160, 10)),
)


def wall_times(function: Callable[[], object], repeats: int) -> list[float]:
    """Return the milliseconds of each call, after one call to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def candidates_a_second(tier: Tier, workers: int, candidates: int, repeats: int) -> float:
    """Return how many candidates of one batch the environment runs in a second."""
    env = CodeEnv(sandbox=tier.value, allow_unsafe=True, workers=workers)
    pairs = [(TASK, f"{SOURCE}  # {number}") for number in range(candidates)]
    return 1e3 * candidates / statistics.median(wall_times(lambda: env.evaluate_many(pairs), repeats))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=30, help="default 30")
    parser.add_argument("--candidates", type=int, default=16, help="candidates of one batch, default 16")
    parser.add_argument("--parent-gb", type=int, default=0, help="gigabytes that this process takes first, default 0")
    chosen = parser.parse_args()
    taken = np.ones(chosen.parent_gb << 27)

    print(
        f"medians of {chosen.repeats} repeats, {len(os.sched_getaffinity(0))} cores, parent of {taken.nbytes >> 30} GB"
    )
    print(f"{'':<44}{'measured':>16}{'target':>12}")

    def show(name: str, measured: str, target: str = "") -> None:
        print(f"{name:<44}{measured:>16}{target:>12}".rstrip(), flush=True)

    for tier in Tier:
        try:
            choose_tier(tier.value, allow_unsafe=True)
        except SandboxUnavailable as error:
            print(f"tier {tier}: {error}")
            continue
        for count in (TESTS, 1):
            program = Program(SOURCE, "call", tuple(test.input for test in TASK.tests[:count]), TASK.entry)
            run = functools.partial(run_program, program, tier, Limits())
            times = wall_times(run, chosen.repeats)
            target = f"<= {TARGET_MS} ms" if (tier, count) == (Tier.A, TESTS) else ""
            name = f"tier {tier}, one candidate, {count} test{'s' * (count > 1)}"
            show(name, f"{statistics.median(times):.1f} ms", target)
            if count == TESTS:
                show(f"tier {tier}, nine in ten of these within", f"{np.quantile(times, 0.9):.1f} ms")
        few = max(1, chosen.repeats // 6)
        single = candidates_a_second(tier, 1, chosen.candidates, few)
        double = candidates_a_second(tier, 2, chosen.candidates, few)
        show(f"tier {tier}, candidates one at a time", f"{single:.1f} /s")
        show(f"tier {tier}, two in flight", f"{double:.1f} /s")
        show(f"tier {tier}, of that one at a time", f"{double / single:.2f} ×", "> 1")


if __name__ == "__main__":
    main()
