"""Train a language model with Vector Policy Optimization on systems of linear equations, solved line by line.

On a GPU, with three unknowns:

    python examples/train_derivation.py

With two unknowns:

    python examples/train_derivation.py --preset easy

A smoke test on a CPU, with nothing downloaded; the tiny model knows only mazes, so it learns nothing here:

    python examples/train_derivation.py --preset smoke
"""

from vpo_agent.command.train import train_script

SETTINGS = {
    "env": "vpo/Derivation-v0",
    "model": "Qwen/Qwen3-0.6B",
    "prompts_per_step": 32,
    "minibatch_prompts": 16,
    "max_new_tokens": 1024,
    "eval_temperature": 0.7,
    "eval_every": 25,
}
SMOKE = {
    "model": "tiny-maze-easy",
    "steps": 2,
    "prompts_per_step": 2,
    "minibatch_prompts": 2,
    "rollouts_per_prompt": 2,
    "max_new_tokens": 16,
    "eval_prompts": 2,
}
PRESETS = {
    "conflict": SETTINGS,
    "easy": {**SETTINGS, "env_kwargs": {"preset": "easy"}},
    "smoke": {**SETTINGS, **SMOKE, "env_kwargs": {"preset": "embedded", "prompt_style": "compact"}},
}

if __name__ == "__main__":
    train_script(__doc__, PRESETS)
