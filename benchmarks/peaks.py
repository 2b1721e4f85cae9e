"""Compare the memory that the planner expects with measured peaks, on the CPU; `gpu_acceptance.py` does so on a GPU.

    python benchmarks/peaks.py

Each measurement is a fresh process with a model of random weights, float32 and one thread. Sampling and the second of
two micro-batches of an update are measured apart, as the highest resident memory less that of the same process before
it made the model. Prompts have two lengths, as they usually do. The exit status is 1 if a peak is more than 15 % off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

import psutil
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from vpo_agent.config import make_config
from vpo_agent.learning.plan import plan_run
from vpo_agent.learning.update import PolicyUpdate
from vpo_agent.learning.warm_start import word_tokenizer
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import add_adapters
from vpo_agent.policy.memory import Shape

LIMIT = 0.15
PROMPT, RESPONSE, GROUP = 64, 24, 8
SHAPES: dict[str, dict[str, Any]] = {
    "wide vocabulary": {"vocab_size": 16_384, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 4},
    "deep": {"vocab_size": 2048, "hidden_size": 320, "intermediate_size": 1280, "num_hidden_layers": 10},
    "untied": {"vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4},
}
KEY_HEADS = {"wide vocabulary": 2, "deep": 4, "untied": 8}
WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "recomputing layers": {"gradient_checkpointing": True},
    "LoRA": {"lora_rank": 16},
}
TINY = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
# Freed blocks of 128 KiB and more go back to the system, so that resident memory is what tensors take.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(2**17), "MALLOC_TRIM_THRESHOLD_": str(2**17), "MALLOC_ARENA_MAX": "1"}


def make_model(sizes: dict[str, Any], key_heads: int) -> Any:
    common = {**sizes, "num_attention_heads": 8, "num_key_value_heads": key_heads, "head_dim": 64, "eos_token_id": None}
    if key_heads == 8:
        return LlamaForCausalLM(LlamaConfig(**common, tie_word_embeddings=False))
    return Qwen3ForCausalLM(Qwen3Config(**common, tie_word_embeddings=True))


def highest() -> int:
    """The highest resident memory since the last reset, in bytes."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def run(model: Any, phase: str, way: dict[str, Any], *, prompts: int, prompt: int, response: int) -> tuple[int, int]:
    """Sample or update once, and return the highest memory and what the planner expects.

    On a CPU that is resident memory, that of the process before included; on a GPU what tensors take there.
    """
    device = model.device.type
    shape = Shape.of(model, "model")
    if rank := way.get("lora_rank", 0):
        model = add_adapters(model, rank).to(device)
    tokenizer = word_tokenizer([f"w{i}" for i in range(shape.vocabulary - 3)])
    policy = LMPolicy(model, tokenizer, gradient_checkpointing=way.get("gradient_checkpointing", False))
    settings = {"prompts_per_step": prompts, "rollouts_per_prompt": GROUP, "max_new_tokens": response, "kl_coef": 0.0}
    config = make_config({**settings, "microbatch_prompts": prompts // 2, "eval_answers": 3, "device": device, **way})
    update = PolicyUpdate(config, policy, None)
    # The first step makes the moments.
    for weight in update.optimizer.masters.values():
        weight.grad = torch.zeros_like(weight)
    update.optimizer.step(1e-6, 1.0)
    update.optimizer.zero_grad()
    texts = [" ".join(f"w{(7 * i + j) % 50}" for j in range(prompt - i % 2)) for i in range(prompts)]
    sizes_of_step = {"rollouts": GROUP, "num_answers": 1, "max_new_tokens": response}
    samples = policy.sample(texts, **sizes_of_step) if phase == "update" else None
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # Resets the highest resident memory.
    if samples is None:
        policy.sample(texts, **sizes_of_step)
    else:
        update.step(samples, torch.randn(prompts, GROUP), torch.ones(prompts, GROUP, dtype=torch.bool), 1)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else highest()
    plan = plan_run(config, shape, prompt=prompt, memory=2**40, on_gpu=device == "cuda")
    return peak, plan.sampling if phase == "sampling" else plan.update


def measure(name: str, phase: str, way: str) -> None:
    """Print the measured and the planned peak in MiB, and the parameters, as JSON."""
    torch.set_num_threads(1)
    lengths = {"prompts": 4, "prompt": PROMPT, "response": RESPONSE}
    run(make_model(TINY, 2), phase, WAYS[way], **lengths)  # Loads libraries and makes buffers.
    before = psutil.Process().memory_info().rss
    peak, planned = run(make_model(SHAPES[name], KEY_HEADS[name]), phase, WAYS[way], **lengths)
    print(json.dumps([(peak - before) / 2**20, planned / 2**20]))


def measured(name: str, phase: str, way: str) -> tuple[float, float]:
    """Return the measured and the planned peak in MiB, from a process of its own."""
    command = [sys.executable, __file__, "--one", name, phase, way]
    done = subprocess.run(command, env={**os.environ, **ALLOCATOR}, stdout=subprocess.PIPE, text=True, check=True)
    peak, planned = json.loads(done.stdout)
    return peak, planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("SHAPE", "PHASE", "WAY"), help="measure in this process")
    chosen = parser.parse_args()
    if chosen.one:
        measure(*chosen.one)
        return
    print("| model | parameters | phase | trained | planned, MiB | measured, MiB | planned / measured |")
    print("|---|---:|---|---|---:|---:|---:|")
    worst = 0.0
    for name, sizes in SHAPES.items():
        with torch.device("meta"):
            parameters = Shape.of(make_model(sizes, KEY_HEADS[name]), name).parameters / 1e6
        for phase, way in [("sampling", "full"), *(("update", way) for way in WAYS)]:
            peak, planned = measured(name, phase, way)
            worst = max(worst, abs(planned / peak - 1))
            cells = f"{planned:.0f} | {peak:.0f} | {planned / peak:.2f}"
            print(f"| {name} | {parameters:.0f} M | {phase} | {way} | {cells} |", flush=True)
    print(f"\nlargest difference {worst:.1%}")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
