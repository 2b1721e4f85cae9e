"""A whole job inside TRL: the settings of a run as TRL's own, its logs and its model in the run's folder."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vpo_agent.config import Job, TrainConfig
from vpo_agent.libraries import check_libraries

if TYPE_CHECKING:
    from vpo_agent.adapters.trl import TRLAdapter
    from vpo_agent.runs.run_folder import MetricsWriter

LOSS_TYPES = {"token_mean": "dapo", "sequence_mean": "grpo", "fixed_length": "dr_grpo"}
"""What TRL calls our aggregations."""
OF_THE_BUILT_IN_TRAINER = (
    "backend",
    "cuda_graphs",
    "gpu_memory_utilization",
    "importance_cap",
    "scorer_pool",
    "scorer_workers",
)
"""Settings that TRL has no use for, and that a user would wait for in vain."""
TRL_MICROBATCH_PROMPTS = 8
"""Prompts of a backward pass where ``microbatch_prompts`` is ``"auto"``: TRL does not try again with fewer."""


def grpo_settings(config: TrainConfig, *, processes: int, on_gpu: bool) -> dict[str, Any]:
    """The arguments of ``GRPOConfig`` for a run: those that make the same steps as `vpo_agent.trainer`.

    The ``eval_*`` settings and ``sample_batch`` have no meaning there; ``vpo eval`` reads some of them.

    Args:
        config: The settings.
        processes: How many processes share a step.
        on_gpu: Whether they run on GPUs.

    Raises:
        ValueError: A setting that TRL cannot honour, or a batch that cannot be shared by so many processes.
    """
    for name in OF_THE_BUILT_IN_TRAINER:
        value = getattr(config, name)
        if value != TrainConfig.model_fields[name].default:
            raise ValueError(
                f"{name}={value!r} belongs to the built-in trainer: leave it out inside TRL, which samples and scores "
                "in its own processes and is set in GRPOConfig, such as with use_vllm"
            )
    if config.kl_coef and config.kl_estimator != "k3":
        raise ValueError(f"TRL knows the KL estimator k3 alone, got kl_estimator={config.kl_estimator!r}")
    prompts, group = config.prompts_per_step, config.rollouts_per_prompt
    per_update = config.minibatch_prompts or prompts
    if prompts % per_update:
        raise ValueError(f"TRL needs prompts_per_step, {prompts}, to be a multiple of minibatch_prompts, {per_update}")
    if per_update * group % processes:
        raise ValueError(
            f"{per_update} prompts x {group} rollouts per optimizer step cannot be shared by {processes} processes: "
            "choose a multiple"
        )
    share = per_update * group // processes
    prompts_at_once = TRL_MICROBATCH_PROMPTS if config.microbatch_prompts == "auto" else config.microbatch_prompts
    most = min(share, prompts_at_once * group)
    per_device = max(size for size in range(1, most + 1) if share % size == 0)
    return {
        "max_steps": config.steps * (prompts // per_update) * config.epochs,
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": share // per_device,
        "steps_per_generation": prompts * group // (processes * per_device),
        "num_iterations": config.epochs,
        "max_completion_length": config.max_new_tokens,
        "temperature": config.temperature,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": config.warmup_steps,
        "adam_beta2": config.adam_beta2,
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "epsilon": config.clip_low,
        "epsilon_high": config.clip_high,
        "beta": config.kl_coef,
        "loss_type": LOSS_TYPES[config.aggregation],
        "gradient_checkpointing": config.gradient_checkpointing,
        "disable_dropout": True,
        # Tasks come in the order of the built-in trainer; they are random already.
        "shuffle_dataset": False,
        "seed": config.seed,
        "use_cpu": not on_gpu,
        "bf16": on_gpu and config.dtype != "float32",
        "save_steps": config.checkpoint_every,
        "save_total_limit": config.keep_checkpoints,
        "logging_steps": 1,
        "report_to": "none",
    }


def row_of(logs: dict[str, Any]) -> dict[str, Any]:
    """What TRL logs, under the names of the built-in trainer where it has them."""
    names = {"rewards/score": "set_score", "completions/mean_length": "response_tokens"}
    names["completions/clipped_ratio"] = "truncated"
    row = {}
    for name, value in logs.items():
        if not isinstance(value, int | float) or name.endswith("/std") or name.startswith("rewards/advantage/"):
            continue
        short = name.removesuffix("/mean") if name.startswith("rewards/") else name
        row[names.get(short, short.removeprefix("rewards/"))] = value
    return row


def make_adapter(config: TrainConfig, tokenizer: Any) -> TRLAdapter:
    """The adapter for a run's environment and method.

    Raises:
        ValueError: TRL is missing or another release, or the environment and the method do not fit together.
    """
    try:
        from vpo_agent.adapters.trl import TRLAdapter
    except ImportError as error:
        raise ValueError(str(error)) from None
    from vpo_agent.rollouts.collect import make_text_env

    return TRLAdapter(
        make_text_env(config.env, **config.env_kwargs, num_answers=config.answers_per_rollout, split="train"),
        tokenizer,
        method=config.method,
        method_options=config.method_options,
        rollouts_per_prompt=config.rollouts_per_prompt,
        num_weights=config.num_weights,
        alpha=config.alpha,
        weight_sampler=config.weight_sampler,
        scalar_weights=config.scalar_weights,
        seed=config.seed,
    )


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint of TRL in ``folder``; ``None`` where there is none.

    TRL writes its state last, so a checkpoint without it was cut short, by a full disk or a kill.
    """
    found = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json") if _is_json(path)]
    return max(found, key=_step_of, default=None)


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def train_with_trl(job: Job, **changes: Any) -> Any:
    """Train as ``job`` says inside TRL, on as many processes as were launched.

    The run folder gets ``config.json``, ``metrics.jsonl`` and TensorBoard events with the names of the built-in
    trainer, TRL's checkpoints in ``trl/`` and the trained model in ``model/``.

    Args:
        job: The settings.
        **changes: Arguments of ``GRPOConfig`` to replace, such as ``use_vllm=True``.

    Returns:
        The trainer.

    Raises:
        ValueError: A setting that does not fit, or a folder that may not be used.
        DiskFull: There is no room for what is written.
        SystemExit: In the other processes, where the first one raises that.
    """
    # A script imports this module before anything can turn an error into a sentence, and these need the libraries.
    check_libraries()
    from vpo_agent.policy.loading import choose_device, load_model, lora_config
    from vpo_agent.runs.checkpoints import write_text_atomically
    from vpo_agent.runs.run_folder import RunFolder
    from vpo_agent.trainer import model_path

    config = job.config
    peft = lora_config(config.lora_rank) if config.lora_rank else None
    model, tokenizer = load_model(model_path(config.model), torch.float32)
    adapter = make_adapter(config, tokenizer)
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list
    from transformers import TrainerCallback
    from trl import GRPOConfig

    on_gpu = choose_device(config.device).type == "cuda"
    state = PartialState(cpu=not on_gpu)
    # The first process decides, since the name of a run may hold the time and a folder exists only once.
    decided: list[Any] = [None]
    if state.is_main_process:
        try:
            settings = grpo_settings(config, processes=state.num_processes, on_gpu=on_gpu)
            folder = RunFolder.open(config, resume=job.resume, overwrite=job.overwrite)
            last = last_checkpoint(folder.path / "trl") if job.resume else None
            step = _step_of(last) if last else 0
            folder.start(step)
            decided = [(settings, folder.path, last, step)]
        except ValueError as error:
            decided = [error]
    broadcast_object_list(decided)
    if isinstance(decided[0], ValueError):
        # Before any process ends: one whose connection breaks while it still has it may abort.
        state.wait_for_everyone()
        state.destroy_process_group()
        if state.is_main_process:
            raise decided[0]
        # The first process says it; without this the others would tell how their connection to it broke.
        raise SystemExit(2)
    settings, path, last, step = decided[0]
    if not state.is_main_process:
        folder = RunFolder(path, config)

    class Log(TrainerCallback):
        """Writes what TRL logs into the run folder."""

        def __init__(self, writer: MetricsWriter) -> None:
            self.writer = writer

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
            if logs and "loss" in logs:
                self.writer.write({"kind": "train", "step": state.global_step, **row_of(logs)})

    with (
        warnings.catch_warnings(action="ignore", category=FutureWarning),
        folder.room(lambda: last_checkpoint(path / "trl")),
        folder.writer(step) if state.is_main_process else nullcontext() as writer,
    ):
        trainer = adapter.trainer_class(
            model=adapter.end_at_last_answer(model),
            processing_class=tokenizer,
            reward_funcs=adapter.reward_functions(),
            train_dataset=adapter.dataset(range(config.steps * config.prompts_per_step)),
            args=GRPOConfig(**{**settings, **adapter.required_settings(), "output_dir": str(path / "trl"), **changes}),
            callbacks=[] if writer is None else [Log(writer)],
            peft_config=peft,
        )
        trainer.train(resume_from_checkpoint=str(last) if last else None)
        # The file with the step is there only while the model is whole.
        finished = path / "model" / "state.json"
        if state.is_main_process:
            finished.unlink(missing_ok=True)
        trainer.save_model(str(finished.parent))
        if state.is_main_process:
            done = trainer.state.global_step * config.steps // settings["max_steps"]
            write_text_atomically(finished, json.dumps({"step": done}) + "\n")
    return trainer
