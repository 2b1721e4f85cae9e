"""Check that a run killed at any moment resumes to the same result.

    python benchmarks/kills.py --kills 20

A small run on the bundled model is made once without interruption. Then runs with the same settings are killed with
SIGKILL at random moments and resumed. Every run that reaches its end is compared with the first by bytes: the final
weights, the state of the optimizer, ``metrics.jsonl`` and the table. The exit status is 1 if any differs. The moments
are uniform over the duration of the first run. Each process is forked from this one, which has loaded the libraries, so
that kills fall into the run and not into imports.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import torch

from vpo_agent import job
from vpo_agent.config import Job, TrainConfig, make_config
from vpo_agent.runs.whole_files import checkpoints

COMPARED = ("metrics.jsonl", "results.json", "results.md")
WEIGHTS = ("model.safetensors", "optimizer.safetensors")


def settings(runs: Path, name: str, steps: int) -> TrainConfig:
    """Return the settings of a run that takes seconds and does everything a long one does."""
    sizes = {"prompts_per_step": 2, "rollouts_per_prompt": 4, "max_new_tokens": 32, "num_weights": 16, "steps": steps}
    often = {"checkpoint_every": 2, "eval_every": 4, "eval_every_prompts": 2, "eval_prompts": 2, "eval_answers": 3}
    method = {"learning_rate": 1e-3, "kl_coef": 0.0, "device": "cpu", "env_kwargs": {"preset": "compact"}}
    return make_config({**sizes, **often, **method, "runs_dir": str(runs), "name": name})


def train(config: TrainConfig) -> None:
    """Start or resume the run, with its output in a log beside its folder."""
    folder = config.runs_dir / str(config.name)
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Half of the time would go into figures, after the last file that is compared.
    job.draw_curves = job.draw_learning = lambda *_: None  # type: ignore[assignment]
    job.train_and_report(Job(config, resume=(folder / "config.json").is_file(), overwrite=False))


def attempt(config: TrainConfig, kill_after: float | None) -> bool:
    """Train in a new process, killed after that many seconds; return whether it got to the end before."""
    process = multiprocessing.get_context("fork").Process(target=train, args=(config,))
    process.start()
    if kill_after is not None:
        process.join(kill_after)
        process.kill()
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        log = (config.runs_dir / str(config.name)).with_suffix(".log").read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"the run {config.name} failed with status {process.exitcode}: {log[-2000:]}")
    return process.exitcode == 0


def differences(first: Path, second: Path) -> list[str]:
    """Return the names of the files whose bytes differ."""
    pairs = [(first / name, second / name) for name in COMPARED]
    last, its_last = checkpoints(first / "checkpoints")[-1], checkpoints(second / "checkpoints")[-1]
    pairs += [(last / name, its_last / name) for name in WEIGHTS]
    return [ours.name for ours, theirs in pairs if ours.read_bytes() != theirs.read_bytes()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="number of kills (default: 20)")
    parser.add_argument("--steps", type=int, default=12, help="steps of a run (default: 12)")
    parser.add_argument("--runs-dir", type=Path, help="folder to keep the runs in; by default they are deleted")
    chosen = parser.parse_args()
    # Several threads would add up in another order, and a process with several cannot be forked safely.
    torch.set_num_threads(1)
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        runs = chosen.runs_dir or Path(temporary)
        runs.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        whole = settings(runs, "whole", chosen.steps)
        attempt(whole, None)
        seconds = time.perf_counter() - began
        print(f"uninterrupted: {chosen.steps} steps, {seconds:.1f} s", flush=True)
        kills, compared, different = 0, 0, 0
        while kills < chosen.kills:
            config = settings(runs, f"killed{compared}", chosen.steps)
            of_this_run = 0
            while not attempt(config, rng.uniform(0, seconds) if kills < chosen.kills else None):
                kills += 1
                of_this_run += 1
            found = differences(runs / "whole", config.runs_dir / str(config.name))
            compared += 1
            different += bool(found)
            print(f"run {compared}, killed {of_this_run} times: {', '.join(found) or 'bit-identical'}", flush=True)
        print(json.dumps({"kills": kills, "runs": compared, "different": different}))
    if different:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
