"""Train a language model with Vector Policy Optimization on the maze, and show what it learned.

With no options this trains the bundled tiny model on a CPU in minutes, with nothing downloaded:

    python examples/train_maze.py

With a real model, on a GPU, in the paper's setting:

    python examples/train_maze.py --preset paper --model Qwen/Qwen3-4B
"""

from __future__ import annotations

from vpo_agent.command.job import train_and_report
from vpo_agent.command.options import parse_job, run

PRESETS = {
    "embedded": {
        "env": "vpo/Maze-v0",
        "env_kwargs": {"preset": "embedded", "prompt_style": "compact"},
        "model": "tiny-maze",
        "steps": 300,
        "prompts_per_step": 16,
        "rollouts_per_prompt": 8,
        "max_new_tokens": 100,
        "learning_rate": 1e-4,
        "warmup_steps": 10,
        "kl_coef": 0.0,
        "eval_every": 50,
        "eval_prompts": 200,
    },
    "conflict": {
        "env": "vpo/Maze-v0",
        "env_kwargs": {"preset": "conflict"},
        "model": "Qwen/Qwen3-0.6B",
        "steps": 200,
        "prompts_per_step": 32,
        "minibatch_prompts": 16,
        "max_new_tokens": 512,
        "eval_temperature": 0.7,
        "eval_every": 25,
    },
    "paper": {
        "env": "vpo/Maze-v0",
        "env_kwargs": {"preset": "paper"},
        "model": "Qwen/Qwen3-4B",
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
    },
}


def main() -> None:
    """Read the command line, train, report."""
    train_and_report(parse_job(None, description=__doc__, presets=PRESETS, default_preset="embedded"))


if __name__ == "__main__":
    run(main)
