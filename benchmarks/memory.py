"""Does a long run keep its memory? Train many small steps and print the resident memory at ten marks.

    python benchmarks/memory.py --steps 500

The task is the embedded maze with the bundled model, on the CPU, with few rollouts a step, an evaluation and a
checkpoint now and then. The drift is how far the memory of any later step is above that of step 50.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from vpo_agent.config import make_config
from vpo_agent.trainer import Trainer

SETTLED = 50
"""The step by which caches, pools of threads and buffers have their size."""


def resident_mib() -> float:
    """Resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help=f"more than {SETTLED} (default: 500)")
    parser.add_argument("--prompts-per-step", type=int, default=4, help="prompts of a step (default: 4)")
    parser.add_argument("--rollouts-per-prompt", type=int, default=4, help="rollouts of each (default: 4)")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="longest response (default: 64)")
    chosen = parser.parse_args()
    if chosen.steps <= SETTLED:
        parser.error(f"--steps must be more than {SETTLED}, got {chosen.steps}")
    torch.set_num_threads(1)
    marks = {round(chosen.steps * (i + 1) / 10) for i in range(10)}
    resident: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as runs:
        config = make_config(
            {
                "env_kwargs": {"preset": "embedded", "prompt_style": "compact"},
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
                print(f"step {trainer.step}: {resident[trainer.step]:.0f} MiB", flush=True)
            return row

        trainer.train_step = measured  # type: ignore[method-assign]
        trainer.train()
    settled = resident[SETTLED]
    most = max(value for step, value in resident.items() if step > SETTLED)
    last = resident[chosen.steps]
    print(f"step {SETTLED}: {settled:.0f} MiB; most after it {most:.0f} ({most / settled - 1:+.1%}), ", end="")
    print(f"at the end {last:.0f} ({last / settled - 1:+.1%})")


if __name__ == "__main__":
    main()
