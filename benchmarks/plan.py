"""What training on one to a thousand GPUs should take, by arithmetic: memory, time of a step, scoring, staleness.

Run with `python benchmarks/plan.py`; it prints the tables of docs/scaling.md. What they rest on stands in
`plan_formulas.py`; `tests/project/test_plan.py` holds the page to them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence

from plan_formulas import (
    ASSUMED,
    DEVICES,
    GIGA,
    MAZE_SECONDS,
    SANDBOX_SECONDS,
    SHAPES,
    TIME_LIMIT,
    Device,
    activation_bytes,
    apart,
    cache_bytes,
    estimator_seconds,
    parameters,
    slots,
    tensor_parallel,
    together,
    training_bytes,
)

PLANNED = {shape.name: shape for shape in SHAPES if shape.name in ("0.6B", "4B", "8B", "32B")}
STAGES = {1: (128, 8), 8: (128, 8), 64: (256, 8), 256: (512, 8), 1024: (1024, 16)}
"""GPUs, and the prompts and rollouts a prompt of a batch that they are given."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, words: int = 1) -> str:
    """A Markdown table whose columns, but for the first ``words``, stand to the right."""
    rule = "|" + "|".join("---" if i < words else "---:" for i in range(len(heads))) + "|"
    first, *others = ("| " + " | ".join(str(cell) for cell in line) + " |" for line in [heads, *rows])
    return "\n".join([first, rule, *others])


def short(value: float) -> str:
    """A number with two figures, or all of those before the point."""
    if value == 0 or value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"


def memory_table() -> str:
    """Memory of the built-in trainer on one device, GB of 10^9 bytes."""
    heads = ["model", "weights", "full", "full, with KL", "LoRA", "cache, KiB a token"]
    rows = []
    for s in SHAPES:
        gigabytes = [each * parameters(s) / GIGA for each in (2, 18, 20, 2.1)]
        responses = 256 * 1500 * cache_bytes(s) / GIGA
        rows.append([s.name, *(f"{x:.0f}" for x in gigabytes), cache_bytes(s) // 1024, f"{responses:.0f}"])
    return table([*heads, "cache of 256 responses of 1,500 tokens"], rows)


def device_table(device: Device) -> str:
    """The vendor's figures and what is assumed of them."""
    rows = [
        ["memory", f"{device.memory / GIGA:.0f} GB", f"{ASSUMED.memory_used:.0%} planned with"],
        ["memory bandwidth", f"{device.hbm / 1e12:.2f} TB/s", f"decoding reaches {ASSUMED.hbm_reached:.0%}"],
        [
            "bfloat16, dense",
            f"{device.operations / 1e12:.0f} TFLOP/s",
            f"updates reach {ASSUMED.mfu_train:.0%}, decoding {ASSUMED.mfu_decode:.0%}",
        ],
        ["NVLink, one way", f"{device.nvlink / GIGA:.0f} GB/s", f"{ASSUMED.link_reached:.0%}, within 8 GPUs"],
        ["network of a GPU, one way", f"{device.network / GIGA:.0f} GB/s", f"{ASSUMED.link_reached:.0%}, beyond"],
    ]
    return table([device.name, "vendor", "assumed"], rows, words=3)


def sharded_table(device: Device) -> str:
    """Memory of a GPU in training and in generation."""
    rows = []
    for s in PLANNED.values():
        size, response = tensor_parallel(s, device), 3 * ASSUMED.answer
        cells = [f"{training_bytes(s, shards) / GIGA:.0f}" for shards in (1, 8, 16, 64)]
        cells += [f"{activation_bytes(s) / GIGA:.0f}", str(size), f"{2 * parameters(s) / size / GIGA:.0f}"]
        room = slots(s, device, kept=0, tensor_parallel=size, response=response)
        rows.append([s.name, *cells, f"{cache_bytes(s) * (ASSUMED.prompt + response) / GIGA:.2f}", f"{room:,}"])
    heads = [
        "model",
        "training, 1 shard",
        "8 shards",
        "16",
        "64",
        "activations in it",
        "generator, GPUs",
        "weights a GPU",
    ]
    return table([*heads, "cache of a rollout", "rollouts at once"], rows)


def step_table(device: Device) -> str:
    """The time of a step at each stage."""
    rows = []
    for gpus, (prompts, group) in STAGES.items():
        for s in PLANNED.values():
            rollouts, response = prompts * group, 3 * ASSUMED.answer
            one = together(s, device, gpus, rollouts, response)
            two = apart(s, device, gpus, rollouts, response) if gpus > 1 else None
            cells = ["does not fit", "", "", ""]
            if one:
                cells = [short(one.generation), short(one.update), f"{one.transfer:.2f}", short(one.seconds)]
            more = ["", "", ""]
            if two:
                more = [f"{two.generators} + {two.trainers}", short(two.seconds), f"{two.lag:.1f}, {two.longest_lag}"]
            best = min((x.seconds for x in (one, two) if x), default=None)
            rate = short(60 * rollouts / best / gpus) if best else ""
            small = [x(s, device, gpus, 1024, response) for x in (together, apart)] if gpus > 8 else []
            fixed = min((x.seconds for x in small if x), default=None)
            rows.append([gpus, s.name, f"{rollouts:,}", *cells, *more, rate, short(fixed) if fixed else ""])
    heads = ["GPUs", "model", "rollouts", "generate", "update", "transfer", "step", "apart: generate + train", "step"]
    return table([*heads, "lag, longest", "rollouts/min/GPU", "step of 1,024 rollouts"], rows)


def scoring_table(device: Device) -> str:
    """What VPO adds to GRPO, and what scoring asks for, with the model that the stage is for."""
    rows = []
    for gpus, (prompts, group) in STAGES.items():
        s, rollouts = PLANNED["0.6B" if gpus == 1 else "8B"], prompts * group
        grpo, vpo = (
            min(x.seconds for x in (together(s, device, gpus, rollouts, m * ASSUMED.answer), second) if x)
            for m in (1, 3)
            for second in [apart(s, device, gpus, rollouts, m * ASSUMED.answer) if gpus > 1 else None]
        )
        rate = 3 * rollouts / vpo
        cost = estimator_seconds(prompts, group, 3, 16, 128)
        cores = [rate * SANDBOX_SECONDS, rate * (SANDBOX_SECONDS + TIME_LIMIT / 20)]
        row = [gpus, s.name, short(grpo), short(vpo), f"{vpo / grpo:.1f}", short(rate), f"{rate * MAZE_SECONDS:.2g}"]
        rows.append([*row, *(short(math.ceil(c)) for c in cores), short(1e3 * cost), f"{cost / vpo:.2%}"])
    heads = ["GPUs", "model", "step, GRPO", "step, VPO", "ratio", "answers/s", "cores, maze", "cores, programs"]
    return table([*heads, "with time-outs", "estimator, ms", "of the step"], rows)


def tables(device: Device = DEVICES["h100"]) -> dict[str, str]:
    """All tables of docs/scaling.md by what they hold."""
    return {
        "memory of the built-in trainer, GB": memory_table(),
        "device": device_table(device),
        "memory of a GPU, GB": sharded_table(device),
        "time of a step, seconds": step_table(device),
        "scoring and the estimator": scoring_table(device),
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="h100", help="default h100, which the page has")
    for title, text in tables(DEVICES[parser.parse_args().device]).items():
        print(f"{title}\n\n{text}\n")


if __name__ == "__main__":
    main()
