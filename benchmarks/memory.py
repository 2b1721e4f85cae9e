"""Check that a long run does not grow: train many small steps and watch the resident memory.

    python benchmarks/memory.py --steps 500

The task is the embedded maze with the bundled model on the CPU, with few rollouts a step, and an evaluation and a
checkpoint now and then. Two quantities are compared with the first 50 steps, in which caches, thread pools and buffers
reach their size:

- peak: the most that is resident after any step. It varies with the response lengths of a step, since the C library
  keeps some of the memory that was freed.
- held: resident memory at ten marks, after the C library was asked to return all free memory.

The exit status is 1 if either grows by more than 5 %.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from typing import Any

import psutil
import torch

from vpo_agent.config import make_config
from vpo_agent.trainer import Trainer

SETTLED = 50
"""Steps in which everything reaches its size."""
LIMIT = 0.05


def resident_mib() -> float:
    return psutil.Process().memory_info().rss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help=f"more than {SETTLED} (default: 500)")
    parser.add_argument("--prompts-per-step", type=int, default=4, help="(default: 4)")
    parser.add_argument("--rollouts-per-prompt", type=int, default=4, help="(default: 4)")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="longest response (default: 64)")
    chosen = parser.parse_args()
    if chosen.steps <= SETTLED:
        parser.error(f"--steps must be more than {SETTLED}, got {chosen.steps}")
    torch.set_num_threads(1)
    marks = {SETTLED} | {round(chosen.steps * (i + 1) / 10) for i in range(10)}
    sys.stdout.reconfigure(line_buffering=True)
    resident: dict[int, float] = {}
    held: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as runs:
        config = make_config(
            {
                "env_kwargs": {"preset": "embedded-easy", "prompt_style": "compact"},
                "steps": chosen.steps,
                "prompts_per_step": chosen.prompts_per_step,
                "rollouts_per_prompt": chosen.rollouts_per_prompt,
                "max_new_tokens": chosen.max_new_tokens,
                "learning_rate": 3e-4,
                "device": "cpu",
                "eval_every": 100,
                "eval_every_prompts": 8,
                "checkpoint_every": 50,
                "runs_dir": runs,
                "name": "memory",
            }
        )
        trainer = Trainer(config)
        train_step = trainer.train_step

        def measured() -> dict[str, Any]:
            row = train_step()
            resident[trainer.step] = resident_mib()
            if trainer.step in marks:
                ctypes.CDLL(None).malloc_trim(0)
                held[trainer.step] = resident_mib()
                print(f"step {trainer.step}: {resident[trainer.step]:.0f} MiB, {held[trainer.step]:.0f} held")
            return row

        trainer.train_step = measured
        trainer.train()
    settled, most = resident[SETTLED], max(value for step, value in resident.items() if step > SETTLED)
    print(f"step {SETTLED} itself: {settled:.0f} MiB, at most {most:.0f} after it ({most / settled - 1:+.1%})")
    grown = []
    for name, values in (("peak", resident), ("held", held)):
        before = max(value for step, value in values.items() if step <= SETTLED)
        after = max(value for step, value in values.items() if step > SETTLED)
        grown.append(after / before - 1)
        print(f"{name}: {before:.0f} MiB up to step {SETTLED}, {after:.0f} after it ({grown[-1]:+.1%})")
    sys.exit(max(grown) > LIMIT)


if __name__ == "__main__":
    main()
