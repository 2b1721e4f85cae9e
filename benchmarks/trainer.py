"""Compare the speed and peak memory of the built-in trainer with those of TRL's GRPOTrainer.

    python benchmarks/trainer.py
    python benchmarks/trainer.py --settings compact    # only the tasks with a bundled model, without TRL
    python benchmarks/trainer.py --model smollm2        # SmolLM2-135M in bfloat16, which `make smollm2` fetches
    python benchmarks/trainer.py --settings natural --trainers ours vllm    # the two backends of the built-in trainer

Both train the same model on the same mazes with the same method, group size, longest response, number format,
micro-batch and optimizer steps. Each runs in its own process, which gives its own peak memory, and they take steps in
turn, so that other load on the machine slows both. Printed are medians over the steps after a warm-up, and the median
of the ratios of steps taken after each other, in processor time on a CPU. Settings:

- fixed: every response has the same number of tokens, and advantages are 1 and -1 in turn, since the built-in trainer
  leaves out groups without signal, which a model that cannot answer yet has many of.
- natural: a response ends at its last closing tag. In the tiny model's vocabulary the tag is one token, so TRL can end
  there too; with most other models TRL would keep sampling.
- compact: the built-in trainer on every task with a bundled model, with the preset's settings. Printed is processor
  time, which other load on the machine disturbs less, beside the most that a step and an evaluation should take.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vpo_agent.config import TrainConfig, make_config
from vpo_agent.estimators import Advantages, register_estimator
from vpo_agent.estimators.reward_groups import RewardGroups
from vpo_agent.presets import BUNDLED

BACKENDS = {"ours": "native", "vllm": "vllm"}
"""Backends of the built-in trainer."""
NAMES = {"ours": "built in", "vllm": "built in, vLLM", "trl": "TRL"}
TARGET = 2.0
SMOLLM2 = Path(__file__).parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
"""Where `make smollm2` puts the model."""
SIZES = {"prompts": 16, "rollouts": 8, "tokens": 100, "microbatch": 2, "threads": 1}
SMALL = {"prompts": 8, "rollouts": 4, "tokens": 48, "steps": 5, "settings": ["fixed"], "target": 2.5}
"""Defaults for that model, of which a step takes a minute."""
EVALUATION_BAR = 20.0
"""Seconds that an evaluation of 200 x 30 answers should take at most."""
MIXTURE_BAR = 1.1
"""Time of a step that asks for several numbers of answers, over that of the line at its tokens, at most."""
WARMUP = 1


def config_of(chosen: argparse.Namespace, setting: str, folder: str, backend: str = "auto") -> TrainConfig:
    settings = {
        "method": "alternating" if setting == "fixed" else "vpo",
        "env_kwargs": {"preset": "compact"},
        "model": chosen.model,
        "steps": 10_000,
        "prompts_per_step": chosen.prompts,
        "microbatch_prompts": chosen.microbatch,
        "rollouts_per_prompt": chosen.rollouts,
        "max_new_tokens": chosen.tokens,
        "learning_rate": 1e-6,
        "kl_coef": 0.0,
        "device": chosen.device,
        "dtype": chosen.dtype,
        "backend": backend,
        "runs_dir": folder,
        "name": "run",
    }
    return make_config(settings)


# --- one trainer in its own process: it receives True for each step wanted and sends what the step took ---------------


def work(name: str, setting: str, chosen: argparse.Namespace, folder: str, line: Connection) -> None:
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(chosen.threads)
    register_estimator("alternating", answers="set")(alternating)
    if name in BACKENDS:
        run_ours(BACKENDS[name], setting, chosen, folder, line)
    else:
        run_trl(setting, chosen, folder, line)


def alternating(groups: RewardGroups) -> Advantages:
    """1 and -1 in turn, whatever the rewards are."""
    signs = torch.ones(groups.valid.shape)
    signs[:, 1::2] = -1
    return Advantages(signs, signs)


def send_peak_memory(line: Connection) -> None:
    on_gpu = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
    line.send({"cpu": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, "cuda": on_gpu})


def run_ours(backend: str, setting: str, chosen: argparse.Namespace, folder: str, line: Connection) -> None:
    from vpo_agent.policy.decoding import ClosingTag
    from vpo_agent.trainer import Trainer

    trainer = Trainer(config_of(chosen, setting, folder, backend))
    if setting == "fixed":
        policy = trainer.policy
        policy.ending_ids = []
        never = ClosingTag(policy.tokenizer, "</>", [""] * policy.vocabulary)
        policy.closing_tag = lambda closing: never
    line.send({})
    with trainer.folder.writer(0) as log:
        while line.recv():
            start, processor = time.perf_counter(), time.process_time()
            row = trainer.train_step()
            log.write(row)
            tokens = row["response_tokens"] * chosen.prompts * chosen.rollouts
            seconds = {"generate": row["seconds_generate"], "update": row["seconds_update"]}
            seconds["processor"] = time.process_time() - processor
            line.send({"step": time.perf_counter() - start, **seconds, "tokens": tokens})
    send_peak_memory(line)


def run_trl(setting: str, chosen: argparse.Namespace, folder: str, line: Connection) -> None:
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from vpo_agent.adapters.trl_job import grpo_settings, make_adapter
    from vpo_agent.policy.loading import load_model
    from vpo_agent.policy.model_choice import ModelChoice

    on_gpu = chosen.device == "cuda"
    config = config_of(chosen, setting, folder)
    choice = ModelChoice.of(chosen.model, device=chosen.device, dtype=chosen.dtype)
    model, tokenizer = load_model(choice.path, choice.dtype)
    adapter = make_adapter(config, tokenizer)
    clock = dict.fromkeys(("generate", "score"), 0.0)

    def timed(part: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        if on_gpu:
            torch.cuda.synchronize()
        clock[part] = time.perf_counter() - start
        return result

    class Timed(GRPOTrainer):
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            return timed("generate", super()._generate_single_turn, *args, **kwargs)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = timed("score", super()._generate_and_score_completions, inputs)
            clock["tokens"] = float(output["completion_mask"].sum())
            return output

    class InTurn(TrainerCallback):
        start = processor = None

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """End the step before, logging and data included, and wait for the turn of this one."""
            if self.start is None:
                line.send({})
            else:
                if on_gpu:
                    torch.cuda.synchronize()
                step = time.perf_counter() - self.start
                parts = {"generate": clock["generate"], "update": step - clock["score"]}
                parts["processor"] = time.process_time() - self.processor
                line.send({"step": step, **parts, "tokens": clock["tokens"]})
            if not line.recv():
                send_peak_memory(line)
                sys.exit()
            self.start, self.processor = time.perf_counter(), time.process_time()

    more: dict[str, Any] = {"output_dir": folder, "save_strategy": "no", "disable_tqdm": True}
    if setting == "fixed":
        more["generation_kwargs"] = {"min_new_tokens": chosen.tokens}
    else:
        model = adapter.end_at_last_answer(model)
    Timed(
        model=model,
        processing_class=tokenizer,
        reward_funcs=adapter.reward_functions(),
        train_dataset=adapter.dataset(range(chosen.prompts * (chosen.steps + WARMUP + 1))),
        args=GRPOConfig(**{**grpo_settings(config, processes=1, on_gpu=on_gpu), **adapter.required_settings(), **more}),
        callbacks=[InTurn()],
    ).train()


# --- all of them, in turn ---------------------------------------------------------------------------------------------


class Worker:
    """A trainer in its own process."""

    def __init__(self, name: str, setting: str, chosen: argparse.Namespace, folder: Path) -> None:
        folder.mkdir()
        self.name, self.log = name, folder / "log"
        self.rows: list[dict[str, float]] = []
        # Forked from one that has this module imported and nothing computed.
        processes = multiprocessing.get_context("forkserver")
        self.line, theirs = processes.Pipe()
        self.process = processes.Process(target=work, args=(name, setting, chosen, str(folder), theirs), daemon=True)
        self.process.start()
        theirs.close()

    def read(self) -> dict[str, float] | None:
        """Return what the worker sends; None, with the last line of its log printed, if it has ended."""
        try:
            row: dict[str, float] = self.line.recv()
        except (EOFError, ConnectionResetError):
            last = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            print(f"left out: {NAMES[self.name]} ended: {last[0] if last else 'without a message'}")
            return None
        return row

    def step(self) -> bool:
        """Take a step; return whether it succeeded."""
        self.line.send(True)
        row = self.read()
        self.rows.extend([row] if row else [])
        return row is not None

    def summary(self) -> dict[str, Any]:
        """End the worker; return medians over its steps, its peak memory, and the rows of the steps."""
        self.line.send(False)
        quantities = {
            "step": lambda row: row["step"],
            "processor": lambda row: row["processor"],
            "tokens": lambda row: row["tokens"],
            "rollout": lambda row: row["tokens"] / row["generate"],
            "update": lambda row: row["tokens"] / row["update"],
            "whole": lambda row: row["tokens"] / row["step"],
        }
        rows = self.rows[WARMUP:]
        medians = {name: statistics.median(map(of, rows)) for name, of in quantities.items()}
        return medians | (self.read() or {}) | {"rows": rows}


def compare(setting: str, names: list[str], chosen: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return medians and peaks of each trainer that works here; on a GPU each has the card to itself."""
    if chosen.device == "cuda" and len(names) > 1:
        return {name: row for one in names for name, row in compare(setting, [one], chosen).items()}
    with tempfile.TemporaryDirectory() as folder:
        workers = [Worker(name, setting, chosen, Path(folder) / name) for name in names]
        try:
            running = [worker for worker in workers if worker.read() is not None]
            for _ in range(WARMUP + chosen.steps):
                running = [worker for worker in running if worker.step()]
            return {worker.name: worker.summary() for worker in running}
        finally:
            for worker in workers:
                worker.line.close()
                worker.process.join(10)
                worker.process.kill()


