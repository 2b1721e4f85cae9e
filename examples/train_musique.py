"""Train a language model with Vector Policy Optimization on questions of several steps, answered with citations.

In the paper's setting, on a GPU, with generated questions:

    python examples/train_musique.py

On MuSiQue-Ans itself, with {split} standing for train, validation and test:

    python examples/train_musique.py --env-kwargs '{"source": "musique_{split}.jsonl"}'

A smoke run on a CPU, with nothing downloaded; the tiny model knows mazes only, so it learns nothing here:

    python examples/train_musique.py --preset smoke
"""

from __future__ import annotations

from vpo_agent.command.job import train_and_report
from vpo_agent.command.options import parse_job, run

PAPER = {
    "env": "vpo/MuSiQue-v0",
    "model": "Qwen/Qwen3-1.7B",
    "steps": 200,
    "prompts_per_step": 128,
    "minibatch_prompts": 64,
    "max_new_tokens": 1024,
    "num_weights": 100,
    "weight_sampler": "iid",
    "learning_rate": 1e-6,
    "kl_coef": 1e-3,
    "eval_temperature": 0.7,
    "eval_every": 25,
    "microbatch_prompts": 2,
}
PRESETS = {
    "paper": PAPER,
    "conflict": {**PAPER, "env_kwargs": {"mode": "conflict"}},
    "smoke": {
        "env": "vpo/MuSiQue-v0",
        "env_kwargs": {"difficulty": {"paragraphs": 4, "lookalikes": 0, "asides": [0, 0], "side_facts": [0, 0]}},
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
