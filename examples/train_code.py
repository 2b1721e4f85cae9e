"""Train a language model with Vector Policy Optimization on programs, each test of a problem one objective.

In the paper's setting, on a GPU, with rows of DeepCoder or of LiveCodeBench's code_generation_lite; {split} stands for
train, validation and test:

    python examples/train_code.py --env-kwargs '{"source": "deepcoder_{split}.jsonl"}'

On the project's own problems, which are few, with nothing but the model downloaded:

    python examples/train_code.py --preset builtin

A smoke run on a CPU, with nothing downloaded; the tiny model knows mazes only, so it learns nothing here:

    python examples/train_code.py --preset smoke

Programs run in the sandbox that SECURITY.md describes.
"""

from __future__ import annotations

from vpo_agent.command.job import train_and_report
from vpo_agent.command.options import parse_job, run

PAPER = {
    "env": "vpo/Code-v0",
    "model": "Qwen/Qwen2.5-Coder-7B-Instruct",
    "steps": 200,
    "prompts_per_step": 128,
    "minibatch_prompts": 64,
    "max_new_tokens": 4096,
    "num_weights": 100,
    "weight_sampler": "iid",
    "learning_rate": 1e-6,
    "kl_coef": 1e-3,
    "eval_temperature": 0.7,
    "eval_every": 25,
    "microbatch_prompts": 1,
}
PRESETS = {
    "paper": PAPER,
    "builtin": {**PAPER, "prompts_per_step": 32, "minibatch_prompts": 16, "max_new_tokens": 2048},
    "conflict": {**PAPER, "env_kwargs": {"mode": "conflict"}, "prompts_per_step": 16, "minibatch_prompts": 8},
    "smoke": {
        "env": "vpo/Code-v0",
        "env_kwargs": {"difficulty": "easy"},
        "model": "tiny-maze",
        "steps": 2,
        "prompts_per_step": 2,
        "rollouts_per_prompt": 2,
        "max_new_tokens": 16,
        "eval_prompts": 2,
    },
}


def main() -> None:
    """Read the command line, train, report."""
    train_and_report(parse_job(None, description=__doc__, presets=PRESETS, default_preset="paper"))


if __name__ == "__main__":
    run(main)
