"""The training loop, top to bottom: tasks, rollouts, scores, advantages, update.

The defaults differ from the paper (arXiv 2605.22817) in four points, of which the first three change no expected
gradient:

1. Weightings come from a Sobol sampler instead of independent draws.
2. Each prompt is computed once per group in sampling and update.
3. Groups without any advantage skip the update unless a KL penalty needs them.
4. A batch is one optimizer step unless ``minibatch_prompts`` divides it, as the preset "paper" does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vpo_agent.config import TrainConfig
from vpo_agent.errors import TrainingDiverged
from vpo_agent.estimators import Advantages
from vpo_agent.estimators.bound import SETTINGS, BoundEstimator
from vpo_agent.learning.fits import Plan, Shape, device_memory, plan_run
from vpo_agent.learning.update import PolicyUpdate
from vpo_agent.measure.columns import COLUMNS
from vpo_agent.measure.measures import free_name, measures
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import EVAL_STREAM, different_tasks, sample_pool
from vpo_agent.measure.step import rewards_outside, step_columns
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.samples import MAX_RESPONSES, Sampler
from vpo_agent.progress import progress_bar
from vpo_agent.rollouts.backends import open_sampler, with_backend
from vpo_agent.rollouts.collect import Rollouts, collect, environments_of, numbers_of_answers, trainer_state
from vpo_agent.rollouts.gap import check_gap
from vpo_agent.rollouts.prompts import SPREAD, check_all_prompts, check_prompts
from vpo_agent.runs.checkpoints import load_checkpoint, save_checkpoint
from vpo_agent.runs.loop import Training
from vpo_agent.runs.run_folder import RunFolder
from vpo_agent.runs.whole_files import checkpoints, newest_whole, set_aside
from vpo_envs import Status
from vpo_envs.common.imports import import_modules
from vpo_envs.common.libraries import check_libraries
from vpo_envs.common.wording import counted
from vpo_envs.core import AnyEnv

MAX_BAD_STEPS = 3
"""Consecutive steps with a loss or gradient that is not finite, after which a run ends."""

TRAIN_STREAM = 0
TRANSCRIPTS_EVERY = 10
"""A few responses are kept of the first step, and of every step whose number this divides."""
KEPT_TASKS, KEPT_RESPONSES = 2, 4

SamplerFactory = Callable[[LMPolicy], Sampler]
"""Makes the sampler of a run from its policy, whose weights change in place."""
OnStep = Callable[[dict[str, Any], Rollouts], None]
"""Called after each step, when its row is written, with that row and the rollouts of the step."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    row: dict[str, Any]
    """Row of the step for the log."""
    rollouts: Rollouts


@dataclass(frozen=True)
class ScoredRollouts:
    """The rollouts that a step learns from, with their scores and advantages."""

    rollouts: Rollouts
    result: Advantages
    active: NDArray[np.bool_]
    """The objectives that count for each prompt, (P, d)."""
    started: float
    """When the step began, in seconds of ``time.perf_counter``."""
    seconds_estimate: float


