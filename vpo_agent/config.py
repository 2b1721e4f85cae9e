"""Every setting of a training run, by group, with its default, range and meaning."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from envs_data.parsing import read_json, read_toml
from vpo_agent.estimators.choices import BUILT_IN, MOST_ANSWERS_OF_A_SEARCH, SET_SIZE, answers_of, settings_for_search
from vpo_agent.estimators.weights import WeightSampler
from vpo_envs.common.imports import FUNCTIONS_ID
from vpo_envs.common.wording import counted, did_you_mean
from vpo_envs.registration import saved_env

Log = Literal["tensorboard", "wandb", "none"]
Schedule = Literal["constant", "linear", "cosine"]

DEFAULT_RUNS_DIR = Path("runs")
FRESH = "small"
"""A model of fresh weights for a warm start."""
CONFIG_FILE = "config.json"
DTYPE_MEANING = "auto (bfloat16 on a GPU, else float32), float32 or bfloat16"
BACKENDS = ["native", "vllm"]
"""Sampling engines; :func:`~vpo_agent.rollouts.backends.register_backend` adds others."""

T = TypeVar("T")
Checked = TypeVar("Checked", bound=BaseModel)
Thinking = Literal["on", "off"]
Incidental = Annotated[T, "incidental"]
"""A setting that cannot change results: a resumed run may change it, and comparisons ignore it."""
Resumable = Annotated[T, "resumable"]
"""A setting that changes results, but that a resumed run may change."""
Evaluated = Annotated[T, "evaluated"]
"""A setting of the task, the seed or the evaluation: runs that differ only in these have the same method."""


def _setting(default: Any, description: str, **bounds: Any) -> Any:
    return Field(default, description=description, **bounds)


class _Group(BaseModel):
    # Without infinities a config survives JSON, which has none. Strict, so that true is not a number of steps.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=(), strict=True)


class Task(_Group):
    """what every training has: the task, the model, the seed and the number of steps"""

    env: Evaluated[str] = _setting("vpo/Maze-v0", "id of a registered environment, or MODULE:ID")
    env_kwargs: Evaluated[dict[str, Any]] = _setting({}, "arguments of the environment, as JSON")
    imports: Incidental[list[str]] = _setting(
        [], "modules or .py files that register environments or methods of your own"
    )
    model: str = _setting(
        "tiny-maze", "causal LM: a name on Hugging Face, a folder, a GGUF file, or the bundled tiny-maze"
    )
    seed: Evaluated[int] = _setting(
        0, "seed of drawn weightings, new adapters and sampling; the tasks stay the same", ge=0
    )
    steps: Resumable[int] = _setting(200, "training steps, each one batch of rollouts", ge=1)


class Run(Task):
    """the task, the model, and where the run is stored"""

    data_seed: Evaluated[int] = _setting(0, "stream of generated training tasks; held-out tasks stay the same", ge=0)
    name: Incidental[str | None] = _setting(
        None, "name of the run's folder; none: made from task, method, seed and time"
    )
    runs_dir: Incidental[Path] = _setting(DEFAULT_RUNS_DIR, "folder of all runs", strict=False)
    log: Incidental[Log] = _setting(
        "tensorboard", "where the rows of metrics.jsonl are also shown: tensorboard, wandb (an extra) or none"
    )

    @field_validator("name")
    @classmethod
    def _is_a_folder(cls, value: str | None) -> str | None:
        if value is not None and (not Path(value).name or "\0" in value or ".." in Path(value).parts):
            raise ValueError("it must be the name of a folder in runs_dir, without ..")
        return value

    checkpoint_every: Incidental[int] = _setting(50, "steps between checkpoints", ge=1)
    keep_checkpoints: Incidental[int] = _setting(2, "number of newest checkpoints to keep", ge=1)


class Method(_Group):
    """how rollouts are scored"""

    search_budget: Evaluated[int | None] = _setting(
        None,
        "number of answers that your search samples, N; sets method, method_options and num_answers unless you set "
        "them: grpo for N = 1, vpo with 2 answers for N = 2, vpo with 3 answers for N = 3 to 15; for a larger N "
        "vpo_pool with 3 answers, k = N/3 (at most half of rollouts_per_prompt) and baseline subset",
        ge=1,
        le=MOST_ANSWERS_OF_A_SEARCH,
    )
    method: str = _setting("vpo", f"how rollouts are scored: {', '.join(BUILT_IN)}, or a registered one")
    method_options: dict[str, Any] = _setting({}, "options of the method, by name")
    num_answers: int | list[int] | None = _setting(
        None,
        f"answers per rollout, m; none: {SET_SIZE} for methods that take several answers, else 1; several numbers, "
        "such as 1,1,3, are each asked for by an equal share of a step's prompts",
    )
    num_weights: int = _setting(128, "weightings drawn for each prompt, K; a power of two except with iid", ge=1)
    alpha: float = _setting(1.0, "Dirichlet concentration of the drawn weightings; 1 is uniform", gt=0)
    weight_sampler: WeightSampler = _setting("sobol", "how weightings are drawn: sobol, or iid as in the paper")
    scalar_weights: list[float] | None = _setting(
        None, "fixed weighting of the scalar reward, a number per objective; none: the task's own", strict=False
    )

    @field_validator("num_answers", mode="before")
    @classmethod
    def _is_one_or_several_numbers(cls, value: object) -> object:
        several = value if isinstance(value, list) else [value]
        if value is not None and (not several or any(type(m) is not int or m < 1 for m in several)):
            raise ValueError("give whole numbers from 1, such as 3, or 1,3 for several")
        return several[0] if len(set(several)) == 1 else value


class Sampling(_Group):
    """the rollouts of a training step"""

    prompts_per_step: int = _setting(16, "prompts of a training step, P", ge=1)
    rollouts_per_prompt: int = _setting(8, "rollouts of each prompt, G", ge=1)
    max_new_tokens: int = _setting(1024, "length limit of a response, in tokens", ge=1)
    temperature: float = _setting(1.0, "sampling temperature in training", gt=0)
    thinking: Thinking = _setting("off", "whether the chat template asks for thoughts before the answer: on or off")
    date: Evaluated[str | None] = _setting(
        None, "date for chat templates that write one, such as 2026-01-31; none: the day on which the run starts"
    )

    @field_validator("date")
    @classmethod
    def _is_a_day(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                date.fromisoformat(value)
            except ValueError:
                raise ValueError("give a day such as 2026-01-31") from None
        return value


class _BudgetInputs(Sampling, Method):
    """Settings that ``search_budget`` decides from."""


class Optimisation(_Group):
    """the gradient steps on a batch of rollouts"""

    learning_rate: float = _setting(1e-6, "AdamW's highest learning rate", gt=0)
    schedule: Schedule = _setting(
        "constant",
        "learning rate after the warm-up: constant, or linear or cosine, which fall to 0 just after the last step",
    )
    warmup_steps: int = _setting(0, "steps over which the learning rate rises linearly to its highest value", ge=0)
    adam_beta2: float = _setting(0.999, "AdamW's second decay rate", gt=0, lt=1)
    weight_decay: float = _setting(0.01, "AdamW's decoupled weight decay", ge=0)
    max_grad_norm: float = _setting(1.0, "norm to which gradients are clipped", gt=0)
    minibatch_prompts: int | None = _setting(None, "prompts per optimizer step; none: the whole batch", ge=1)
    epochs: int = _setting(1, "passes over each batch", ge=1)
    clip_low: float = _setting(0.2, "the probability ratio is clipped below at 1 minus this number", ge=0, le=1)
    clip_high: float = _setting(0.2, "the probability ratio is clipped above at 1 plus this number", ge=0)
    kl_coef: float = _setting(1e-3, "weight of the KL penalty to the base; 0 loads no second model", ge=0)
    importance_cap: float | None = _setting(
        None, "cap on the trainer-to-sampler probability ratio that weights each token; none: off", gt=0
    )
    lora_rank: int = _setting(0, "rank of LoRA adapters; 0 trains every weight", ge=0)


class Evaluation(_Group):
    """the held-out prompts before, during and after training"""

    eval_split: Evaluated[Literal["validation", "test"]] = _setting(
        "test", "split of the prompts that are evaluated before and after training"
    )
    eval_prompts: Evaluated[int] = _setting(100, "prompts that are evaluated before and after training", ge=2)
    eval_answers: Evaluated[int] = _setting(30, "answers sampled per prompt, rounded up to whole responses", ge=1)
    eval_temperature: Evaluated[float] = _setting(1.0, "sampling temperature in evaluation", gt=0)
    eval_every: Incidental[int] = _setting(0, "steps between evaluations on validation prompts; 0: never", ge=0)
    eval_every_prompts: Evaluated[int] = _setting(
        32, "validation prompts of an evaluation during training, at most eval_prompts", ge=2
    )


class Hardware(_Group):
    """devices, memory and threads"""

    device: Incidental[str] = _setting("auto", "auto, cpu, cuda or cuda:0")
    dtype: str = _setting("auto", DTYPE_MEANING)
    gradient_checkpointing: Incidental[bool] = _setting(
        False, "recompute activations in the backward pass to save memory"
    )
    microbatch_prompts: Incidental[int | Literal["auto"]] = _setting(
        "auto", "prompts per backward pass; auto: as many as fit on a GPU, about 1,024 tokens on a CPU"
    )
    sample_batch: Incidental[int | Literal["auto"]] = _setting(
        "auto", "responses sampled at the same time, at most; auto: as many as fit, on a CPU no more than 1,024"
    )
    backend: Evaluated[str] = _setting(
        "auto", "sampling engine: native, vllm, a registered one, or auto, which is native"
    )
    gpu_memory_utilization: Incidental[float] = _setting(
        0.5, "share of the device's memory that vllm takes while it samples", gt=0, le=1
    )
    scorer_threads: Incidental[int] = _setting(
        0,
        "threads that score answers, for scorers that wait for a server or a subprocess; 0: the thread that trains",
        ge=0,
    )

    @field_validator("backend")
    @classmethod
    def _is_registered(cls, value: str) -> str:
        if value not in ("auto", *BACKENDS):
            raise ValueError(
                f"{did_you_mean(value, BACKENDS)}choose one of auto, {', '.join(BACKENDS)}, or add your own with "
                "register_backend"
            )
        return value

    @field_validator("microbatch_prompts", "sample_batch", mode="before")
    @classmethod
    def _is_auto_or_a_number(cls, value: object, info: ValidationInfo) -> object:
        if value != "auto" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            unit = "prompts" if info.field_name == "microbatch_prompts" else "responses"
            raise ValueError(f"give a number of {unit} from 1, or auto")
        return value


GROUPS: dict[str, type[BaseModel]] = {
    group.__name__.lower(): group for group in (Run, Method, Sampling, Optimisation, Evaluation, Hardware)
}


class TrainConfig(Hardware, Evaluation, Optimisation, Sampling, Method, Run):
    """Settings of one run, checked before anything is loaded or written.

    Each setting is an attribute; :meth:`grouped` has them as ``config.json`` holds them.
    """

    @model_validator(mode="before")
    @classmethod
    def _may_be_grouped(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            raise ValueError(f"give settings by name, not a {type(values).__name__}")
        flat = flat_settings(values)
        try:
            given = _BudgetInputs.model_validate(
                {name: flat[name] for name in _BudgetInputs.model_fields if name in flat}
            )
        except ValidationError:
            return flat  # The fields of this class say why.
        if given.search_budget is None:
            return flat
        chosen = given.model_dump(include=given.model_fields_set)
        return {**flat, **settings_for_search(given.search_budget, chosen, given.rollouts_per_prompt)}

    @model_validator(mode="after")
    def _settings_fit_together(self) -> TrainConfig:
        if answers_of(self.method) == "single" and self.max_answers > 1:
            raise ValueError(
                f"method {self.method} scores one answer per rollout, but num_answers is {self.num_answers}: "
                "set num_answers to 1, or choose vpo, vpo_pool or multi_rlvr"
            )
        if self.weight_sampler == "sobol" and self.num_weights & (self.num_weights - 1):
            raise ValueError(
                f"num_weights must be a power of two for the sobol sampler, got {self.num_weights}: "
                "choose 64, 128 or 256, or weight_sampler iid"
            )
        check_room(self.max_answers, self.max_new_tokens)
        for name in ("split", "num_answers", "answers_as_steps", "render_mode"):
            if name in self.env_kwargs:
                hint = "set num_answers" if name == "num_answers" else "leave it out"
                raise ValueError(f"env_kwargs must not hold {name!r}, which the trainer sets: {hint}")
        if self.data_seed and "data_seed" in self.env_kwargs:
            raise ValueError("data_seed is given as a setting and in env_kwargs: leave one of them out")
        if self.minibatch_prompts is not None and self.minibatch_prompts > self.prompts_per_step:
            raise ValueError(
                f"minibatch_prompts is {self.minibatch_prompts}, but a step has only "
                f"{counted(self.prompts_per_step, 'prompt')}: lower it, or raise prompts_per_step"
            )
        if self.name is not None and (not self.name or Path(self.name).name != self.name or self.name in (".", "..")):
            raise ValueError(f"name is the name of one folder inside runs_dir, got {self.name!r}")
        return self

    @property
    def train_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment in training."""
        # An environment of one's own may take no data_seed.
        return {**self.env_kwargs, **({"data_seed": self.data_seed} if self.data_seed else {})}

    @cached_property
    def answer_shares(self) -> list[int]:
        """The numbers of answers that prompts ask for, each as often as its share of the prompts; usually m alone."""
        chosen = self.num_answers or default_num_answers(self.method)
        return chosen if isinstance(chosen, list) else [chosen]

    @property
    def answer_counts(self) -> list[int]:
        """The different numbers of answers, the largest first."""
        return sorted(set(self.answer_shares), reverse=True)

    @property
    def max_answers(self) -> int:
        """M, the largest number of answers."""
        return max(self.answer_shares)

    def eval_rollouts(self, num_answers: int) -> int:
        """Return the responses to each prompt that give at least ``eval_answers`` answers."""
        return -(-self.eval_answers // num_answers)

    def grouped(self) -> dict[str, dict[str, Any]]:
        """Return the settings as JSON values, by group and name."""
        values = self.model_dump(mode="json")
        return {group: {name: values[name] for name in fields.model_fields} for group, fields in GROUPS.items()}


class Recipe(Task):
    """Settings of a warm start: how it learns an environment's demonstrations, and how it is evaluated; a model's
    ``recipe.json``.

    The settings of the task are shared with a training run; all others have their own defaults.
    """

    env: str = Field(description="id of a registered environment with demonstrations, or MODULE:ID")
    model: str = _setting(
        FRESH,
        "causal LM: a name on Hugging Face, a folder, a GGUF file, or a bundled model; "
        f"{FRESH} is a new model of about a million random weights whose vocabulary is the words of the task",
    )
    seed: int = _setting(0, "seed of fresh weights, training tasks and sampling", ge=0)
    steps: int = _setting(1000, "optimizer steps", ge=1)
    lora_rank: int = _setting(0, "rank of LoRA adapters; 0 trains every weight", ge=0)
    dtype: str = _setting("auto", DTYPE_MEANING)
    batch: int = _setting(64, "responses per step", ge=1)
    responses: int = _setting(1, "demonstrated responses per task; a divisor of batch", ge=1)
    answers: list[Annotated[int, Field(ge=1)]] = _setting(
        [1, 3], "numbers of answers, one of which is drawn for each task", min_length=1
    )
    learning_rate: float = _setting(
        1e-3, "highest learning rate; for a pretrained model usually 1e-5, with LoRA 2e-4", gt=0, lt=1
    )
    positions: int = _setting(256, f"most tokens of prompt and response, for model {FRESH}", ge=1)
    max_new_tokens: int = _setting(64, "length limit of a response in evaluations, in tokens", ge=1)
    eval_every: int = _setting(100, "steps between evaluations", ge=1)
    eval_prompts: int = _setting(50, "validation tasks of each evaluation", ge=1)
    eval_answers: int = _setting(30, "answers sampled per validation task", ge=1)

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Recipe:
        if self.batch % self.responses:
            raise ValueError(f"batch={self.batch} is not a multiple of responses={self.responses}: change one of them")
        if self.model == FRESH and (self.lora_rank or self.dtype not in ("auto", "float32")):
            raise ValueError(f"model={FRESH} is trained whole and in float32: leave lora_rank and dtype out")
        return self


def _marked(*marks: str) -> frozenset[str]:
    return frozenset(
        name for name, field in TrainConfig.model_fields.items() if any(mark in field.metadata for mark in marks)
    )


INCIDENTAL = _marked("incidental")
MAY_CHANGE_ON_RESUME = _marked("incidental", "resumable")
NOT_OF_THE_METHOD = _marked("incidental", "evaluated")
"""Runs that differ only in these settings are seeds of one method."""


class Job(NamedTuple):
    """What a training command line asks for."""

    config: TrainConfig
    resume: bool = False
    """Whether to continue the run from its last checkpoint."""
    overwrite: bool = False
    """Whether to delete what the run folder holds."""
    accept_changes: bool = False
    """Whether to resume although prompts, rewards or models have changed since."""


def env_options(env: str, env_kwargs: Mapping[str, Any], imports: Sequence[str] = ()) -> list[str]:
    """Return the options of a command line that name an environment."""
    options, others = ["--env", env], dict(env_kwargs)
    if env == FUNCTIONS_ID:
        options = ["--prompts", others.pop("source"), "--rewards", others.pop("rewards")]
        if columns := others.pop("columns", {}):
            options += ["--columns", ",".join(f"{name}={field}" for name, field in columns.items())]
        ranges = others.pop("ranges", {})
        for name, (low, high) in (ranges if isinstance(ranges, Mapping) else {"": ranges}).items():
            options += ["--range", f"{name}={low:g},{high:g}".lstrip("=")]
        imports = imports[1:]
    options += ["--env-kwargs", json.dumps(others)] if others else []
    return [*options, *(word for module in imports for word in ("--import", module))]


def default_num_answers(method: str) -> int:
    """Return the answers per rollout of a method where ``num_answers`` is not set."""
    return 1 if answers_of(method) == "single" else SET_SIZE


def check_room(num_answers: int, max_new_tokens: int) -> None:
    """Raise ValueError unless a response has at least one token per answer."""
    if num_answers > max_new_tokens:
        raise ValueError(
            f"{num_answers} answers do not fit into a response of max_new_tokens={max_new_tokens}: ask for fewer "
            "answers or allow more tokens"
        )


def flat_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name, from settings by name, by group and name, or both."""
    flat: dict[str, Any] = {}
    given_where: dict[str, str] = {}
    for name, content in values.items():
        group = name if name in GROUPS and isinstance(content, Mapping) else None
        where = f"in the group {group!r}" if group else "outside the groups"
        for setting, value in content.items() if group else [(name, content)]:
            right_group = next((group for group, fields in GROUPS.items() if setting in fields.model_fields), group)
            if group and right_group != group:
                raise ValueError(f"the setting {setting!r} is {where}: move it to {right_group!r}")
            if setting in flat:
                raise ValueError(f"the setting {setting!r} is given {given_where[setting]} and {where}: leave one out")
            flat[setting], given_where[setting] = value, where
    return flat


def make_config(settings: Mapping[str, Any], source: str = "the settings") -> TrainConfig:
    """Check settings and fill in the defaults.

    Args:
        settings: Values by name, or by group and name.
        source: Where they come from, for messages.

    Raises:
        ValueError: An unknown name or a bad value, in one sentence.
    """
    return check_settings(TrainConfig, settings, source)


def check_settings(kind: type[Checked], settings: Mapping[str, Any], source: str) -> Checked:
    """Return settings of a ``kind``, like :func:`make_config`."""
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise ValueError(f"{source}: {_first_reason(error, kind)}") from None


def read_config(path: Path) -> dict[str, Any]:
    """Read settings from a TOML or JSON file, grouped or flat, such as the ``config.json`` of a run.

    Raises:
        ValueError: The file cannot be read, or a setting is unknown, in the wrong group, given twice or of a bad value.
    """
    values = read_values(path)
    try:
        settings = flat_settings(values)
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from None
    check_given(settings, repr(str(path)))
    return settings


def check_given(settings: Mapping[str, Any], source: str) -> None:
    """Raise ValueError if one of some settings is unknown or of a bad value; ``source`` says where they come from.

    Whether settings fit together is left open: it depends on the others, which another source may give.
    """
    for name in settings:
        if name not in TrainConfig.model_fields:
            raise ValueError(f"{source}: {_unknown(name)}")
    try:
        TrainConfig.model_validate(settings)
    except ValidationError as error:
        if error.errors()[0]["loc"]:
            raise ValueError(f"{source}: {_first_reason(error, TrainConfig)}") from None


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run; a saved model also has a ``config.json``, of another kind."""
    try:
        settings = flat_settings(read_values(folder / CONFIG_FILE))
    except ValueError:
        return False
    return "env" in settings and "model" in settings


def read_run_config(folder: Path, stated: Collection[str] = ()) -> TrainConfig:
    """Return the settings of the run in ``folder``, with an environment that imports nothing.

    Arguments of the environment that are neither harmless nor trusted are an error, except those in ``stated``, for
    which the user gives a value.
    """
    path = folder / CONFIG_FILE
    settings = read_config(path)
    if "env" in settings:
        arguments = {name: value for name, value in settings.get("env_kwargs", {}).items() if name not in stated}
        settings["env"] = saved_env(settings["env"], arguments, settings.get("imports", []))
    return make_config(settings, repr(str(path)))


def read_values(path: Path) -> dict[str, Any]:
    """Return the content of a TOML or JSON file that holds a mapping; ValueError if it cannot be read."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in ("toml", "json"):
        raise ValueError(f"{str(path)!r} is not named as TOML or JSON: end its name in .toml or .json")
    values = read_toml(path) if kind == "toml" else read_json(path, unique=True)
    if not isinstance(values, dict):
        raise ValueError(f"{str(path)!r} must hold settings by name, not a {type(values).__name__}")
    return values


def _first_reason(error: ValidationError, kind: type[BaseModel]) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(name, kind)
    message = first["msg"].removeprefix("Value error, ")
    if not name:
        return message
    for bound, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        if bound in first.get("ctx", {}):
            return f"{name}={first['input']} is invalid: it must be {words} {first['ctx'][bound]}"
    return f"{name}={first['input']!r} is invalid: {message[0].lower()}{message[1:]}"


def _unknown(name: str, kind: type[BaseModel] = TrainConfig) -> str:
    groups = GROUPS if kind is TrainConfig else {}
    if name in groups:
        return f"{name!r} is a group of settings: give the settings in it by name"
    hint = did_you_mean(str(name), [*kind.model_fields, *groups]).strip()
    return f"unknown setting {name!r}: {hint or 'see --help for all of them'}"