def show(setting: str, found: dict[str, dict[str, Any]], target: float) -> None:
    """Print the table, and whether the target is met."""
    print(f"\n{setting} setting, medians of steps taken in turn")
    print(f"{'':20s}   s/step  processor  tokens  rollout tok/s  update tok/s  peak MiB")
    for name, row in found.items():
        print(
            f"{NAMES[name]:20s} {row['step']:8.3f} {row['processor']:10.3f} {row['tokens']:7.0f} "
            f"{row['rollout']:14,.0f} {row['update']:13,.0f} {row['cpu']:9.0f}"
        )
    if not {"ours", "trl"} <= found.keys():
        return
    ours, other = found["ours"], found["trl"]
    ratios = {part: ours[part] / other[part] for part in ("rollout", "update", "whole", "cpu")}
    pairs = zip(ours["rows"], other["rows"], strict=True)
    cost = statistics.median(b["processor"] / b["tokens"] / (a["processor"] / a["tokens"]) for a, b in pairs)
    print(
        f"built in over TRL: rollout tokens {ratios['rollout']:.2f}, update tokens {ratios['update']:.2f}, whole steps "
        f"{ratios['whole']:.2f} (a token), {other['step'] / ours['step']:.2f} (a step), {cost:.2f} (a token, processor "
        f"time, pairs), peak memory {ratios['cpu']:.2f}"
    )
    met = cost >= target and ratios["cpu"] <= 1
    print(f"{target:g} times TRL a token, peak memory no higher: {'met' if met else 'missed'}")


