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
"""Settings for a bundled model on a CPU."""
_SMALLER = {
    "prompts_per_step": 32,
    "minibatch_prompts": 16,
    "eval_temperature": 0.7,
    "eval_every": 25,
    "gradient_checkpointing": True,
}


def _preset(task: str, preset: str, model: str, max_new_tokens: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a preset of a task."""
    return {
        **settings,
        "env": f"vpo/{task}-v0",
        "env_kwargs": {"preset": preset},
        "model": model,
        "max_new_tokens": max_new_tokens,
    }


_CODER = "Qwen/Qwen2.5-Coder-7B-Instruct"

TASKS: dict[str, Presets] = {
    "maze": {
        "compact": _preset("Maze", "compact", "tiny-maze", 60, _COMPACT),
        "conflict": _preset("Maze", "conflict", "Qwen/Qwen3-0.6B", 512, _SMALLER),
        "paper": _preset("Maze", "paper", "Qwen/Qwen3-4B", 1024, _PAPER),
    },
    "archive": {
        "compact": _preset("Archive", "compact", "tiny-archive", 30, _COMPACT),
        "conflict": _preset("Archive", "conflict", "Qwen/Qwen3-1.7B", 1024, _SMALLER),
        "paper": _preset("Archive", "paper", "Qwen/Qwen3-1.7B", 1024, _PAPER),
    },
    "code": {
        "compact": _preset("Code", "compact", "tiny-code", 20, _COMPACT),
        "paper": _preset("Code", "paper", _CODER, 4096, _PAPER),
        "conflict": _preset(
            "Code", "conflict", _CODER, 4096, {**_PAPER, "prompts_per_step": 16, "minibatch_prompts": 8}
        ),
    },
    "eureqa": {
        "compact": _preset("EUREQA", "compact", "tiny-eureqa", 40, _COMPACT),
        "paper": _preset("EUREQA", "paper", "Qwen/Qwen3-8B", 2048, _PAPER),
        "conflict": _preset("EUREQA", "conflict", "Qwen/Qwen3-8B", 2048, _PAPER),
    },
    "musique": {
        "compact": _preset("MuSiQue", "compact", "tiny-musique", 20, _COMPACT),
        "paper": _preset("MuSiQue", "paper", "Qwen/Qwen3-1.7B", 1024, _PAPER),
        "conflict": _preset("MuSiQue", "conflict", "Qwen/Qwen3-1.7B", 1024, _PAPER),
    },
    "tools": {
        "compact": _preset("Tools", "compact", "tiny-tools", 32, _COMPACT),
        "conflict": _preset("Tools", "conflict", "Qwen/Qwen3-1.7B", 1024, _SMALLER),
        "paper": _preset("Tools", "paper", "Qwen/Qwen3-1.7B", 1024, _PAPER),
    },
    "personas": {
        "conflict": _preset("Personas", "conflict", "Qwen/Qwen3-1.7B", 512, _SMALLER),
        "paper": _preset("Personas", "paper", "Qwen/Qwen3-1.7B", 512, _SMALLER),
    },
    "countdown": {
        "compact": _preset("Countdown", "compact", "tiny-countdown", 32, _COMPACT),
        "conflict": _preset("Countdown", "conflict", "Qwen/Qwen3-0.6B", 512, _SMALLER),
        "paper": _preset("Countdown", "paper", "Qwen/Qwen3-0.6B", 512, _SMALLER),
    },
    "programs": {
        "compact": _preset("Programs", "compact", "tiny-programs", 24, _COMPACT),
        "paper": _preset("Programs", "paper", _CODER, 512, _PAPER),
    },
    "gsm8k": {"paper": _preset("GSM8K", "paper", "Qwen/Qwen3-1.7B", 512, _SMALLER)},
    "reward-models": {"paper": _preset("RewardModels", "paper", "Qwen/Qwen3-1.7B", 512, _SMALLER)},
}
ALL: Presets = {f"{task}-{name}": preset for task, presets in TASKS.items() for name, preset in presets.items()}
BUNDLED: Presets = {preset["model"]: preset for name, preset in ALL.items() if name.endswith("-compact")}
"""The settings that each bundled model was made for, by its name."""