class Trainer(Training):
    """One training run.

    The constructor loads environment and model and checks all settings before it makes the run folder, or deletes the
    run that the folder held.

    Args:
        config: Training settings.
        sampler: Makes a sampler of your own from the policy, in place of the backend of the settings.
        on_step: Called after each step with its row and its rollouts; an error that it raises ends the run.
        resume: Continue the run of this name from its last checkpoint.
        overwrite: Delete what the run folder holds.
        accept_changes: Continue a run whose prompts, rewards, environment or models have changed. What was measured
            with the former inputs is deleted.

    Raises:
        ValueError: A setting is unknown or does not fit: the environment, the model, the device, the number of fixed
            weights, an option of the method, or a backend that is not installed. A prompt is too long for the model,
            or the run does not fit into the GPU's memory. The run folder is in use. A resumed run has done more steps
            than ``config`` has, or one of its inputs has changed. A library has an unsupported version.
        OutOfMemory: The model or the optimizer does not fit into the device's memory.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        sampler: SamplerFactory | None = None,
        on_step: OnStep | None = None,
        resume: bool = False,
        overwrite: bool = False,
        accept_changes: bool = False,
    ) -> None:
        if not isinstance(config, TrainConfig):
            raise TypeError(f"Trainer takes a TrainConfig, got a {type(config).__name__}: use make_config")
        import_modules(config.imports)
        check_libraries()
        self.model_choice = ModelChoice.of(config.model, device=config.device, dtype=config.dtype)
        """The model that the run begins with, its device and its number format."""
        self.config = config = with_backend(config, self.model_choice)
        self._on_step = on_step
        self._mixed = len(config.answer_counts) > 1
        self.env, self.eval_env, self._validation_env = environments_of(config)
        self.env.check_scorers()
        self.estimator = BoundEstimator(
            self.env, config.method, config.method_options, **{name: getattr(config, name) for name in SETTINGS}
        )
        self._try_out_estimator()
        self._objective_columns = [free_name(name, COLUMNS) for name in self.env.objective_names]
        self.folder = RunFolder.open(config, resume=resume, overwrite=overwrite)
        self.config = config = self.folder.config
        environments = (self.env, self.eval_env, self._validation_env)
        self.folder.compare_inputs(environments, resume=resume, accept_changes=accept_changes)
        checkpoint, damaged = newest_whole(self.folder.checkpoints) if resume else (None, [])
        self.policy = LMPolicy.from_pretrained(
            self.model_choice,
            lora_rank=config.lora_rank,
            checkpoint=checkpoint,
            seed=config.seed,
            gradient_checkpointing=config.gradient_checkpointing,
            thinking=config.thinking == "on",
            date=config.date,
        )
        self._scored_step = 0
        """Training steps of the policy whose answers are scored, which reward functions may read."""
        for env in environments:
            env.set_trainer(self.policy.chat.encode_texts, lambda: trainer_state(self._scored_step, config.steps))
        longest = self._check_prompts()
        self.plan = self._plan_memory(longest)
        """How the run fits into the memory of its GPU; ``None`` on a CPU."""
        automatic = self.plan.sample_batch if self.plan else MAX_RESPONSES
        self.sample_batch = automatic if config.sample_batch == "auto" else config.sample_batch
        # LoRA needs no reference: it switches its adapters off.
        self.reference = self._load_base() if config.kl_coef and not config.lora_rank else None
        if sampler is not None:
            self.sampler = sampler(self.policy)
        else:
            # A prompt that was not read may be so many times as long as the longest that was. How long replies are is
            # not known.
            length = sys.maxsize if self.env.turn_tags else SPREAD * longest + config.max_new_tokens
            length = min(length, self.policy.cached_model.max_positions or sys.maxsize)
            most = None if length == sys.maxsize else length
            self.sampler = open_sampler(config, self.policy, self.model_choice, most)
        self._update = PolicyUpdate(config, self.policy, self.reference)
        if self.plan:
            self._update.microbatches.max_prompts = self.plan.microbatch_prompts
        self.optimizer = self._update.optimizer
        state: dict[str, Any] = {"step": 0, "skipped_steps": 0}
        if checkpoint:
            state = load_checkpoint(checkpoint, self.optimizer)
            self.folder.check_settings(state["config"], f"the checkpoint {str(checkpoint)!r}")
            if state["step"] > config.steps:
                raise ValueError(
                    f"the checkpoint {str(checkpoint)!r} has done {state['step']} steps, more than the {config.steps} "
                    f"of --steps: give --steps {state['step']} or more, or start another --name"
                )
        super().__init__(config.steps, int(state["step"]))
        self.skipped_steps = int(state["skipped_steps"])
        self._bad_in_a_row = 0
        self._warned = False
        self.folder.start(self.step)
        set_aside(damaged)

    # The loop ------------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train to the last step, with checkpoints and evaluations, as :meth:`take_steps` says.

        Raises:
            BackendFailed: The backend failed, or samples from another policy than the trainer's.
            TrainingDiverged: Three consecutive steps had a loss or gradient that is not finite, or the last one left
                weights that are not.
            DiskFull: There is no space left for a row or a checkpoint.
            OutOfMemory: The samples, the smallest micro-batch or the optimizer do not fit into the device's memory.
            ValueError: A prompt is too long for the model.
        """
        bar = progress_bar(self.config.method, self.steps, self.step)
        with bar as self._bar, self.folder.room(), self.folder.writer(self.step) as self._log:
            if self._evaluation_due() and not self.folder.has_row("eval", self.step):
                self._log.write(self._validate())
            self.take_steps()

    def train_step(self) -> dict[str, Any]:
        """Take one step (sample, score, estimate, update), and return its row for the log, which is not written."""
        return self.learn(self.prepare()).row

    def prepare(self) -> ScoredRollouts:
        """Sample responses to the prompts of the next step, score them and estimate their advantages."""
        config, started = self.config, time.perf_counter()
        self._scored_step = self.step
        first = self.step * config.prompts_per_step
        indices = range(first, first + config.prompts_per_step)
        try:
            rollouts = collect(
                self.env,
                self.sampler,
                [self.env.task(index) for index in indices],
                num_answers=numbers_of_answers(
                    config.answer_shares, config.prompts_per_step, seed=config.seed, step=self.step
                )
                if self._mixed
                else None,
                rollouts=config.rollouts_per_prompt,
                max_new_tokens=config.max_new_tokens,
                temperature=config.temperature,
                seed=[config.seed, TRAIN_STREAM, self.step],
                sample_batch=self.sample_batch,
                scorer_threads=config.scorer_threads,
            )
        except ValueError:
            # Names the task if its prompt is too long.
            check_prompts(self.policy, self.env, indices, config.max_new_tokens, config.answer_counts)
            raise
        collected = time.perf_counter()
        active = np.stack([self.env.active(task) for task in rollouts.tasks])
        result = self.estimator.estimate(
            rollouts.tasks,
            rollouts.rewards,
            step=self.step,
            active=active,
            valid=rollouts.valid,
            answered=rollouts.answered,
        )
        return ScoredRollouts(rollouts, result, active, started, time.perf_counter() - collected)

    def learn(self, prepared: ScoredRollouts) -> StepResult:
        """Update the policy on scored rollouts."""
        rollouts, started = prepared.rollouts, time.perf_counter()
        finite, diagnostics = self._update.step(
            rollouts.samples,
            prepared.result.advantages,
            valid=torch.from_numpy(rollouts.valid),
            step=self.step,
            num_answers=torch.from_numpy(rollouts.num_answers) if self._mixed else None,
        )
        self.step += 1
        self.skipped_steps += not finite
        self._bad_in_a_row = 0 if finite else self._bad_in_a_row + 1
        ended = time.perf_counter()
        row = {
            "kind": "train",
            "step": self.step,
            **step_columns(rollouts, prepared.result, prepared.active, self._objective_columns),
            **diagnostics,
            "skipped_steps": self.skipped_steps,
            "tokens_per_second": int(rollouts.samples.tokens.sum()) / (ended - prepared.started),
            "seconds_generate": rollouts.seconds_generate,
            "seconds_score": rollouts.seconds_score,
            "seconds_estimate": prepared.seconds_estimate,
            "seconds_update": ended - started,
        }
        return StepResult(row, rollouts)

    def record(self, result: StepResult) -> None:
        """Write the row of a step, and now and then a few of its responses."""
        self.folder.check_held()
        self._log.write(result.row)
        if self.step == 1 or self.step % TRANSCRIPTS_EVERY == 0:
            self.folder.add_transcripts(self._transcripts(result.rollouts))

    def report(self, result: StepResult) -> None:
        """Show the row of a step, call ``on_step``, and validate if it is time.

        Raises:
            TrainingDiverged: The last steps were not finite.
        """
        row, rollouts = result.row, result.rollouts
        skipped = f", {row['skipped_steps']} skipped" if row["skipped_steps"] else ""
        self._bar.set_postfix_str(
            f"set score {row['set_score']:.3f}, {row['tokens_per_second']:,.0f} tokens/s{skipped}"
        )
        self._bar.update()
        if row["invalid_rollouts"]:
            left_out, reason = counted(row["invalid_rollouts"], "rollout"), rollouts.failure and f": {rollouts.failure}"
            self._bar.write(f"step {self.step}: {left_out} left out because the scorer failed{reason}")
        if self._bad_in_a_row:
            self._bar.write(f"step {self.step}: skipped because its loss or gradient is not finite")
        if not self._warned and (outside := rewards_outside(self.env, rollouts)):
            self._warned = True
            self._bar.write(
                f"step {self.step}: rewards leave [0, 1], which methods and measures take for granted "
                f"({outside}): scale them, and test them with vpo check"
            )
        if self._on_step is not None:
            self._on_step(row, rollouts)
        last = self.step == self.steps
        check_gap(row["log_prob_gap"], self.policy.dtype, f"at step {self.step}")
        if self._bad_in_a_row >= MAX_BAD_STEPS or (last and self._bad_in_a_row and not self._weights_are_finite()):
            raise self._diverged()
        if self._evaluation_due():
            self._log.write(self._validate())

    def checkpoint_due(self) -> bool:
        """Return True when a checkpoint is due. A skipped step changes no weight, so its checkpoint is saved after the
        next step that does. The last step always saves one.
        """
        every = self.config.checkpoint_every
        return self.step == self.steps or (self.step // every > self._saved_step // every and not self._bad_in_a_row)

    def is_sound(self) -> bool:
        """Return whether the last step was finite and complete, so that its weights should be saved."""
        return not self._bad_in_a_row and self.optimizer.is_whole

    def save(self) -> None:
        """Save a checkpoint, after the rows before it are on disk."""
        self.folder.check_held()
        self._log.sync()
        state = {
            "skipped_steps": self.skipped_steps,
            "next_task": self.step * self.config.prompts_per_step,
            "config": self.config.model_dump(mode="json"),
        }
        keep = self.config.keep_checkpoints
        save_checkpoint(self.folder.checkpoints, self.step, self.policy, self.optimizer, state, keep)

    def evaluate(self, label: str, num_answers: int | None = None, *, base: bool = False) -> Pool:
        """Sample answers to the held-out prompts for the table of results, and save them as ``pool_<label>.npz``.

        Its responses hold ``num_answers`` answers, the most that the run asks for by default. With ``base`` it samples
        from the model before training, with the backend ``native``, whatever the step.
        """
        m, prompts = num_answers or self.config.max_answers, self.config.eval_prompts
        pool = self._sample_pool(self.eval_env, prompts, m, f"evaluation {label}", base=base)
        with self.folder.room():
            pool.save(self.folder.path / f"pool_{label}.npz")
        return pool

    # Before the first step -----------------------------------------------------------------------------------------

    def _try_out_estimator(self) -> None:
        """Raise ValueError if the method does not take its options, or compares rollouts and has but one."""
        config = self.config
        for m in config.answer_counts:
            tried = self.estimator.try_out(config.rollouts_per_prompt, m)
            if config.rollouts_per_prompt == 1 and not tried.advantages.any():
                raise ValueError(
                    f"rollouts_per_prompt is 1, but method {config.method} compares the rollouts of a prompt, so none "
                    "would have an advantage: set it to 2 or more"
                )

    def _check_prompts(self) -> int:
        """Return the tokens of the longest prompt; ValueError if one does not fit into the model's context.

        Otherwise it would end the run after hours.
        """
        config, policy = self.config, self.policy
        room, counts = config.max_new_tokens, config.answer_counts
        total, batch = config.steps * config.prompts_per_step, config.prompts_per_step
        longest = max(
            check_all_prompts(policy, self.env, total, room, counts, sample=batch),
            check_prompts(policy, self.eval_env, range(config.eval_prompts), room, counts),
        )
        if config.eval_every:
            prompts = range(config.eval_every_prompts)
            longest = max(longest, check_prompts(policy, self._validation_env, prompts, room, counts))
        return longest

    def _plan_memory(self, longest: int) -> Plan | None:
        memory = device_memory(self.policy.device)
        if memory is None:
            return None
        shape = Shape.of(self.policy.causal_lm, self.config.model)
        return plan_run(self.config, shape, prompt=longest, memory=memory)

    def _load_base(self) -> LMPolicy:
        base = LMPolicy.from_pretrained(self.model_choice)
        base.model.requires_grad_(False)
        return base

    # Rows ----------------------------------------------------------------------------------------------------------

    def _transcripts(self, rollouts: Rollouts) -> list[dict[str, Any]]:
        """Return the first responses to the first tasks of the last step."""
        first = (self.step - 1) * self.config.prompts_per_step
        group = rollouts.samples.rollouts_per_prompt
        transcripts = []
        for prompt, task in enumerate(rollouts.tasks[:KEPT_TASKS]):
            m = int(rollouts.num_answers[prompt])
            statuses = rollouts.status[prompt, :KEPT_RESPONSES, :m]
            transcripts.append(
                {
                    "step": self.step,
                    "index": first + prompt,
                    "prompt": self.env.prompt(task, m),
                    "objectives": self.env.objective_names,
                    "responses": rollouts.samples.texts[prompt * group : (prompt + 1) * group][:KEPT_RESPONSES],
                    "status": [[Status(status).name.lower() for status in response] for response in statuses],
                    "rewards": rollouts.rewards[prompt, :KEPT_RESPONSES, :m].astype(float).round(4).tolist(),
                }
            )
        return transcripts

    def _sample_pool(self, env: AnyEnv, prompts: int, num_answers: int, label: str, *, base: bool = False) -> Pool:
        config = self.config
        self._scored_step = 0 if base else self.step
        return sample_pool(
            env,
            (self.reference or self._load_base()) if base else self.sampler,
            different_tasks(env, prompts),
            num_answers=num_answers,
            rollouts=config.eval_rollouts(num_answers),
            max_new_tokens=config.max_new_tokens,
            temperature=config.eval_temperature,
            seed=[config.seed, EVAL_STREAM],
            sample_batch=self.sample_batch,
            scalar_weights=config.scalar_weights if env.objective_names == self.env.objective_names else None,
            source={
                "run": self.folder.path.name,
                **config.model_dump(mode="json", include={"model", "method", "method_options", "seed"}),
                "step": 0 if base else self.step,
                "dtype": str(self.policy.dtype).removeprefix("torch."),
            },
            scorer_threads=self.config.scorer_threads,
            label=label,
        )

    def _evaluation_due(self) -> bool:
        return bool(self.config.eval_every) and self.step % self.config.eval_every == 0

    def _validate(self) -> dict[str, Any]:
        """Return the row of an evaluation on validation prompts.

        Where a run asks for different numbers of answers, columns that end in ``_of_M`` describe responses with M
        answers, and the other columns the longest responses.
        """
        prompts = min(self.config.eval_every_prompts, self.config.eval_prompts)
        row: dict[str, Any] = {"kind": "eval", "step": self.step}
        for m in self.config.answer_counts:
            pool = self._sample_pool(self._validation_env, prompts, m, f"validation at step {self.step}")
            columns: dict[str, float] = {}
            for measure in measures(pool):
                if measure.headline:
                    name = free_name(measure.name.replace(" ", "_"), {"kind", "step", *columns})
                    columns[name] = float(measure.values.mean())
            ending = "" if m == self.config.max_answers else f"_of_{m}"
            row |= {name + ending: value for name, value in columns.items()}
        return row

    # When steps fail -----------------------------------------------------------------------------------------------

    def _weights_are_finite(self) -> bool:
        return all(bool(weight.isfinite().all()) for weight in self.policy.model.parameters())

    def _diverged(self) -> TrainingDiverged:
        saved = checkpoints(self.folder.checkpoints)
        left = f"The last good checkpoint is {saved[-1]}" if saved else "There is no checkpoint yet"
        return TrainingDiverged(
            f"{counted(self._bad_in_a_row, 'step')} in a row had a loss or gradient that is not finite, up to step "
            f"{self.step}: lower --learning-rate. {left}"
        )