# --- the tasks with a bundled model -----------------------------------------------------------------------------------


def show_compact(chosen: argparse.Namespace) -> None:
    """Print what a step and an evaluation take for each bundled model, and whether that is within the bars.

    A mixture of numbers of answers is compared with the line between the steps of `grpo` and of `vpo`, at its tokens.
    """
    print(
        f"\ncompact setting, processor time: medians of {chosen.steps} steps in turn; an evaluation of 200 x 30 answers"
    )
    print(f"{'model':16s} {'method':8s} tokens   s/step      bar   s/evaluation   bar")
    torch.set_num_threads(chosen.threads)
    for model, preset in BUNDLED.items():
        steps, evaluations = time_compact(preset, chosen.steps)
        medians = {
            method: [statistics.median(column) for column in zip(*rows, strict=True)] for method, rows in steps.items()
        }
        for method, evaluation in evaluations.items():
            tokens, step = medians[method]
            # 0.6 s for responses of 10 tokens and 1.2 s for 40, in a step of 128 rollouts.
            bar = 0.6 + 0.02 * (max(tokens, 10.0) - 10)
            met = "met" if step <= bar and evaluation <= EVALUATION_BAR else "missed"
            print(
                f"{model:16s} {method:8s} {tokens:6.1f} {step:8.3f} {bar:8.3f} {evaluation:14.1f} "
                f"{EVALUATION_BAR:5.0f}  {met}",
                flush=True,
            )
        over = statistics.median(
            seconds / np.interp(tokens, [few, many], [fast, slow])
            for (few, fast), (many, slow), (tokens, seconds) in zip(*steps.values(), strict=True)
        )
        met = "met" if over <= MIXTURE_BAR else "missed"
        tokens, step = medians["mixed"]
        print(
            f"{model:16s} {'mixed':8s} {tokens:6.1f} {step:8.3f}   {over:.2f} of the line, bar {MIXTURE_BAR:g}   {met}",
            flush=True,
        )


