"""A training job inside TRL: settings translated to TRL's own, logs and model in the run folder."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from envs_data.parsing import read_object
from vpo_agent.config import Job, TrainConfig
from vpo_agent.learning.optimizer import learning_rate
from vpo_agent.measure.measures import PREFIX, short_names
from vpo_envs.common.libraries import check_libraries

if TYPE_CHECKING:
    from accelerate import PartialState

    from vpo_agent.adapters.trl import TRLAdapter
    from vpo_agent.runs.run_folder import MetricsWriter

SAME_NAME = (
    "adam_beta2",
    "gradient_checkpointing",
    "learning_rate",
    "max_grad_norm",
    "seed",
    "temperature",
    "weight_decay",
)
"""Settings that TRL has under the same name."""
TRL_MICROBATCH_PROMPTS = 8
"""Prompts per backward pass if ``microbatch_prompts`` is ``"auto"``: TRL does not retry with fewer."""


def grpo_settings(config: TrainConfig, *, processes: int, on_gpu: bool) -> dict[str, Any]:
    """Return the arguments of ``GRPOConfig`` for the same steps as `vpo_agent.trainer`, shared by the processes.

    TRL counts optimizer steps, of which a training step has :func:`updates_per_step`. The ``eval_*`` settings and
    ``sample_batch`` are not used inside TRL; ``vpo eval`` reads some of them.

    Raises:
        ValueError: A setting that has no effect inside TRL, or batches that cannot be divided evenly.
    """
    if config.backend not in ("auto", "native", "vllm"):
        raise ValueError(f"TRL cannot sample with backend={config.backend}: use native or vllm")
    without_effect = ["scorer_threads"]
    if config.backend != "vllm":
        without_effect.append("importance_cap")
    for name in without_effect:
        value = getattr(config, name)
        if value != TrainConfig.model_fields[name].default:
            raise ValueError(
                f"{name}={value!r} has no effect inside TRL with the backend {config.backend}: leave it out"
            )
    prompts, group = config.prompts_per_step, config.rollouts_per_prompt
    per_update = config.minibatch_prompts or prompts
    if prompts % per_update:
        raise ValueError(f"TRL needs prompts_per_step, {prompts}, to be a multiple of minibatch_prompts, {per_update}")
    if per_update * group % processes:
        raise ValueError(
            f"{per_update} prompts x {group} rollouts per optimizer step cannot be shared evenly by {processes} "
            f"processes: choose numbers whose product is a multiple of {processes}"
        )
    updates = updates_per_step(config)
    share = per_update * group // processes
    prompts_at_once = TRL_MICROBATCH_PROMPTS if config.microbatch_prompts == "auto" else config.microbatch_prompts
    most = min(share, prompts_at_once * group)
    per_device = max(size for size in range(1, most + 1) if share % size == 0)
    settings: dict[str, Any] = {
        **{name: getattr(config, name) for name in SAME_NAME},
        "max_steps": config.steps * updates,
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": share // per_device,
        "steps_per_generation": prompts * group // (processes * per_device),
        "num_iterations": config.epochs,
        "max_completion_length": config.max_new_tokens,
        # For the record: the rates are those of `vpo_agent.learning.optimizer.learning_rate`.
        "warmup_steps": config.warmup_steps * updates,
        "lr_scheduler_type": "constant_with_warmup" if config.schedule == "constant" else config.schedule,
        "epsilon": config.clip_low,
        "epsilon_high": config.clip_high,
        "beta": config.kl_coef,
        "loss_type": "dapo",  # the mean over all tokens
        "disable_dropout": True,
        # Tasks are random already, and this keeps the order of the built-in trainer.
        "shuffle_dataset": False,
        "use_cpu": not on_gpu,
        "bf16": on_gpu and config.dtype != "float32",
        "save_steps": config.checkpoint_every * updates,
        "save_total_limit": config.keep_checkpoints,
        "logging_steps": updates,
        "report_to": "none",
    }
    if config.backend != "vllm":
        return settings
    # In each process, as the built-in trainer does in its own.
    return settings | {
        "use_vllm": True,
        "vllm_enable_sleep_mode": on_gpu,
        "vllm_gpu_memory_utilization": config.gpu_memory_utilization,
        "vllm_importance_sampling_correction": config.importance_cap is not None,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": config.importance_cap,
    }


def updates_per_step(config: TrainConfig) -> int:
    """Return the optimizer steps of a training step: one for each mini-batch and epoch."""
    return config.prompts_per_step // (config.minibatch_prompts or config.prompts_per_step) * config.epochs


def row_of(logs: dict[str, Any], step: int) -> dict[str, Any]:
    """Return a train row of TRL's log entries, renamed to those of the built-in trainer where they match."""
    names = {
        f"{PREFIX}score": "set_score",
        f"{PREFIX}diversity": "diversity",
        "completions/mean_length": "response_tokens",
        "completions/clipped_ratio": "truncated",
    }
    row: dict[str, Any] = {"kind": "train", "step": step}
    if "truncated" in logs:  # by the adapter, which knows stop strings and thoughts
        logs = {name: value for name, value in logs.items() if name != "completions/clipped_ratio"}
    for name, value in logs.items():
        if not isinstance(value, int | float) or name.endswith("/std") or name.startswith("rewards/advantage/"):
            continue
        if name.startswith("rewards/"):
            name = PREFIX + name.removeprefix("rewards/").removesuffix("/mean")
        row[names.get(name, name)] = value
    return short_names(row)


