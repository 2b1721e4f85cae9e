"""Every setting of a training run, with its default, range and meaning."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from vpo_agent.estimators import available_estimators, estimator
from vpo_agent.estimators.losses import Aggregation, KLEstimator
from vpo_agent.estimators.weights import WeightSampler
from vpo_envs.scoring.scorers import Pool

Backend = Literal["native", "continuous", "vllm"]

DEFAULT_SET_SIZE = 3
DEFAULT_RUNS_DIR = Path("runs")


class TrainConfig(BaseModel):
    """Settings of one run. They are checked here, before anything is loaded or written."""

    # Without infinities a config survives JSON, which has none.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    env: str = Field("vpo/Maze-v0", description="id of a registered environment")
    env_kwargs: dict[str, Any] = Field(default_factory=dict, description="arguments of the environment, as JSON")
    model: str = Field(
        "tiny-maze", description="a Hugging Face causal LM by name or folder, or tiny-maze, the bundled one"
    )
    method: str = Field("vpo", description=f"estimator: {', '.join(available_estimators())}")
    method_options: dict[str, Any] = Field(default_factory=dict, description="options of the estimator, as JSON")
    num_answers: int | None = Field(
        None, ge=1, description=f"answers per rollout, m; {DEFAULT_SET_SIZE} for methods that score sets, else 1"
    )
    seed: int = Field(0, ge=0, description="keys weights and sampling; the tasks stay the same")

    steps: int = Field(200, ge=1, description="training steps, each one batch of rollouts")
    prompts_per_step: int = Field(16, ge=1, description="prompts in a batch, P")
    rollouts_per_prompt: int = Field(8, ge=1, description="rollouts of each prompt, G")
    max_new_tokens: int = Field(1024, ge=1, description="longest response, in tokens")
    temperature: float = Field(1.0, gt=0, description="of sampling in training")

    num_weights: int = Field(128, ge=1, description="weight vectors per prompt, K; a power of two for sobol")
    alpha: float = Field(1.0, gt=0, description="Dirichlet concentration of the weights")
    weight_sampler: WeightSampler = Field("sobol", description="how weights are drawn: sobol, or iid as in the paper")
    scalar_weights: list[float] | None = Field(
        None, description="fixed weights of the scalar reward, one per objective; the task's own by default"
    )

    learning_rate: float = Field(1e-6, gt=0, description="AdamW's rate, constant after the warm-up")
    warmup_steps: int = Field(0, ge=0, description="steps over which the rate rises from zero")
    adam_beta2: float = Field(0.999, gt=0, lt=1, description="AdamW's second decay rate")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's decoupled decay")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    minibatch_prompts: int | None = Field(
        None, ge=1, description="prompts per optimizer step; the whole batch by default"
    )
    microbatch_prompts: int | Literal["auto"] = Field(
        "auto", description="prompts per backward pass; auto: as many as fit on a GPU, about 1,024 tokens on a CPU"
    )
    epochs: int = Field(1, ge=1, description="passes over each batch")
    clip_low: float = Field(0.2, ge=0, le=1, description="the probability ratio is clipped below at 1 minus this")
    clip_high: float = Field(0.2, ge=0, description="the probability ratio is clipped above at 1 plus this")
    kl_coef: float = Field(
        1e-3, ge=0, description="weight of the KL penalty to the initial model; 0 loads no second model"
    )
    kl_estimator: KLEstimator = Field("k3", description="k1, k2 or k3 (low variance)")
    aggregation: Aggregation = Field("token_mean", description="token_mean, sequence_mean or fixed_length")
    importance_cap: float | None = Field(
        None,
        gt=0,
        description="weigh each token by trainer's over sampler's probability, at most this; off by default",
    )

    device: str = Field("auto", description="auto, cpu, cuda or cuda:0")
    dtype: str = Field("auto", description="auto (bfloat16 on a GPU, else float32), float32 or bfloat16")
    lora_rank: int = Field(0, ge=0, description="rank of LoRA adapters; 0 trains every weight")
    gradient_checkpointing: bool = Field(False, description="recompute activations in the backward pass to save memory")
    sample_batch: int = Field(1024, ge=1, description="most responses sampled at one time")
    backend: Backend = Field(
        "native", description="what generates: native, continuous (of transformers) or vllm, which must be installed"
    )
    gpu_memory_utilization: float = Field(
        0.5, gt=0, le=1, description="share of the GPU's memory that vllm takes while it generates"
    )

    scorer_pool: Pool = Field("none", description="where answers are scored: none (here), threads, processes or ray")
    scorer_workers: int | None = Field(
        None, ge=1, description="size of that pool; about one for each processor by default"
    )

    eval_split: Literal["validation", "test"] = Field(
        "test", description="split of the table before and after training"
    )
    eval_prompts: int = Field(100, ge=2, description="prompts of that table")
    eval_answers: int = Field(30, ge=1, description="answers sampled per prompt, rounded up to whole rollouts")
    eval_temperature: float = Field(1.0, gt=0, description="of sampling in evaluation")
    eval_every: int = Field(0, ge=0, description="steps between evaluations on validation prompts; 0 for none")
    eval_every_prompts: int = Field(32, ge=2, description="prompts of an evaluation during training")
    checkpoint_every: int = Field(50, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="how many of the newest checkpoints stay")
    tracker: Literal["none", "wandb", "trackio"] = Field(
        "none", description="also log to wandb or trackio, which must be installed; none: files and TensorBoard alone"
    )
    runs_dir: Path = Field(DEFAULT_RUNS_DIR, description="folder of all runs")
    name: str | None = Field(
        None, description="name of this run's folder; made from task, method, seed and time by default"
    )

    @field_validator("microbatch_prompts", mode="before")
    @classmethod
    def _is_auto_or_a_number(cls, value: object) -> object:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if value != "auto" and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            raise ValueError("give a number of prompts from 1, or auto")
        return number

    @model_validator(mode="after")
    def _settings_fit_together(self) -> TrainConfig:
        chosen = estimator(self.method)
        if chosen.answers == "single" and self.answers_per_rollout > 1:
            raise ValueError(
                f"method {self.method} scores one answer a rollout, but num_answers is {self.num_answers}: "
                "set num_answers to 1, or choose vpo or multi_rlvr"
            )
        if self.weight_sampler == "sobol" and self.num_weights & (self.num_weights - 1):
            raise ValueError(
                f"num_weights must be a power of two for the sobol sampler, got {self.num_weights}: "
                "choose 64, 128 or 256, or weight_sampler iid"
            )
        for name in ("split", "num_answers", "answers_as_steps", "render_mode"):
            if name in self.env_kwargs:
                hint = "set num_answers" if name == "num_answers" else "leave it out"
                raise ValueError(f"env_kwargs must not hold {name!r}, which the trainer decides on: {hint}")
        if self.minibatch_prompts is not None and self.minibatch_prompts > self.prompts_per_step:
            raise ValueError(
                f"minibatch_prompts is {self.minibatch_prompts}, but a step has only {self.prompts_per_step} prompts"
            )
        if self.name is not None and (not self.name or Path(self.name).name != self.name or self.name in (".", "..")):
            raise ValueError(f"name is the name of one folder inside runs_dir, got {self.name!r}")
        return self

    @property
    def answers_per_rollout(self) -> int:
        """m: the setting, or the method's usual number."""
        if self.num_answers is not None:
            return self.num_answers
        return 1 if estimator(self.method).answers == "single" else DEFAULT_SET_SIZE

    @property
    def eval_rollouts(self) -> int:
        """Rollouts per prompt that give at least ``eval_answers`` answers."""
        return -(-self.eval_answers // self.answers_per_rollout)


class Job(NamedTuple):
    """What a training command line asks for."""

    config: TrainConfig
    resume: bool
    overwrite: bool


def make_config(settings: Mapping[str, Any], source: str = "the settings") -> TrainConfig:
    """Check settings and fill in the defaults.

    Args:
        settings: Values by name.
        source: Where they come from, for messages.

    Raises:
        ValueError: An unknown name or a bad value, in one sentence.
    """
    try:
        return TrainConfig.model_validate(dict(settings))
    except ValidationError as error:
        raise ValueError(f"{source}: {_first_reason(error)}") from None


def read_config(path: Path) -> dict[str, Any]:
    """Read settings from a ``.json`` or ``.toml`` file, such as the ``config.json`` of a run.

    Raises:
        ValueError: No such file, not readable, or an unknown setting.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ValueError(f"cannot read the config file {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not valid {path.suffix.lstrip('.') or 'JSON'}: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{str(path)!r} must hold settings by name, not a {type(values).__name__}")
    for name in values:
        if name not in TrainConfig.model_fields:
            raise ValueError(f"{str(path)!r}: {_unknown(name)}")
    return values


def _first_reason(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(name)
    message = first["msg"].removeprefix("Value error, ")
    if not name:
        return message
    return f"{name}={first['input']!r} is not possible: {message[0].lower()}{message[1:]}"


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, TrainConfig.model_fields, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "see --help for all of them"
    return f"unknown setting {name!r}: {hint}"
