"""Settings to start from, for each preset of each task: the examples offer those of one task, ``vpo train`` all."""

from __future__ import annotations

from typing import Any

Presets = dict[str, dict[str, Any]]
"""Settings by the name of the preset; the first is the default."""

_PAPER = {
    "steps": 200,
    "prompts_per_step": 128,
    "minibatch_prompts": 64,
    "num_weights": 100,
    "weight_sampler": "iid",
    "learning_rate": 1e-6,
    "kl_coef": 1e-3,
    "eval_temperature": 0.7,
    "eval_every": 25,
    "gradient_checkpointing": True,
}
_COMPACT = {
    "steps": 150,
    "prompts_per_step": 16,
    "rollouts_per_prompt": 8,
    "learning_rate": 2e-4,
    "warmup_steps": 10,
    "kl_coef": 0.0,
    "eval_every": 50,
    "eval_prompts": 200,
}
"""With a bundled model, for a CPU."""
_SMALLER = {
    "prompts_per_step": 32,
    "minibatch_prompts": 16,
    "eval_temperature": 0.7,
    "eval_every": 25,
    "gradient_checkpointing": True,
}


def _of(task: str, preset: str, model: str, max_new_tokens: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings for a preset of a task."""
    env = {"env": f"vpo/{task}-v0", "env_kwargs": {"preset": preset}}
    return {**settings, **env, "model": model, "max_new_tokens": max_new_tokens}


_CODER = "Qwen/Qwen2.5-Coder-7B-Instruct"

TASKS: dict[str, Presets] = {
    "maze": {
        "compact": _of("Maze", "compact", "tiny-maze", 60, _COMPACT),
        "conflict": _of("Maze", "conflict", "Qwen/Qwen3-0.6B", 512, _SMALLER),
        "paper": _of("Maze", "paper", "Qwen/Qwen3-4B", 1024, _PAPER),
    },
    "code": {
        "compact": _of("Code", "compact", "tiny-code", 20, _COMPACT),
        "paper": _of("Code", "paper", _CODER, 4096, _PAPER),
        "conflict": _of("Code", "conflict", _CODER, 4096, {**_PAPER, "prompts_per_step": 16, "minibatch_prompts": 8}),
    },
    "eureqa": {
        "compact": _of("EUREQA", "compact", "tiny-eureqa", 24, _COMPACT),
        "paper": _of("EUREQA", "paper", "Qwen/Qwen3-8B", 2048, _PAPER),
        "conflict": _of("EUREQA", "conflict", "Qwen/Qwen3-8B", 2048, _PAPER),
    },
    "musique": {
        "compact": _of("MuSiQue", "compact", "tiny-musique", 20, _COMPACT),
        "paper": _of("MuSiQue", "paper", "Qwen/Qwen3-1.7B", 1024, _PAPER),
        "conflict": _of("MuSiQue", "conflict", "Qwen/Qwen3-1.7B", 1024, _PAPER),
    },
    "tools": {
        "compact": _of("Tools", "compact", "tiny-tools", 32, _COMPACT),
        "conflict": _of("Tools", "conflict", "Qwen/Qwen3-1.7B", 1024, _SMALLER),
        "paper": _of("Tools", "paper", "Qwen/Qwen3-1.7B", 1024, _PAPER),
    },
    "personas": {
        "conflict": _of("Personas", "conflict", "Qwen/Qwen3-1.7B", 512, _SMALLER),
        "paper": _of("Personas", "paper", "Qwen/Qwen3-1.7B", 512, _SMALLER),
    },
    "countdown": {
        "compact": _of("Countdown", "compact", "tiny-countdown", 32, _COMPACT),
        "conflict": _of("Countdown", "conflict", "Qwen/Qwen3-0.6B", 512, _SMALLER),
        "paper": _of("Countdown", "paper", "Qwen/Qwen3-0.6B", 512, _SMALLER),
    },
    "programs": {
        "compact": _of("Programs", "compact", "tiny-programs", 24, _COMPACT),
        "paper": _of("Programs", "paper", _CODER, 512, _PAPER),
    },
    "gsm8k": {"paper": _of("GSM8K", "paper", "Qwen/Qwen3-1.7B", 512, _SMALLER)},
    "reward-models": {"paper": _of("RewardModels", "paper", "Qwen/Qwen3-1.7B", 512, _SMALLER)},
}
ALL: Presets = {f"{task}-{name}": preset for task, presets in TASKS.items() for name, preset in presets.items()}
BUNDLED: Presets = {preset["model"]: preset for name, preset in ALL.items() if name.endswith("-compact")}
"""The settings that each bundled model was made for, by its name."""
