"""Settings to start from, for each task: the examples offer those of one task, ``vpo train`` all of them."""

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
_EMBEDDED = {
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
_GENERATED = {**_EMBEDDED, "env_kwargs": {"preset": "embedded", "prompt_style": "compact"}}
"""The same on the embedded instances of an environment that has a compact prompt."""
_SMALLER = {
    "prompts_per_step": 32,
    "minibatch_prompts": 16,
    "eval_temperature": 0.7,
    "eval_every": 25,
    "gradient_checkpointing": True,
}
_CONFLICT = {"env_kwargs": {"mode": "conflict"}}

MAZE: Presets = {
    "embedded": {
        **_GENERATED,
        "env": "vpo/Maze-v0",
        "model": "tiny-maze",
        "max_new_tokens": 60,
    },
    "embedded-easy": {
        **_EMBEDDED,
        "env": "vpo/Maze-v0",
        "env_kwargs": {"preset": "embedded-easy", "prompt_style": "compact"},
        "model": "tiny-maze-easy",
        "steps": 300,
        "learning_rate": 1e-4,
        "max_new_tokens": 100,
    },
    "conflict": {
        "env": "vpo/Maze-v0",
        "env_kwargs": {"preset": "conflict"},
        "model": "Qwen/Qwen3-0.6B",
        **_SMALLER,
        "max_new_tokens": 512,
    },
    "paper": {**_PAPER, "env": "vpo/Maze-v0", "env_kwargs": {"preset": "paper"}, "model": "Qwen/Qwen3-4B"},
}

_CODE = {
    **_PAPER,
    "env": "vpo/Code-v0",
    "model": "Qwen/Qwen2.5-Coder-7B-Instruct",
    "max_new_tokens": 4096,
}
CODE: Presets = {
    "embedded": {**_EMBEDDED, "env": "vpo/CodeCompact-v0", "model": "tiny-code", "max_new_tokens": 20},
    "paper": _CODE,
    "builtin": {**_CODE, **_SMALLER, "max_new_tokens": 2048},
    "conflict": {**_CODE, **_CONFLICT, "prompts_per_step": 16, "minibatch_prompts": 8},
}

_EUREQA = {**_PAPER, "env": "vpo/EUREQA-v0", "model": "Qwen/Qwen3-8B", "max_new_tokens": 2048}
EUREQA: Presets = {
    "embedded": {**_EMBEDDED, "env": "vpo/EUREQACompact-v0", "model": "tiny-eureqa", "max_new_tokens": 24},
    "paper": _EUREQA,
    "conflict": {**_EUREQA, **_CONFLICT},
}

_MUSIQUE = {**_PAPER, "env": "vpo/MuSiQue-v0", "model": "Qwen/Qwen3-1.7B", "max_new_tokens": 1024}
MUSIQUE: Presets = {
    "embedded": {**_EMBEDDED, "env": "vpo/MuSiQueCompact-v0", "model": "tiny-musique", "max_new_tokens": 20},
    "paper": _MUSIQUE,
    "conflict": {**_MUSIQUE, **_CONFLICT},
}

_TOOLS = {"env": "vpo/Tools-v0", "model": "Qwen/Qwen3-1.7B", **_SMALLER}
TOOLS: Presets = {
    "embedded": {**_EMBEDDED, "env": "vpo/ToolsCompact-v0", "model": "tiny-tools", "max_new_tokens": 32},
    "builtin": _TOOLS,
    "conflict": {**_TOOLS, **_CONFLICT},
    "paper": {**_TOOLS, **_PAPER},
}

_PERSONAS = {"env": "vpo/Personas-v0", "model": "Qwen/Qwen3-1.7B", **_SMALLER, "max_new_tokens": 512}
PERSONAS: Presets = {"conflict": {**_PERSONAS, **_CONFLICT}, "paper": _PERSONAS}

_COUNTDOWN = {"env": "vpo/Countdown-v0", "model": "Qwen/Qwen3-0.6B", **_SMALLER, "max_new_tokens": 512}
COUNTDOWN: Presets = {
    "embedded": {
        **_GENERATED,
        "env": "vpo/Countdown-v0",
        "model": "tiny-countdown",
        "max_new_tokens": 32,
    },
    "conflict": _COUNTDOWN,
    "classic": {**_COUNTDOWN, "env_kwargs": {"preset": "classic"}},
}

GSM8K: Presets = {"builtin": {"env": "vpo/GSM8K-v0", "model": "Qwen/Qwen3-1.7B", **_SMALLER, "max_new_tokens": 512}}

REWARD_MODELS: Presets = {
    "builtin": {"env": "vpo/RewardModels-v0", "model": "Qwen/Qwen3-1.7B", **_SMALLER, "max_new_tokens": 512}
}

_TASKS = {
    "maze": MAZE,
    "code": CODE,
    "eureqa": EUREQA,
    "musique": MUSIQUE,
    "tools": TOOLS,
    "personas": PERSONAS,
    "countdown": COUNTDOWN,
    "gsm8k": GSM8K,
    "reward-models": REWARD_MODELS,
}
ALL: Presets = {f"{task}-{name}": preset for task, presets in _TASKS.items() for name, preset in presets.items()}
BUNDLED: Presets = {preset["model"]: preset for name, preset in ALL.items() if "-embedded" in name}
"""The settings that each bundled model was made for, by its name."""
