"""Train a language model with Vector Policy Optimization on tool calls, and show what it learned.

On a GPU, with generated requests and nothing but the model downloaded:

    python examples/train_tools.py

Two steps on a CPU, to see that everything runs (the tiny model knows mazes only, and learns nothing here):

    python examples/train_tools.py --model tiny-maze --steps 2

On ToolRL's rlla rows:

    python examples/train_tools.py --preset paper --env-kwargs '{"source": "rlla_4k/{split}.parquet"}'
"""

from __future__ import annotations

from vpo_agent.command.job import train_and_report
from vpo_agent.command.options import parse_job, run

SHARED = {
    "env": "vpo/Tools-v0",
    "model": "Qwen/Qwen3-1.7B",
    "steps": 200,
    "prompts_per_step": 32,
    "minibatch_prompts": 16,
    "max_new_tokens": 1024,
    "eval_temperature": 0.7,
    "eval_every": 25,
    "microbatch_prompts": 2,
}
PRESETS = {
    "builtin": {**SHARED, "env_kwargs": {}},
    "conflict": {**SHARED, "env_kwargs": {"mode": "conflict"}},
    "paper": {
        **SHARED,
        "env_kwargs": {},
        "prompts_per_step": 128,
        "minibatch_prompts": 64,
        "num_weights": 100,
        "weight_sampler": "iid",
        "learning_rate": 1e-6,
        "kl_coef": 1e-3,
    },
}


def main() -> None:
    """Read the command line, train, report."""
    train_and_report(parse_job(None, description=__doc__, presets=PRESETS, default_preset="builtin"))


if __name__ == "__main__":
    run(main)
