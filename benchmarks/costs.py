"""Measure what a training of each bundled model costs: tokens, processor time and memory.

    python benchmarks/costs.py            # measures, and prints the table
    python benchmarks/costs.py --write    # measures, and writes benchmarks/costs.json and docs/costs.md
    python benchmarks/costs.py --page     # writes docs/costs.md from benchmarks/costs.json

Each model has a process of its own, with one thread. The process takes a few training steps with each method and
evaluates some prompts, with the settings of the preset. Times are processor time, which other load on the machine
disturbs less than the time on the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from vpo_agent.pages.page import markdown_table
from vpo_agent.presets import BUNDLED
from vpo_agent.runs.whole_files import library_versions

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "benchmarks" / "costs.json", ROOT / "docs" / "costs.md"
METHODS = ("grpo", "vpo")
WARMUP, STEPS = 1, 3
PROMPTS = 20
"""Prompts of the evaluation that is measured; its time is scaled to those of the preset."""
HEAD = """# Costs

<!-- python benchmarks/costs.py --page writes this page from benchmarks/costs.json. Do not edit it. -->

What a training of each bundled model takes with `vpo train --preset NAME`: {steps} steps of {prompts} prompts ×
{rollouts} rollouts, and evaluations on {evaluated} test prompts with {answers} answers each. Nothing is downloaded.
"""
TAIL = """
- *Tokens* are those that the model writes in training, if all steps write as many as the first {measured}. Trained
  responses may become shorter. `vpo` writes three answers in a rollout and `grpo` one answer, so `vpo` writes more
  tokens in the same number of steps.
- *Whole run* is {steps} steps and two evaluations, before and after training. Validations during training add about
  {validations:.1f} of an evaluation.
- Times are processor time of the training process on one core: the median of {measured} steps, and an evaluation on
  {scaled} prompts, scaled to {evaluated}. *Memory* is the most that a process held which trained with both methods.
- `python benchmarks/costs.py` measures them again. These are of {day}, on shared virtual cores ({machine}), PyTorch
  {torch}.

Other costs are on their own pages: [a pretrained model on two cores](pretrained.md),
[one GPU](scaling.md#check-a-gpu) and [training inside TRL](scaling.md#differences-from-the-built-in-trainer). The
tables of a study state [the training tokens of every method](results_tables.md). `vpo eval --endpoint` reports
[the tokens that a model behind an endpoint reads and writes](endpoints.md#cost), and `vpo bench --price` states
[their price](bench.md).
"""


def measure(model: str) -> list[dict[str, Any]]:
    """Return what a training with each method costs, measured in this process."""
    import torch

    torch.set_num_threads(1)
    rows = [_measure_method(model, method) for method in METHODS]
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
    return [{**row, "peak_mib": peak} for row in rows]


def _measure_method(model: str, method: str) -> dict[str, Any]:
    from vpo_agent.config import make_config
    from vpo_agent.trainer import Trainer

    preset = BUNDLED[model]
    own = {"method": method, "eval_prompts": PROMPTS, "device": "cpu", "name": "run", "log": "none"}
    seconds, tokens = [], []
    with tempfile.TemporaryDirectory() as folder:
        config = make_config({**preset, **own, "eval_every_prompts": PROMPTS, "runs_dir": folder})
        trainer = Trainer(config)
        for _ in range(WARMUP + STEPS):
            start = time.process_time()
            row = trainer.train_step()
            seconds.append(time.process_time() - start)
            tokens.append(row["response_tokens"] * config.prompts_per_step * config.rollouts_per_prompt)
        start = time.process_time()
        trainer.evaluate("after")
        evaluation = (time.process_time() - start) * preset["eval_prompts"] / PROMPTS
        weights = sum(weight.numel() for weight in trainer.policy.model.parameters())
    return {
        "model": model,
        "method": method,
        "weights": weights,
        "step_tokens": round(statistics.mean(tokens[WARMUP:])),
        "step_seconds": round(statistics.median(seconds[WARMUP:]), 3),
        "evaluation_seconds": round(evaluation, 1),
    }


def measure_all() -> dict[str, Any]:
    """Return the costs of every bundled model and method, with the machine and the versions."""
    rows = []
    for model in BUNDLED:
        command = [sys.executable, __file__, "--one", model]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        rows += json.loads(done.stdout.splitlines()[-1])
    versions = library_versions()
    return {
        "day": date.today().isoformat(),
        "machine": platform.machine(),
        "versions": {name: versions[name] for name in ("python", "torch", "transformers")},
        "rows": rows,
    }


def table(data: dict[str, Any]) -> str:
    """Return the costs as a table."""
    head = ["task", "preset", "weights", "method", "tokens", "s per step", "s per evaluation", "whole run", "memory"]
    body = []
    for row in data["rows"]:
        preset = BUNDLED[row["model"]]
        minutes = (preset["steps"] * row["step_seconds"] + 2 * row["evaluation_seconds"]) / 60
        name = row["model"].removeprefix("tiny-")
        body.append(
            [
                f"`{preset['env']}`",
                f"`{name}-compact`",
                f"{row['weights'] / 1e6:.1f} million",
                f"`{row['method']}`",
                f"{preset['steps'] * row['step_tokens'] / 1e6:.2f} million",
                f"{row['step_seconds']:.2f}",
                f"{row['evaluation_seconds']:.0f}",
                f"{minutes:.1f} min",
                f"{row['peak_mib'] / 1024:.1f} GiB",
            ]
        )
    return markdown_table(head, body, "llrlrrrrr")


def page(data: dict[str, Any]) -> str:
    """Return the page."""
    from vpo_agent.config import make_config

    config = make_config(next(iter(BUNDLED.values())))
    validations = config.steps // config.eval_every + 1
    values = {
        "steps": config.steps,
        "prompts": config.prompts_per_step,
        "rollouts": config.rollouts_per_prompt,
        "evaluated": config.eval_prompts,
        "answers": config.eval_answers,
        "validations": validations * config.eval_every_prompts / config.eval_prompts,
        "measured": STEPS,
        "scaled": PROMPTS,
        "day": data["day"],
        "machine": data["machine"],
        "torch": data["versions"]["torch"],
    }
    return f"{HEAD.format(**values)}\n{table(data)}\n{TAIL.format(**values)}"


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the data file and the page")
    parser.add_argument("--page", action="store_true", help="write the page from the data file, and measure nothing")
    parser.add_argument("--one", metavar="MODEL", help="measure one model, and print its costs as JSON")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one)))
        return
    data = json.loads(DATA.read_text(encoding="utf-8")) if chosen.page else measure_all()
    if chosen.write:
        DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if chosen.write or chosen.page:
        PAGE.write_text(page(data), encoding="utf-8")
    else:
        print(table(data))


if __name__ == "__main__":
    main()
