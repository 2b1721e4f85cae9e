"""Estimate what training on one to a thousand GPUs takes: memory, time of a step, scoring, staleness.

`python benchmarks/plan.py` prints the tables of docs/scaling.md from the formulas in `plan_formulas.py`;
`tests/project/test_plan.py` checks the page against them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence

import plan_formulas as f
from plan_formulas import ASSUMED, DEVICES, GIGA, SHAPES, Device

PLANNED = {shape.name: shape for shape in SHAPES if shape.name in ("0.6B", "4B", "8B", "32B")}
STAGES = {1: (128, 8), 8: (128, 8), 64: (256, 8), 256: (512, 8), 1024: (1024, 16)}
"""Number of GPUs: prompts in a batch, rollouts of each."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """Return a Markdown table in which all columns after the first ``words`` are aligned right."""
    rule = "|" + "|".join("---" if i < words else "---:" for i in range(len(heads))) + "|"
    first, *others = ("| " + " | ".join(str(cell) for cell in line) + " |" for line in [heads, *rows])
    return "\n".join([first, rule, *others])


def short(value: float) -> str:
    """Return a number to two significant figures, or all digits before the point."""
    if value == 0 or value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"


def memory_table() -> str:
    heads = ["model", "weights", "full", "full, with KL", "LoRA", "cache, KiB a token"]
    rows = []
    for s in SHAPES:
        state = (f.weight_bytes(s, 2), f.whole_bytes(s), f.state_bytes(s, 1), f.whole_bytes(s, rank=16))
        gigabytes = [each / GIGA for each in state]
        responses = 256 * 1500 * f.cache_bytes(s) / GIGA
        rows.append([s.name, *(f"{x:.0f}" for x in gigabytes), f.cache_bytes(s) // 1024, f"{responses:.0f}"])
    return table([*heads, "cache of 256 responses of 1,500 tokens"], rows)


def device_table(device: Device) -> str:
    rates = f"updates reach {ASSUMED.mfu_train:.0%}, decoding {ASSUMED.mfu_decode:.0%}"
    rows = [
        ["memory", f"{device.memory / GIGA:.0f} GB", f"{ASSUMED.memory_used:.0%} planned with"],
        ["memory bandwidth", f"{device.hbm / 1e12:.2f} TB/s", f"decoding reaches {ASSUMED.hbm_reached:.0%}"],
        ["bfloat16, dense", f"{device.operations / 1e12:.0f} TFLOP/s", rates],
        ["NVLink, one way", f"{device.nvlink / GIGA:.0f} GB/s", f"{ASSUMED.link_reached:.0%}, within 8 GPUs"],
        ["network of a GPU, one way", f"{device.network / GIGA:.0f} GB/s", f"{ASSUMED.link_reached:.0%}, beyond"],
    ]
    return table([device.name, "vendor", "assumed"], rows, words=3)


def sharded_table(device: Device) -> str:
    rows = []
    for s in PLANNED.values():
        size, response = f.tensor_parallel(s, device), 3 * ASSUMED.answer
        cells = [f"{f.training_bytes(s, shards) / GIGA:.0f}" for shards in (1, 8, 16, 64)]
        cells += [f"{f.activation_bytes(s) / GIGA:.0f}", str(size), f"{f.weight_bytes(s, 2) / size / GIGA:.0f}"]
        room = f.slots(s, device, kept=0, tensor_parallel=size, response=response)
        rows.append([s.name, *cells, f"{f.cache_bytes(s) * (ASSUMED.prompt + response) / GIGA:.2f}", f"{room:,}"])
    heads = ["model", "training, 1 shard", "8 shards", "16", "64", "activations in it", "generator, GPUs"]
    return table([*heads, "weights a GPU", "cache of a rollout", "rollouts at once"], rows)


def step_table(device: Device) -> str:
    rows = []
    for gpus, (prompts, group) in STAGES.items():
        for s in PLANNED.values():
            rollouts, response = prompts * group, 3 * ASSUMED.answer
            one = f.together(s, device, gpus, rollouts, response)
            two = f.apart(s, device, gpus, rollouts, response)
            cells, more = ["does not fit", "", "", ""], ["", "", ""]
            if one:
                cells = [short(one.generation), short(one.update), f"{one.transfer:.2f}", short(one.seconds)]
            if two:
                more = [f"{two.generators} + {two.trainers}", short(two.seconds), f"{two.lag:.1f}, {two.longest_lag}"]
            best = min((x.seconds for x in (one, two) if x), default=None)
            rate = short(60 * rollouts / best / gpus) if best else ""
            small = [x(s, device, gpus, 1024, response) for x in (f.together, f.apart)] if gpus > 8 else []
            fixed = min((x.seconds for x in small if x), default=None)
            rows.append([gpus, s.name, f"{rollouts:,}", *cells, *more, rate, short(fixed) if fixed else ""])
    heads = ["GPUs", "model", "rollouts", "generate", "update", "transfer", "step", "apart: generate + train", "step"]
    return table([*heads, "lag, longest", "rollouts/min/GPU", "step of 1,024 rollouts"], rows)


def scoring_table(device: Device) -> str:
    """Return what VPO adds to GRPO and what scoring needs, for the model that fits each stage."""
    rows = []
    for gpus, (prompts, group) in STAGES.items():
        s, rollouts = PLANNED["0.6B" if gpus == 1 else "8B"], prompts * group
        lengths = (ASSUMED.answer, 3 * ASSUMED.answer)
        plans = [[plan(s, device, gpus, rollouts, length) for plan in (f.together, f.apart)] for length in lengths]
        grpo, vpo = (min(x.seconds for x in found if x) for found in plans)
        rate = 3 * rollouts / vpo
        cost = f.estimator_seconds(prompts, group, 3, 16, 128)
        cores = [rate * f.SANDBOX_SECONDS, rate * (f.SANDBOX_SECONDS + f.TIME_LIMIT / 20)]
        row = [gpus, s.name, short(grpo), short(vpo), f"{vpo / grpo:.1f}", short(rate), f"{rate * f.MAZE_SECONDS:.2g}"]
        rows.append([*row, *(short(math.ceil(c)) for c in cores), short(1e3 * cost), f"{cost / vpo:.2%}"])
    heads = ["GPUs", "model", "step, GRPO", "step, VPO", "ratio", "answers/s", "cores, maze", "cores, programs"]
    return table([*heads, "with time-outs", "estimator, ms", "of the step"], rows)


def tables(device: Device = DEVICES["h100"]) -> dict[str, str]:
    """Return the tables of docs/scaling.md by title."""
    return {
        "memory of the built-in trainer, GB": memory_table(),
        "device": device_table(device),
        "memory of a GPU, GB": sharded_table(device),
        "time of a step, seconds": step_table(device),
        "scoring and the estimator": scoring_table(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="h100", help="default h100, as on the page")
    for title, text in tables(DEVICES[parser.parse_args().device]).items():
        print(f"{title}\n\n{text}\n")


if __name__ == "__main__":
    main()