def make_adapter(config: TrainConfig, tokenizer: Any) -> TRLAdapter:
    """Return the adapter for the environment and method of a run; ValueError if they or TRL do not fit."""
    from vpo_agent.adapters.trl import TRLAdapter
    from vpo_agent.estimators.bound import SETTINGS
    from vpo_agent.rollouts.collect import make_text_env

    env = make_text_env(config.env, **config.train_kwargs, num_answers=config.max_answers, split="train")
    if env.turn_tags and config.backend == "vllm":
        raise ValueError(f"inside TRL, {config.env}, which replies to calls, is sampled with backend native alone")
    names = ("method", "method_options", "rollouts_per_prompt", *SETTINGS)
    settings = {name: getattr(config, name) for name in names}
    updates = updates_per_step(config)
    return TRLAdapter(
        env,
        tokenizer,
        num_answers=config.answer_counts,
        updates_per_step=updates,
        thinking=config.thinking == "on",
        date=config.date,
        **settings,
    )


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of TRL in ``folder``, or ``None``.

    TRL writes its state last, so a checkpoint without it was cut short, by a full disk or a kill.
    """
    checkpoints: dict[int, Path] = {}
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        with suppress(ValueError, KeyError):
            checkpoints[read_object(state)["global_step"]] = state.parent
    return checkpoints[max(checkpoints)] if checkpoints else None


class _Start(NamedTuple):
    """What the first process decides for all: a run's name may contain the time, and only one can make the folder."""

    settings: dict[str, Any]
    """Arguments of ``GRPOConfig``."""
    config: TrainConfig
    """The settings of the run, with its date."""
    path: Path
    """The run folder."""
    checkpoint: Path | None
    """TRL's checkpoint to continue from."""
    step: int
    """Training steps that the run has done."""


