"""Measure the sandbox, tier by tier.

Run with `python benchmarks/sandbox.py`. One candidate has 16 short tests; its wall-clock time includes starting and
ending its sandbox. For a tier that is unavailable, the reason is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from vpo_envs.sandbox import Limits, Program, SandboxUnavailable, Tier, choose_tier, run_program

TARGET = {Tier.A: "<= 120 ms"}
PROGRAM = Program(
    "def squares(n):\n    return sum(i * i for i in range(n))",
    "call",
    tuple(f"[{n}]" for n in range(0, 160, 10)),
    "squares",
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=30, help="candidates run in each tier (default: 30)")
    repeats = parser.parse_args().repeats
    print(f"{repeats} repeats\n{'':<12}{'median':>12}{'nine in ten':>14}{'target':>12}")
    for tier in Tier:
        try:
            choose_tier(tier.value)
        except SandboxUnavailable as error:
            print(f"tier {tier}: {error}")
            continue
        times = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            run_program(PROGRAM, tier, Limits())
            times.append(1e3 * (time.perf_counter() - start))
        median, most = statistics.median(times[1:]), np.quantile(times[1:], 0.9)
        print(f"tier {tier:<7}{median:>9.1f} ms{most:>11.1f} ms{TARGET.get(tier, ''):>12}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
