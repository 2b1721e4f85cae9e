"""Teach a pretrained instruction model a task, then train this base with VPO and with GRPO.

`make smollm2` fetches SmolLM2-135M-Instruct, 93 MB. Without options this trains it on two CPU cores, in under an hour:

    python examples/train_pretrained.py

Any other causal language model, by name, folder or GGUF file; every setting of `vpo train` applies to both trainings:

    python examples/train_pretrained.py --model Qwen/Qwen3-0.6B --name qwen --steps 200

The same command continues after a stop, and what is finished is kept. `--methods vpo` and `--methods grpo` train in two
processes side by side. `--methods` alone makes only the base. `--warm-steps` and `--warm-batch` set the steps of the
warm start and the responses per step.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from vpo_agent.command import main as vpo
from vpo_agent.command.options import parse_job
from vpo_agent.command.parser import Parser, at_least, run_script
from vpo_agent.config import Job, TrainConfig, make_config
from vpo_envs.common.libraries import check_libraries
from vpo_envs.common.wording import counted

SMOLLM2 = Path("models") / "SmolLM2-135M-Instruct.Q4_1.gguf"
"""Where `make smollm2` puts the model."""
PRESETS = {
    "musique": {
        "env": "vpo/MuSiQue-v0",
        "env_kwargs": {"preset": "compact"},
        "model": str(SMOLLM2),
        "lora_rank": 16,
        "dtype": "bfloat16",
        "prompts_per_step": 4,
        "rollouts_per_prompt": 6,
        "max_new_tokens": 60,
        "steps": 60,
        "learning_rate": 2e-4,
        "warmup_steps": 5,
        "kl_coef": 0.0,
        "checkpoint_every": 10,
        "eval_prompts": 50,
        "eval_answers": 30,
    }
}
RESPONSES = 4
"""Demonstrated responses that share a prompt."""


def main() -> None:
    check_libraries()
    own = Parser(add_help=False, allow_abbrev=False)
    own.add_argument("--methods", nargs="*", default=["vpo", "grpo"])
    own.add_argument("--warm-steps", type=at_least(1), default=60)
    own.add_argument("--warm-batch", type=at_least(RESPONSES), default=16)
    chosen, options = own.parse_declared()
    config = parse_job(options, description=__doc__, presets=PRESETS).config
    if config.model == str(SMOLLM2) and not SMOLLM2.exists():
        raise ValueError(f"there is no file {config.model!r}: fetch it with `make smollm2`, or name a --model")
    folder = config.runs_dir / (config.name or "pretrained")
    warm_start(config, folder / "base", chosen)
    for method in chosen.methods:
        train(config, folder, method)
    if chosen.methods:
        report(folder, chosen.methods)


def warm_start(config: TrainConfig, base: Path, chosen: argparse.Namespace) -> None:
    """Teach the model the task's answers, in sets of one and of three; continue where it was stopped."""
    from vpo_agent.runs.whole_files import newest_whole

    print(f"== warm start: {config.model} learns the demonstrations of {config.env}", flush=True)
    if (base / "tokenizer_config.json").is_file():  # It is saved last.
        print(f"{base} is there")
        return
    recipe = {
        "env": config.env,
        "env-kwargs": json.dumps(config.env_kwargs),
        "model": config.model,
        "lora-rank": config.lora_rank,
        "dtype": config.dtype,
        "seed": config.seed,
        "max-new-tokens": config.max_new_tokens,
        "steps": chosen.warm_steps,
        "batch": chosen.warm_batch // RESPONSES * RESPONSES,
        "responses": RESPONSES,
        "learning-rate": 1e-3 if config.lora_rank else 1e-4,
        "eval-every": 40,
        "eval-prompts": 8,
        "eval-answers": 12,
        "out": base,
        "device": config.device,
    }
    options = [text for name, value in recipe.items() for text in (f"--{name}", str(value))]
    found, _ = newest_whole(base / "checkpoints")
    if status := vpo(["warm-start", *options, *(["--resume"] if found else [])]):
        sys.exit(status)


def train(config: TrainConfig, folder: Path, method: str) -> None:
    """Train the base with one method; continue where it was stopped."""
    from vpo_agent.job import train_and_report

    print(f"== {method}: {counted(config.steps, 'step')} from {folder / 'base'}", flush=True)
    if (folder / method / "results.json").is_file():
        print(f"{folder / method} is there")
        return
    changes = {"model": str(folder / "base"), "method": method, "name": method, "runs_dir": folder}
    settings = make_config({**config.model_dump(), **changes})
    train_and_report(Job(settings, resume=(folder / method / "config.json").is_file(), overwrite=False))


def report(folder: Path, methods: list[str]) -> None:
    """Print and save one table of the base and all methods, on the same held-out tasks."""
    from vpo_agent.measure.intervals import over_prompts
    from vpo_agent.measure.measures import WHOLE, name_at, passes
    from vpo_agent.measure.metrics import best_at_k_whole
    from vpo_agent.measure.pool import Pool
    from vpo_agent.measure.summary import summarise
    from vpo_agent.pages.page import markdown_table
    from vpo_agent.report.tables import interval, number

    columns, values = [], []
    for method in methods:
        for when in ("before", "after"):
            pool = Pool.load(folder / method / f"pool_{when}.npz")
            summary = summarise(pool)
            few, many = min(3, summary.k), summary.k
            measures = {
                name_at("utility", few, WHOLE): summary.at_k("utility", few),
                name_at("utility", many, WHOLE): summary.at_k("utility", many),
                name_at("best", few, WHOLE): summary.at_k("best", few),
                name_at("best", many, WHOLE): summary.at_k("best", many),
                "diversity": summary.measures["diversity"].values,
                **{name: summary.measures[name].values for name in ("answers unreadable", "tokens")},
            }
            passed, size = passes(pool, None), pool.rewards.shape[2]
            if passed is not None:
                whole = passed.reshape(pool.rewards.shape[:3]).max(axis=2)
                measures |= {name_at("pass", k, WHOLE): best_at_k_whole(passed, whole, k) for k in (1, few, many)}
            columns.append(method if when == "after" else f"base, {counted(size, 'answer')} per response")
            values.append(measures)
    rows = []
    for name in values[0]:
        bands = [over_prompts(one[name], pool.tasks) for one in values]
        rows.append([name, *(f"{number(band.mean)} {interval(band.low, band.high)}" for band in bands)])
    text = markdown_table(["measure", *columns], rows, "l" + "r" * len(columns))
    if front := summary.ceilings()["front_utility"]:
        text += f"\nUtility of the exact fronts: {number(front)}."
    heading = f"{len(pool.indices)} held-out tasks, 95 % intervals over tasks"
    (folder / "results.md").write_text(f"{heading}\n\n{text}\n", encoding="utf-8")
    print(f"\n== {heading}\n\n{text}\n\nsaved to {folder / 'results.md'}")


if __name__ == "__main__":
    run_script(main)