def train_with_trl(job: Job, **changes: Any) -> Any:
    """Train inside TRL, on as many processes as were launched.

    The run folder gets ``config.json``, ``metrics.jsonl`` and TensorBoard events with the names of the built-in
    trainer, TRL's checkpoints in ``trl/`` and the trained model in ``model/``.

    Args:
        job: What to train.
        **changes: Arguments of ``GRPOConfig`` to replace, such as ``use_vllm=True``.

    Raises:
        ValueError: A setting that TRL does not support, or a run folder in use.
        DiskFull: There is no space left for a row, a checkpoint or the model.
        SystemExit: In the other processes, if the first one raises ValueError.
    """
    # Imported here: scripts import this module before errors are reduced to one sentence.
    check_libraries()
    from vpo_agent.policy.loading import load_model, lora_config
    from vpo_agent.policy.model_choice import ModelChoice
    from vpo_agent.rollouts.backends import with_backend
    from vpo_agent.rollouts.collect import environments_of, numbers_of_answers
    from vpo_agent.runs.run_folder import RunFolder

    config = job.config
    choice = ModelChoice.of(config.model, device=config.device, dtype=config.dtype)
    config = with_backend(config, choice)
    peft = lora_config(config.lora_rank) if config.lora_rank else None
    model, tokenizer = load_model(choice.path, torch.float32)
    adapter = make_adapter(config, tokenizer)
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list
    from trl import GRPOConfig

    updates = updates_per_step(config)
    on_gpu = choice.device.type == "cuda"
    processes = PartialState(cpu=not on_gpu)
    shared: list[Any] = [None]
    if processes.is_main_process:
        try:
            settings = grpo_settings(config, processes=processes.num_processes, on_gpu=on_gpu)
            folder = RunFolder.open(config, resume=job.resume, overwrite=job.overwrite)
            folder.compare_inputs(environments_of(config), resume=job.resume, accept_changes=job.accept_changes)
            checkpoint = last_checkpoint(folder.path / "trl") if job.resume else None
            step = int(checkpoint.name.removeprefix("checkpoint-")) // updates if checkpoint else 0
            folder.start(step)
            shared = [_Start(settings, folder.config, folder.path, checkpoint, step)]
            print(f"sampled by the backend {config.backend}")
        except ValueError as error:
            shared = [error]
    broadcast_object_list(shared)
    start: _Start | ValueError = shared[0]
    if isinstance(start, ValueError):
        _end_together(processes, start)
    if not processes.is_main_process:
        folder = RunFolder(start.path, start.config)
    adapter.set_date(start.config.date)

    with (
        warnings.catch_warnings(action="ignore", category=FutureWarning),
        folder.room(lambda: last_checkpoint(start.path / "trl")),
        folder.writer(start.step) if processes.is_main_process else nullcontext() as writer,
    ):
        trainer = _trainer_type(adapter.trainer_type())(
            config,
            model=adapter.end_at_last_answer(model),
            processing_class=tokenizer,
            reward_funcs=adapter.reward_functions(),
            train_dataset=adapter.dataset(
                range(config.steps * config.prompts_per_step),
                [
                    m
                    for step in range(config.steps)
                    for m in numbers_of_answers(
                        config.answer_shares, config.prompts_per_step, seed=config.seed, step=step
                    )
                ],
            ),
            args=GRPOConfig(
                **{
                    **start.settings,
                    **adapter.required_settings(),
                    **({"generation_kwargs": adapter.vllm_settings()} if config.backend == "vllm" else {}),
                    "output_dir": str(start.path / "trl"),
                    **changes,
                }
            ),
            rollout_func=adapter.sample_turns if adapter.env.turn_tags else None,
            callbacks=[] if writer is None else [_log_callback(writer, updates)],
            peft_config=peft,
        )
        trainer.train(resume_from_checkpoint=str(start.checkpoint) if start.checkpoint else None)
        steps_done = trainer.state.global_step // updates
        _save_model(trainer, start.path / "model", steps_done, is_main_process=processes.is_main_process)
    return trainer


def _end_together(processes: PartialState, error: ValueError) -> NoReturn:
    """End all processes: the first one raises the error, the others end without a message of their own."""
    # All must get here before one ends, or a broken connection may abort the others.
    processes.wait_for_everyone()
    processes.destroy_process_group()
    if processes.is_main_process:
        raise error
    raise SystemExit(2)


def _trainer_type(adapted: Any) -> type[Any]:
    """Return a trainer with the learning rates of the built-in trainer."""
    from torch.optim.lr_scheduler import LambdaLR

    class Trainer(adapted):  # type: ignore[misc]  # the class comes from TRL, which is imported late
        lr_scheduler: Any

        def __init__(self, config: TrainConfig, **arguments: Any) -> None:
            self._config = config
            super().__init__(**arguments)

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            if self.lr_scheduler is None:
                optimizer = self.optimizer if optimizer is None else optimizer
                self.lr_scheduler = LambdaLR(optimizer, partial(rate_of_update, self._config))
                self._created_lr_scheduler = True
            return self.lr_scheduler

    return Trainer


def rate_of_update(config: TrainConfig, update: int) -> float:
    """Return the learning rate of an optimizer step, counted from 0, as a share of the highest."""
    return learning_rate(
        update // updates_per_step(config),
        peak=1.0,
        warmup_steps=config.warmup_steps,
        schedule=config.schedule,
        steps=config.steps,
    )


def _log_callback(writer: MetricsWriter, updates: int) -> Any:
    """Return a callback of TRL's trainer that writes its logs as rows of the run, one for each training step.

    ``updates`` are the optimizer steps of a training step, over which TRL has taken the means.
    """
    from transformers import TrainerCallback

    class WriteLogs(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
            if logs and "loss" in logs:
                writer.write(row_of(logs, state.global_step // updates))

    return WriteLogs()


def _save_model(trainer: Any, folder: Path, steps_done: int, *, is_main_process: bool) -> None:
    """Save the trained model; the file with its step is written last, so it exists only beside a complete model."""
    from vpo_agent.runs.whole_files import write_manifest, write_text_atomically

    state = folder / "state.json"
    if is_main_process:
        state.unlink(missing_ok=True)
    trainer.save_model(str(folder))
    if is_main_process:
        write_manifest(folder)
        write_text_atomically(state, json.dumps({"step": steps_done}) + "\n")
