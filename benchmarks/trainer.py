"""How much faster a step of the built-in trainer is than one of TRL's GRPOTrainer, and what each takes at its peak.

    python benchmarks/trainer.py

Both train the same model on the same mazes with the same method, group size, longest response, number format,
micro-batch and optimizer steps. Each runs in a process of its own, so that its peak memory is its own, and they take
their steps in turn, so that a machine that is busy for a while slows both. Shown are medians over the steps after a
warm-up. Two settings:

- fixed: every response has the same number of tokens; nothing ends it before.
- natural: a response ends at its last closing tag. In the tiny model's vocabulary that is one token, so TRL can be told
  to end there; with most other models TRL would sample on.

"TRL, batched" generates by transformers' ``generate_batch``. On a GPU the same is done with a model of the shape of
Qwen3-0.6B with random weights, in the fixed setting, and the floor is printed: what the
bytes and operations of a step take at the measured bandwidth and rate of the device.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = {"ours": "built in", "trl": "TRL", "trl_batched": "TRL, batched"}
TARGET = 2.0
WARMUP = 2


def settings_of(chosen: argparse.Namespace, folder: str) -> dict[str, Any]:
    return {
        "env": "vpo/Maze-v0",
        "env_kwargs": {"preset": "embedded", "prompt_style": "compact"},
        "model": chosen.model,
        "steps": 10_000,
        "prompts_per_step": chosen.prompts,
        "microbatch_prompts": chosen.microbatch,
        "rollouts_per_prompt": chosen.rollouts,
        "max_new_tokens": chosen.tokens,
        "learning_rate": 1e-6,
        "kl_coef": 0.0,
        "device": chosen.device,
        "dtype": "bfloat16" if chosen.device == "cuda" else "float32",
        "runs_dir": folder,
        "name": "run",
    }


# --- one trainer, in a process of its own: a line in asks for a step, a line out tells what it took -------------------


def wait_for_turn() -> bool:
    """Whether another step is wanted."""
    return sys.stdin.readline().strip() == "step"


def tell(row: dict[str, float]) -> None:
    print(json.dumps(row), file=ANSWERS, flush=True)


def peak_memory() -> dict[str, float]:
    import torch

    on_gpu = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
    return {"resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, "gpu_mib": on_gpu}


def run_ours(chosen: argparse.Namespace, folder: str) -> None:
    import torch

    from vpo_agent.config import make_config
    from vpo_agent.trainer import Trainer

    trainer = Trainer(make_config(settings_of(chosen, folder)))
    if chosen.setting == "fixed":
        trainer.policy._ends = lambda token, *_: torch.zeros_like(token, dtype=torch.bool)
    tell({})
    with trainer.folder.writer(0) as log:
        while wait_for_turn():
            start = time.perf_counter()
            row = trainer.train_step()
            log.write(row)
            tokens = row["response_tokens"] * chosen.prompts * chosen.rollouts
            seconds = {"step": time.perf_counter() - start}
            seconds |= {"generate": row["seconds_generate"], "update": row["seconds_update"]}
            tell({**seconds, "tokens": tokens})
    tell(peak_memory())


def run_trl(chosen: argparse.Namespace, folder: str) -> None:
    import torch
    from transformers import TrainerCallback
    from trl import GRPOConfig

    from vpo_agent.adapters.trl_job import grpo_settings, make_adapter
    from vpo_agent.config import make_config
    from vpo_agent.policy.loading import load_model

    on_gpu = chosen.device == "cuda"
    config = make_config(settings_of(chosen, folder))
    model, tokenizer = load_model(chosen.model, torch.bfloat16 if on_gpu else torch.float32)
    adapter = make_adapter(config, tokenizer)
    clock = dict.fromkeys(("generate", "score"), 0.0)

    class Timed(adapter.trainer_class):
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            return self._timed("generate", super()._generate_single_turn, *args, **kwargs)

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = self._timed("score", super()._generate_and_score_completions, inputs)
            clock["tokens"] = float(output["completion_mask"].sum())
            return output

        def _timed(self, name: str, function: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            if on_gpu:
                torch.cuda.synchronize()
            clock[name] = time.perf_counter() - start
            return result

    class InTurn(TrainerCallback):
        start = None

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Ends the step before, logging and data included, and waits for this one's turn."""
            self.finish()
            if not wait_for_turn():
                tell(peak_memory())
                sys.stdin.close()
                os._exit(0)
            self.start = time.perf_counter()

        def finish(self) -> None:
            if self.start is None:
                tell({})
                return
            if on_gpu:
                torch.cuda.synchronize()
            step = time.perf_counter() - self.start
            seconds = {"step": step, "generate": clock["generate"], "update": step - clock["score"]}
            tell({**seconds, "tokens": clock["tokens"]})

    more: dict[str, Any] = {"output_dir": folder, "save_strategy": "no", "disable_tqdm": True}
    if chosen.setting == "fixed":
        more["generation_kwargs"] = {"min_new_tokens": chosen.tokens}
    else:
        model = adapter.end_at_last_answer(model)
    if chosen.worker == "trl_batched":
        more["use_transformers_continuous_batching"] = True
        # Its defaults are made for a GPU: on a CPU it would attend over a cache of gigabytes.
        per_row = -(-(chosen.tokens + 128) // 32)
        blocks = {"block_size": 32, "num_blocks": per_row * chosen.prompts * chosen.rollouts}
        more["transformers_continuous_batching_config"] = {} if on_gpu else blocks
    trainer = Timed(
        model=model,
        processing_class=tokenizer,
        reward_funcs=adapter.reward_functions(),
        train_dataset=adapter.dataset(range(chosen.prompts * (chosen.steps + WARMUP + 1))),
        args=GRPOConfig(**{**grpo_settings(config, processes=1, on_gpu=on_gpu), **adapter.required_settings(), **more}),
        callbacks=[InTurn()],
    )
    trainer.train()


# --- both, in turn ------------------------------------------------------------


class Worker:
    """A trainer in a process of its own."""

    def __init__(self, name: str, setting: str, options: list[str], folder: str) -> None:
        self.name = name
        read, write = os.pipe()
        command = [sys.executable, __file__, "--worker", name, "--setting", setting, "--folder", folder, *options]
        with (Path(folder) / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--answers", str(write)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=[write],
            )
        os.close(write)
        self.log = Path(folder) / "log"
        self.answers = os.fdopen(read)
        self.rows: list[dict[str, float]] = []

    def read(self) -> dict[str, float]:
        line = self.answers.readline()
        if not line:
            last = self.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{NAMES[self.name]} ended: {last[0] if last else 'without a word'}")
        row: dict[str, float] = json.loads(line)
        return row

    def ask(self, what: str) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.read()


def compare(setting: str, names: list[str], chosen: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians and peaks of each trainer that works here."""
    sizes = ("model", "prompts", "rollouts", "tokens", "microbatch", "steps", "threads", "device")
    options = [word for size in sizes for word in (f"--{size}", str(getattr(chosen, size)))]
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for name in names:
            place = Path(folder) / name
            place.mkdir()
            workers.append(Worker(name, setting, options, str(place)))
        try:
            for worker in list(workers):
                try:
                    worker.read()
                except RuntimeError as error:
                    print(f"left out: {error}")
                    workers.remove(worker)
            for _ in range(WARMUP + chosen.steps):
                for worker in list(workers):
                    try:
                        worker.rows.append(worker.ask("step"))
                    except RuntimeError as error:
                        print(f"left out: {error}")
                        workers.remove(worker)
            for worker in workers:
                rows = worker.rows[WARMUP:]
                median = {
                    "step": statistics.median(row["step"] for row in rows),
                    "rollout": statistics.median(row["tokens"] / row["generate"] for row in rows),
                    "update": statistics.median(row["tokens"] / row["update"] for row in rows),
                    "tokens": statistics.median(row["tokens"] for row in rows),
                    "whole": statistics.median(row["tokens"] / row["step"] for row in rows),
                    "rest": statistics.median(1 - (row["generate"] + row["update"]) / row["step"] for row in rows),
                }
                found[worker.name] = {**median, **worker.ask("end")}
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()
    return found


def show(setting: str, found: dict[str, dict[str, float]], device: str) -> None:
    """Print the table, and whether the target is met."""
    memory = "gpu_mib" if device == "cuda" else "resident_mib"
    print(f"\n{setting} setting, medians of steps taken in turn")
    print(f"{'':16s}   s/step  tokens  rollout tok/s  update tok/s   rest  peak MiB")
    for name, row in found.items():
        print(
            f"{NAMES[name]:16s} {row['step']:8.3f} {row['tokens']:7.0f} {row['rollout']:14,.0f} "
            f"{row['update']:13,.0f} {row['rest']:6.1%} {row[memory]:9.0f}"
        )
    met = False
    for own in (name for name in found if name.startswith("ours")):
        ours = found[own]
        for name, row in found.items():
            if not name.startswith("ours"):
                whole = ours["whole"] / row["whole"]
                print(
                    f"{NAMES[own]} over {NAMES[name]}: rollout tokens {ours['rollout'] / row['rollout']:.2f}, update "
                    f"tokens {ours['update'] / row['update']:.2f}, whole steps {whole:.2f} (a token), "
                    f"{row['step'] / ours['step']:.2f} (a step), peak memory {ours[memory] / row[memory]:.2f}"
                )
                met |= name == "trl" and whole >= TARGET and ours[memory] <= row[memory]
    print(f"{TARGET:.0f} times TRL a token, peak memory no higher: {'met' if met else 'missed'}")


def floor(chosen: argparse.Namespace, parameters: int) -> str:
    """What a step must take at least on this GPU, from its measured bandwidth and matrix rate."""
    import torch

    block = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(block)
    matrix = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")

    def best(function: Any) -> float:
        times = []
        for _ in range(10):
            torch.cuda.synchronize()
            start = time.perf_counter()
            function()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return min(times)

    bandwidth = 2 * block.numel() / best(lambda: other.copy_(block))
    rate = 2 * 8192**3 / best(lambda: matrix @ matrix)
    tokens = chosen.prompts * chosen.rollouts * chosen.tokens
    generate = chosen.tokens * 2 * parameters / bandwidth
    update = 6 * parameters * tokens / rate
    return (
        f"floor: generation {generate:.2f} s (weights read once a token at {bandwidth / 1e12:.2f} TB/s), update "
        f"{update:.2f} s (6 operations a weight and token at {rate / 1e12:.0f} TFLOP/s), optimizer "
        f"{28 * parameters / bandwidth:.3f} s"
    )


def save_qwen_shape(folder: Path) -> int:
    """A model of the shape of Qwen3-0.6B with random weights and the tiny model's tokenizer; its parameters."""
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    from envs_data import bundled_model_path

    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path("tiny-maze"))
    shape = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
    shape |= {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40_960}
    config = Qwen3Config(
        **shape, tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny-maze", help="default tiny-maze")
    parser.add_argument("--steps", type=int, default=7, help="measured steps, default 7")
    parser.add_argument("--prompts", type=int, default=16, help="a step, default 16")
    parser.add_argument("--rollouts", type=int, default=8, help="a prompt, default 8")
    parser.add_argument("--tokens", type=int, default=100, help="longest response, default 100")
    parser.add_argument("--microbatch", type=int, default=2, help="prompts of a backward pass, default 2")
    parser.add_argument("--threads", type=int, default=1, help="default 1")
    both = ["fixed", "natural"]
    parser.add_argument("--settings", nargs="+", choices=both, default=both, help="default both")
    parser.add_argument("--without-batched", action="store_true", help="leave generate_batch out, which is slow")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help=argparse.SUPPRESS)
    for hidden in ("--worker", "--setting", "--folder", "--answers"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    chosen = parser.parse_args()

    import torch

    torch.set_num_threads(chosen.threads)
    if chosen.worker:
        global ANSWERS
        ANSWERS = os.fdopen(int(chosen.answers), "w")
        (run_ours if chosen.worker.startswith("ours") else run_trl)(chosen, chosen.folder)
        return
    size = f"{chosen.prompts} prompts x {chosen.rollouts} rollouts, at most {chosen.tokens} tokens"
    print(f"{chosen.model} on the CPU, float32, {chosen.threads} thread(s), {size}, {chosen.steps} steps")
    for setting in chosen.settings:
        batched = [] if setting == "fixed" or chosen.without_batched else ["trl_batched"]
        show(setting, compare(setting, ["ours", "trl", *batched], chosen), "cpu")
    if not torch.cuda.is_available():
        print("\nno CUDA device here: the GPU part is left out, and the numbers above stand alone")
        return
    with tempfile.TemporaryDirectory() as folder:
        parameters = save_qwen_shape(Path(folder))
        chosen.model, chosen.device, chosen.prompts, chosen.tokens, chosen.microbatch = folder, "cuda", 16, 256, 4
        print(f"\nthe shape of Qwen3-0.6B with random weights on {torch.cuda.get_device_name()}, bfloat16")
        show("fixed", compare("fixed", list(NAMES), chosen), "cuda")
        print(floor(chosen, parameters))


if __name__ == "__main__":
    main()
