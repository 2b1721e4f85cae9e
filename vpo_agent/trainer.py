"""The training loop, top to bottom: tasks, rollouts, scores, advantages, update.

The defaults differ from the paper (arXiv 2605.22817) in three points, none of which changes the expected gradient:
weights come from a Sobol sampler instead of independent draws, each prompt is computed once per group in sampling and
update, and groups without any advantage skip the update unless a KL penalty needs them.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from vpo_agent.config import TrainConfig
from vpo_agent.errors import TrainingDiverged
from vpo_agent.estimators import Advantages
from vpo_agent.learning.bound_estimator import BoundEstimator
from vpo_agent.learning.fits import MOST_RESPONSES, Plan, Shape, device_memory, plan_run
from vpo_agent.learning.update import PolicyUpdate
from vpo_agent.measure.measures import PREFIX, free_name, measures, short_names
from vpo_agent.measure.metrics import diversity
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import EVAL_STREAM, sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.progress import progress_bar
from vpo_agent.rollouts.backends import open_sampler, with_backend
from vpo_agent.rollouts.collect import Batch, Rollouts, collect, make_text_env
from vpo_agent.rollouts.prompts import SPREAD, check_all_prompts, check_prompts
from vpo_agent.runs.checkpoints import checkpoints, load_checkpoint, newest_whole, save_checkpoint, set_aside
from vpo_agent.runs.loop import Training
from vpo_agent.runs.run_folder import RunFolder
from vpo_envs import Status
from vpo_envs.common.imports import import_modules
from vpo_envs.common.libraries import check_libraries
from vpo_envs.common.wording import counted
from vpo_envs.core import AnyEnv

MAX_BAD_STEPS = 3
"""Consecutive steps with a loss or gradient that is not finite, after which a run ends."""

TRAIN_STREAM = 0
TRANSCRIPTS_EVERY = 10
"""Steps between those of which a few responses are kept, beside the first."""
KEPT_TASKS, KEPT_RESPONSES = 2, 4
COUNTS = ("groups_without_signal", "invalid_rollouts")
"""Columns of a step that count."""


class Trainer(Training):
    """One training run.

    The constructor loads environment and model and checks all settings before it makes the run folder, or deletes the
    run that the folder held.

    Args:
        config: Training settings.
        resume: Continue the run of this name from its last checkpoint.
        overwrite: Delete what the run folder holds.

    Raises:
        ValueError: An unknown environment, model or device, weights of the wrong number, options that the method does
            not take, prompts too long for the model, a run that does not fit into the GPU's memory, a run folder in
            use, fewer steps than the resumed run has done, a backend that is not installed, or an unsupported version
            of a library.
        OutOfMemory: The model or the optimizer does not fit into the device's memory.
    """

    def __init__(self, config: TrainConfig, *, resume: bool = False, overwrite: bool = False) -> None:
        if not isinstance(config, TrainConfig):
            raise TypeError(f"Trainer takes a TrainConfig, got a {type(config).__name__}: use make_config")
        import_modules(config.imports)
        check_libraries()
        self.config = config = with_backend(config)
        self.env, *evaluated = (
            make_text_env(config.env, **kwargs, num_answers=config.answers_per_rollout, split=split)
            for split, kwargs in (
                ("train", config.train_kwargs),
                (config.eval_split, config.env_kwargs),
                ("validation", config.env_kwargs),
            )
        )
        self.estimator = BoundEstimator.from_config(self.env, config)
        self._eval_env, self._validation_env = evaluated
        for m in config.numbers_of_answers:
            tried = self.estimator.try_out(config.rollouts_per_prompt, m)
            if config.rollouts_per_prompt == 1 and not tried.advantages.any():
                raise ValueError(
                    f"rollouts_per_prompt is 1, but method {config.method} compares the rollouts of a prompt, so none "
                    "would have an advantage: set it to 2 or more"
                )
        self.folder = RunFolder.open(config, resume=resume, overwrite=overwrite)
        found, damaged = newest_whole(self.folder.checkpoints) if resume else (None, [])
        self.policy = LMPolicy.from_pretrained(
            config.model,
            device=config.device,
            dtype=config.dtype,
            lora_rank=config.lora_rank,
            checkpoint=found,
            seed=config.seed,
            gradient_checkpointing=config.gradient_checkpointing,
        )
        # A prompt that is too long would otherwise end the run after hours.
        room = config.max_new_tokens
        asked, batch = config.steps * config.prompts_per_step, config.prompts_per_step
        answers = config.numbers_of_answers
        longest = max(
            check_all_prompts(self.policy, self.env, asked, room, answers, sample=batch),
            check_prompts(self.policy, self._eval_env, range(config.eval_prompts), room, answers),
        )
        if config.eval_every:
            checked = range(config.eval_every_prompts)
            longest = max(longest, check_prompts(self.policy, self._validation_env, checked, room, answers))
        memory = device_memory(self.policy.device)
        self.plan: Plan | None = None
        """How the run fits into the memory of its GPU; ``None`` on a CPU."""
        if memory is not None:
            shape = Shape.of(self.policy.causal_lm, config.model)
            self.plan = plan_run(config, shape, prompt=longest, memory=memory)
        automatic = self.plan.sample_batch if self.plan else MOST_RESPONSES
        self.sample_batch = automatic if config.sample_batch == "auto" else config.sample_batch
        # LoRA needs no reference: it switches its adapters off.
        self.reference = self._load_initial() if config.kl_coef and not config.lora_rank else None
        # A prompt that was not read may be so many times as long as the longest that was.
        length = min(SPREAD * longest + room, self.policy.cached_model.most_positions or sys.maxsize)
        self.sampler = open_sampler(config, self.policy, max_model_len=length)
        self._update = PolicyUpdate(config, self.policy, self.reference)
        if self.plan:
            self._update.microbatches.most_prompts = self.plan.microbatch_prompts
        self.optimizer = self._update.optimizer
        state: dict[str, Any] = {"step": 0, "skipped_steps": 0}
        if found:
            state = load_checkpoint(found, self.optimizer)
            self.folder.check_settings(state["config"], f"the checkpoint {str(found)!r}")
            if state["step"] > config.steps:
                raise ValueError(
                    f"the checkpoint {str(found)!r} has done {state['step']} steps, more than the {config.steps} of "
                    f"--steps: give --steps {state['step']} or more, or start another --name"
                )
        super().__init__(config.steps, int(state["step"]))
        self.skipped_steps = int(state["skipped_steps"])
        self._bad_in_a_row = 0
        self._failure = self._outside = ""
        self._warned = False
        self.folder.start(self.step)
        set_aside(damaged)

    # The loop ------------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train to the last step, with checkpoints and evaluations on the way, as :meth:`take_steps` says.

        Raises:
            TrainingDiverged: Three consecutive steps had a loss or gradient that is not finite, or the last one left
                weights that are not.
            DiskFull: There is no space left for a row or a checkpoint.
            OutOfMemory: The samples, the smallest micro-batch or the optimizer do not fit into the device's memory.
            ValueError: A prompt is too long for the model.
        """
        bar = progress_bar(self.config.method, self.steps, self.step)
        with bar as self._bar, self.folder.room(), self.folder.writer(self.step) as self._log:
            if self.step == 0 and self.config.eval_every:
                self._log.write(self._validate())
            self.take_steps()

    def train_step(self) -> dict[str, Any]:
        """Take one step (sample, score, estimate, update), and return its row for the log."""
        config = self.config
        started = time.perf_counter()
        first = self.step * config.prompts_per_step
        indices = range(first, first + config.prompts_per_step)
        tasks, asked = [self.env.task(index) for index in indices], config.answers_asked(self.step)
        try:
            batch = collect(
                self.env,
                self.sampler,
                tasks,
                num_answers=asked,
                rollouts=config.rollouts_per_prompt,
                max_new_tokens=config.max_new_tokens,
                temperature=config.temperature,
                seed=[config.seed, TRAIN_STREAM, self.step],
                sample_batch=self.sample_batch,
                scorer_threads=self.config.scorer_threads,
            )
        except ValueError:
            # Names the task if its prompt is too long.
            check_prompts(self.policy, self.env, indices, config.max_new_tokens, config.numbers_of_answers)
            raise
        collected = time.perf_counter()
        self._failure = next((part.failure for part in batch.parts if part.failure), "")
        self._outside = next(filter(None, (part.outside(self.env.objective_names) for part in batch.parts)), "")
        results = [
            self.estimator.estimate(part.rewards, part.valid, part.tasks, self.estimator.weights(part.tasks, self.step))
            for part in batch.parts
        ]
        estimated = time.perf_counter()
        self.hold()
        advantages = batch.in_order([one.advantages for one in results])
        valid = batch.in_order([torch.from_numpy(part.valid) for part in batch.parts])
        finite, update = self._update.step(batch.samples, advantages, valid, self.step, torch.tensor(asked))
        self.step += 1
        self._kept = self._transcripts(batch, first)
        self.skipped_steps += not finite
        self._bad_in_a_row = 0 if finite else self._bad_in_a_row + 1
        updated = time.perf_counter()
        tokens = int(batch.samples.mask.sum())
        row = {
            "kind": "train",
            "step": self.step,
            **self._measures(batch, results),
            **update,
            "skipped_steps": self.skipped_steps,
            "tokens_per_second": tokens / (updated - started),
            "seconds_generate": batch.generate_seconds,
            "seconds_score": batch.score_seconds,
            "seconds_estimate": estimated - collected,
            "seconds_update": updated - estimated,
        }
        return short_names(row)

    def record(self, row: dict[str, Any]) -> bool:
        """Write and show the row of a step, and validate if it is time; return whether a checkpoint falls due."""
        self._log.write(row)
        if self._kept:
            self.folder.add_transcripts(self._kept)
        skipped = f", {row['skipped_steps']} skipped" if row["skipped_steps"] else ""
        self._bar.set_postfix_str(
            f"set score {row['set_score']:.3f}, {row['tokens_per_second']:,.0f} tokens/s{skipped}"
        )
        self._bar.update()
        if row["invalid_rollouts"]:
            left_out, why = counted(row["invalid_rollouts"], "rollout"), self._failure and f": {self._failure}"
            self._bar.write(f"step {self.step}: {left_out} left out because the scorer failed{why}")
        if self._bad_in_a_row:
            self._bar.write(f"step {self.step}: skipped because its loss or gradient is not finite")
        if self._outside and not self._warned:
            self._warned = True
            self._bar.write(
                f"step {self.step}: rewards leave [0, 1], which methods and measures take for granted "
                f"({self._outside}): scale them, and test them with vpo check"
            )
        last, every = self.step == self.steps, self.config.checkpoint_every
        if self._bad_in_a_row >= MAX_BAD_STEPS or (last and self._bad_in_a_row and not self._weights_are_finite()):
            raise self._diverged()
        if self.config.eval_every and self.step % self.config.eval_every == 0:
            self._log.write(self._validate())
        # A skipped step leaves the weights as they were; its checkpoint is made up for, but for the last.
        return last or (self.step // every > self._saved_step // every and not self._bad_in_a_row)

    def save(self) -> None:
        """Save a checkpoint, after the rows before it are on disk."""
        self._log.sync()
        state = {
            "skipped_steps": self.skipped_steps,
            "next_task": self.step * self.config.prompts_per_step,
            "config": self.config.model_dump(mode="json"),
        }
        keep = self.config.keep_checkpoints
        save_checkpoint(self.folder.checkpoints, self.step, self.policy, self.optimizer, state, keep)

    def evaluate(self, label: str, num_answers: int | None = None, *, initial: bool = False) -> Pool:
        """Sample the pool behind the table from held-out prompts, and save it as ``pool_<label>.npz``.

        Its responses hold ``num_answers`` answers, the most that the run asks for by default. ``initial`` samples from
        the initial model, with the backend ``native``, whatever the step.
        """
        m, prompts = num_answers or self.config.answers_per_rollout, self.config.eval_prompts
        pool = self._sample_pool(self._eval_env, prompts, m, f"evaluation {label}", initial=initial)
        with self.folder.room():
            pool.save(self.folder.path / f"pool_{label}.npz")
        return pool

    # Details -------------------------------------------------------------------------------------------------------

    def _transcripts(self, batch: Batch, first: int) -> list[dict[str, Any]]:
        """Return the first responses to the first tasks of a step, if it is one of those that are kept."""
        if self.step > 1 and self.step % TRANSCRIPTS_EVERY:
            return []
        part, places = batch.parts[0], batch.places[0][:KEPT_TASKS].tolist()
        _, rollouts, m = part.status.shape
        return [
            {
                "step": self.step,
                "index": first + place,
                "prompt": self.env.prompt(task, m),
                "objectives": self.env.objective_names,
                "responses": part.samples.texts[row * rollouts : (row + 1) * rollouts][:KEPT_RESPONSES],
                "status": [[Status(one).name.lower() for one in each] for each in part.status[row, :KEPT_RESPONSES]],
                "rewards": part.rewards[row, :KEPT_RESPONSES].astype(float).round(4).tolist(),
            }
            for row, (place, task) in enumerate(zip(places, part.tasks[:KEPT_TASKS], strict=True))
        ]

    def _measures(self, batch: Batch, results: Sequence[Advantages]) -> dict[str, float]:
        """Return the columns of the log that describe the rollouts of a step.

        Where prompts ask for different numbers of answers, columns that end in ``_of_M`` describe those that ask for M,
        and the others are means over all prompts, or sums where they count.
        """
        apart = [self._measures_of(*one) for one in zip(batch.parts, results, strict=True)]
        if len(apart) == 1:
            return apart[0]
        shares = [len(part.tasks) / len(batch.samples.prompt_ids) for part in batch.parts]
        joined = {
            name: sum(one[name] for one in apart)
            if name in COUNTS
            else float(np.dot(shares, [one[name] for one in apart]))
            for name in apart[0]
        }
        for part, one in zip(batch.parts, apart, strict=True):
            joined |= {f"{name}_of_{part.rewards.shape[2]}": value for name, value in one.items()}
        return joined

    def _measures_of(self, rollouts: Rollouts, result: Advantages) -> dict[str, float]:
        """Return the columns that describe rollouts of equal numbers of answers.

        The mean of an objective is over the tasks where it is active; NaN if there are none.
        """
        rewards, valid, samples = rollouts.rewards, rollouts.valid, rollouts.samples
        active = np.stack([self.env.active(task) for task in rollouts.tasks])
        counted = np.repeat(active[:, None], valid.shape[1], axis=1)[valid]
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of a mean over nothing
            means = rewards[valid].mean((0, 1), where=counted[:, None])
        groups = zip(rewards, valid, strict=True)
        pools = [diversity(group[kept].reshape(-1, self.env.reward_dim)) for group, kept in groups]
        return {
            "set_score": float(result.scores[torch.from_numpy(valid)].mean()),
            **{f"{PREFIX}{name}": float(mean) for name, mean in zip(self.env.objective_names, means, strict=True)},
            "diversity": float(np.mean(pools)),
            "groups_without_signal": int((result.advantages == 0).all(1).sum()),
            "invalid_rollouts": int((~valid).sum()),
            "response_tokens": int(samples.mask.sum()) / len(samples.texts),
            "truncated": float(samples.truncated.float().mean()),
        }

    def _load_initial(self) -> LMPolicy:
        config = self.config
        initial = LMPolicy.from_pretrained(config.model, device=config.device, dtype=config.dtype)
        initial.model.requires_grad_(False)
        return initial

    def _sample_pool(self, env: AnyEnv, prompts: int, num_answers: int, label: str, *, initial: bool = False) -> Pool:
        config = self.config
        return sample_pool(
            env,
            (self.reference or self._load_initial()) if initial else self.sampler,
            range(prompts),
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
                "step": 0 if initial else self.step,
                "dtype": str(self.policy.dtype).removeprefix("torch."),
            },
            scorer_threads=self.config.scorer_threads,
            label=label,
        )

    def _validate(self) -> dict[str, Any]:
        """Return the row of an evaluation on validation prompts.

        Where a run asks for different numbers of answers, columns that end in ``_of_M`` have those of responses with M,
        and the others those of the longest responses.
        """
        prompts = min(self.config.eval_every_prompts, self.config.eval_prompts)
        place: dict[str, Any] = {"kind": "eval", "step": self.step}
        row = place
        for m in self.config.numbers_of_answers:
            pool = self._sample_pool(self._validation_env, prompts, m, f"validation at step {self.step}")
            found: dict[str, float] = {}
            for one in measures(pool):
                if one.headline:
                    found[free_name(one.name.replace(" ", "_"), {*place, *found})] = float(one.values.mean())
            end = "" if m == self.config.answers_per_rollout else f"_of_{m}"
            row = row | {name + end: value for name, value in found.items()}
        return row

    def _weights_are_finite(self) -> bool:
        return all(bool(weight.isfinite().all()) for weight in self.policy.model.parameters())

    def _diverged(self) -> TrainingDiverged:
        saved = checkpoints(self.folder.checkpoints)
        left = f"The last good checkpoint is {saved[-1]}" if saved else "There is no checkpoint yet"
        return TrainingDiverged(
            f"{counted(self._bad_in_a_row, 'step')} in a row had a loss or gradient that is not finite, up to step "
            f"{self.step}: lower --learning-rate. {left}"
        )