def time_compact(preset: dict[str, Any], steps: int) -> tuple[dict[str, list[tuple[float, float]]], dict[str, float]]:
    """Return each method's tokens of a response and seconds, by step taken in turn, and the seconds of evaluations."""
    from vpo_agent.trainer import Trainer

    variants = {"grpo": {"method": "grpo"}, "vpo": {}, "mixed": {"num_answers": [1, 3, 3, 3, 3]}}
    rows: dict[str, list[tuple[float, float]]] = {label: [] for label in variants}
    evaluations = {}
    with tempfile.TemporaryDirectory() as folder:
        shared = {
            "eval_prompts": 200,
            "eval_answers": 30,
            **preset,
            "method": "vpo",
            "device": "cpu",
            "runs_dir": folder,
        }
        trainers = {label: Trainer(make_config({**shared, **own, "name": label})) for label, own in variants.items()}
        for _ in range(WARMUP + steps):
            for label, trainer in trainers.items():
                start = time.process_time()
                row = trainer.train_step()
                rows[label].append((row["response_tokens"], time.process_time() - start))
        for label in ("grpo", "vpo"):
            start = time.process_time()
            trainers[label].evaluate("after")
            evaluations[label] = time.process_time() - start
    return {label: own[WARMUP:] for label, own in rows.items()}, evaluations


def save_smollm2(folder: str) -> None:
    """Save the GGUF file as an ordinary folder, which is read in a second."""
    from vpo_agent.policy.language_model import LMPolicy

    if not SMOLLM2.is_file():
        sys.exit(f"error: there is no file {str(SMOLLM2)!r}: fetch it with `make smollm2`")
    LMPolicy.from_pretrained(SMOLLM2, device="cpu", dtype="bfloat16").save(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny-maze", help="tiny-maze or smollm2 (default: tiny-maze)")
    parser.add_argument("--steps", type=int, default=7, help="measured steps (default: 7)")
    known = ["fixed", "natural", "compact"]
    parser.add_argument("--settings", nargs="+", choices=known, default=known, help="default: all settings")
    parser.add_argument("--trainers", nargs="+", choices=NAMES, default=["ours", "trl"], help="default: ours and trl")
    parser.set_defaults(**SIZES, device="cpu", dtype="float32", target=TARGET)
    if parser.parse_args().model == "smollm2":
        parser.set_defaults(**SMALL, dtype="bfloat16")
    chosen = parser.parse_args()
    size = f"{chosen.prompts} prompts x {chosen.rollouts} rollouts, at most {chosen.tokens} tokens"
    print(f"{chosen.model} on the CPU, {chosen.dtype}, {chosen.threads} thread(s), {size}, {chosen.steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        if chosen.model == "smollm2":
            save_smollm2(folder)
            chosen.model = folder
        for setting in chosen.settings:
            if setting == "compact":
                show_compact(chosen)
                continue
            show(setting, compare(setting, chosen.trainers, chosen), chosen.target)


if __name__ == "__main__":
    main()
