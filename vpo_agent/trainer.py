"""The training loop, top to bottom: tasks, rollouts, scores, advantages, update.

Against the paper (arXiv 2605.22817) the defaults differ in three things: weights are drawn by a Sobol sampler rather
than independently, prompts are computed once per group in sampling and update, and groups without any advantage skip
the update where no KL penalty needs them. None changes the expected gradient.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from envs_data import bundled_model_path
from vpo_agent.config import TrainConfig
from vpo_agent.errors import TrainingDiverged
from vpo_agent.estimators import Advantages, estimator
from vpo_agent.estimators import advantages as compute_advantages
from vpo_agent.estimators.weights import draw_weights, prompt_key
from vpo_agent.learning.update import PolicyUpdate
from vpo_agent.libraries import check_libraries
from vpo_agent.pareto.measures import measures
from vpo_agent.pareto.metrics import diversity
from vpo_agent.pareto.pool import Pool
from vpo_agent.pareto.sampling import sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.rollouts.backends import check_backend, open_sampler
from vpo_agent.rollouts.collect import Rollouts, collect, make_text_env
from vpo_agent.rollouts.spans import token_credit
from vpo_agent.runs.checkpoints import checkpoints, load_checkpoint, newest_whole, save_checkpoint, set_aside
from vpo_agent.runs.interrupts import Interrupts
from vpo_agent.runs.run_folder import MetricsWriter, RunFolder
from vpo_envs import Task, VectorTextEnv
from vpo_envs.preferences import in_whole_percent
from vpo_envs.scoring.scorers import Scorer

MAX_BAD_STEPS = 3
"""Steps in a row with a loss or gradient that is not finite, after which a run ends."""

TRAIN_STREAM, EVAL_STREAM = 0, 1


class Trainer:
    """One training run.

    Building it checks everything that can be checked, and loads environment and model, before the run folder is made,
    or before the run that it held is deleted.

    Args:
        config: The settings.
        resume: Go on with the run of this name from its last checkpoint.
        overwrite: Delete what the run folder holds.

    Raises:
        ValueError: An unknown environment, model or device, weights of the wrong number, options that the method does
            not take, prompts too long for the model, a run folder in use, fewer steps than the resumed run has done, a
            backend that is not installed, or a library of another version than needed.
        OutOfMemory: The device's memory does not hold the model or the optimizer.
    """

    def __init__(self, config: TrainConfig, *, resume: bool = False, overwrite: bool = False) -> None:
        check_libraries(*(["ray"] if config.scorer_pool == "ray" else []))
        check_backend(config.backend)
        self.config = config
        m = config.answers_per_rollout
        kwargs = {**config.env_kwargs, "num_answers": m}
        self.env = make_text_env(config.env, **kwargs, split="train")
        self._eval_env = make_text_env(config.env, **kwargs, split=config.eval_split)
        self._validation_env = make_text_env(config.env, **kwargs, split="validation")
        self._check_method()
        others = (self._eval_env, self._validation_env)
        self.scorer = Scorer(self.env, config.scorer_pool, config.scorer_workers, others=others)
        """What scores. Its workers stay while it is entered, as in training and in each evaluation."""
        self._in_prompt = estimator(config.method).in_prompt
        self.folder = RunFolder.open(config, resume=resume, overwrite=overwrite)
        found, damaged = newest_whole(self.folder.checkpoints) if resume else (None, [])
        # A checkpoint of a LoRA run holds adapters; the model under them is the initial one.
        whole = None if config.lora_rank else found
        self.policy = LMPolicy.from_pretrained(
            whole or model_path(config.model),
            device=config.device,
            dtype=config.dtype,
            lora_rank=config.lora_rank,
            adapters=found if config.lora_rank else None,
            seed=config.seed,
            gradient_checkpointing=config.gradient_checkpointing,
            cuda_graphs=config.cuda_graphs,
        )
        prompt_ids, _ = self.policy.encode_prompts([self.env.prompt(self.env.task(0), m)])
        self.policy.check_length(prompt_ids.shape[1], config.max_new_tokens)
        self.reference = self._load_reference()
        self.sampler = open_sampler(
            config.backend,
            self.policy,
            model=model_path(config.model),
            gpu_memory_utilization=config.gpu_memory_utilization,
        )
        self._update = PolicyUpdate(config, self.policy, self.reference)
        self.optimizer = self._update.optimizer
        self.step = 0
        self.skipped_steps = 0
        if found:
            state = load_checkpoint(found, self.optimizer)
            if "config" in state:
                self.folder.check_settings(state["config"], f"the checkpoint {str(found)!r}")
            self.step, self.skipped_steps = int(state["step"]), int(state["skipped_steps"])
            if self.step > config.steps:
                raise ValueError(
                    f"the checkpoint {str(found)!r} has done {self.step} steps, more than the {config.steps} of "
                    f"--steps: give --steps {self.step} or more, or start another --name"
                )
        self._bad_in_a_row = 0
        self._saved_step = self.step
        self._interrupts = Interrupts()
        self.folder.start(self.step)
        set_aside(damaged)

    # The loop ------------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train to the last step, with checkpoints and evaluations on the way.

        Stopped by Ctrl-C, it saves a checkpoint of the last whole step, and raises again: at once while it samples and
        scores, and else after the update and the rows of the step. A second Ctrl-C stops it there and saves nothing.

        Raises:
            TrainingDiverged: Three steps in a row had a loss or gradient that is not finite.
            DiskFull: There is no room for a row or a checkpoint.
            OutOfMemory: The device's memory does not hold the samples, the smallest micro-batch or the optimizer.
            ValueError: The workers that score do not start.
        """
        config = self.config
        bar = tqdm(
            total=config.steps,
            initial=self.step,
            unit="step",
            desc=config.method,
            dynamic_ncols=True,
            mininterval=0.1 if sys.stderr.isatty() else 30,
        )
        with bar, self.scorer, self.folder.room(), self.folder.writer(self.step) as log, self._interrupts:
            if self.step == 0 and config.eval_every:
                log.write(self._validate())
            try:
                while self.step < config.steps:
                    row = self.train_step()
                    log.write(row)
                    bar.set_postfix_str(
                        f"set score {row['set_score']:.3f}, {row['tokens_per_second']:,.0f} tokens/s"
                        + (f", {self.skipped_steps} skipped" if self.skipped_steps else "")
                    )
                    bar.update()
                    if row["invalid_rollouts"]:
                        bar.write(f"step {self.step}: {row['invalid_rollouts']} rollouts left out, their scorer failed")
                    if self._bad_in_a_row:
                        bar.write(f"step {self.step}: skipped, its loss or gradient is not finite")
                    if self._bad_in_a_row >= MAX_BAD_STEPS:
                        saved = checkpoints(self.folder.checkpoints)
                        left = f"The last good checkpoint is {saved[-1]}" if saved else "There is no checkpoint yet"
                        raise TrainingDiverged(
                            f"{MAX_BAD_STEPS} steps in a row had a loss or gradient that is not finite, up to step "
                            f"{self.step}: lower --learning-rate. {left}"
                        )
                    if config.eval_every and self.step % config.eval_every == 0:
                        log.write(self._validate())
                    # After the rows of this step, so that a run resumed from here lacks none.
                    if self._checkpoint_due():
                        self._save(log)
                    self._interrupts.release()
            except KeyboardInterrupt:
                if not self._interrupts.held and self.step > self._saved_step:
                    self._save(log)
                raise

    def train_step(self) -> dict[str, Any]:
        """One step: sample, score, estimate, update.

        Returns:
            The row for the log.
        """
        config = self.config
        started = time.perf_counter()
        first = self.step * config.prompts_per_step
        tasks = [self.env.task(index) for index in range(first, first + config.prompts_per_step)]
        weights = self._weights(tasks)
        rollouts = collect(
            self.env,
            self.sampler,
            tasks,
            stated_weights=weights[:, 0] if weights is not None and self._in_prompt else None,
            rollouts=config.rollouts_per_prompt,
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            seed=[config.seed, TRAIN_STREAM, self.step],
            sample_batch=config.sample_batch,
            scorer=self.scorer,
        )
        collected = time.perf_counter()
        advantages, scores, credit = self._estimate(rollouts, weights)
        estimated = time.perf_counter()
        # Until its rows are written.
        self._interrupts.held = True
        valid = torch.from_numpy(rollouts.valid)
        pulls = advantages
        if credit is not None:
            of_tokens = token_credit(self.policy.tokenizer, rollouts.samples, credit.flatten(0, 1))
            pulls = advantages[..., None] + of_tokens.view(*advantages.shape, -1)
        finite, update = self._update.step(rollouts.samples, pulls, valid, self.step)
        self.step += 1
        self.skipped_steps += not finite
        self._bad_in_a_row = 0 if finite else self._bad_in_a_row + 1
        updated = time.perf_counter()
        tokens = int(rollouts.samples.mask.sum())
        kept = rollouts.rewards[rollouts.valid]
        groups = zip(rollouts.rewards, rollouts.valid, strict=True)
        pools = [diversity(rewards[kept_rows].reshape(-1, self.env.reward_dim)) for rewards, kept_rows in groups]
        means = kept.mean((0, 1)) if len(kept) else np.full(self.env.reward_dim, np.nan)
        return {
            "kind": "train",
            "step": self.step,
            "set_score": float(scores[valid].mean()),
            **{name: float(mean) for name, mean in zip(self.env.objective_names, means, strict=True)},
            "diversity": float(np.mean(pools)),
            "groups_without_signal": int((advantages == 0).all(1).sum()),
            "invalid_rollouts": int((~rollouts.valid).sum()),
            "response_tokens": tokens / len(rollouts.samples.texts),
            "truncated": float(rollouts.samples.truncated.float().mean()),
            **update,
            "skipped_steps": self.skipped_steps,
            "tokens_per_second": tokens / (updated - started),
            "seconds_generate": rollouts.generate_seconds,
            "seconds_score": rollouts.score_seconds,
            "seconds_estimate": estimated - collected,
            "seconds_update": updated - estimated,
        }

    def evaluate(self, label: str, *, initial: bool = False) -> Pool:
        """The pool behind the table: held-out prompts, saved in the run folder as ``pool_<label>.npz``.

        Args:
            label: Names the file.
            initial: Ask the initial model, loaded for it and sampled by the backend ``native``, at whatever step.
        """
        with self.scorer:
            pool = self._sample_pool(self._eval_env, self.config.eval_prompts, initial=initial)
        with self.folder.room():
            pool.save(self.folder.path / f"pool_{label}.npz")
        return pool

    # Inside --------------------------------------------------------------------------------------------------------

    def _weights(self, tasks: list[Task]) -> NDArray[np.float32] | None:
        """The weights of each prompt of this step, (P, K, d), where the method needs them."""
        config = self.config
        if not estimator(config.method).needs_weights:
            return None
        weights = draw_weights(
            [prompt_key(task.content_hash()) for task in tasks],
            num_objectives=self.env.reward_dim,
            num_weights=config.num_weights,
            alpha=config.alpha,
            sampler=config.weight_sampler,
            seed=config.seed,
            step=self.step,
            active=np.stack([self.env.active(task) for task in tasks]),
        )
        if self._in_prompt:
            stated = [in_whole_percent(weight) for weight in weights[:, 0]]
            return np.stack(stated)[:, None].astype(np.float32)
        return weights

    def _estimate(self, rollouts: Rollouts, weights: NDArray[np.float32] | None) -> Advantages:
        """Advantages and scores of the rollouts, on the CPU."""
        config = self.config
        return compute_advantages(
            torch.from_numpy(rollouts.rewards),
            method=config.method,
            weights=None if weights is None else torch.from_numpy(weights),
            scalar_weights=config.scalar_weights or self.env.scalar_weights,
            active=torch.from_numpy(np.stack([self.env.active(task) for task in rollouts.tasks])),
            valid=torch.from_numpy(rollouts.valid),
            **config.method_options,
        )

    def _load_reference(self) -> LMPolicy | None:
        """The initial model, for the KL penalty; LoRA finds it under its own adapters."""
        if not self.config.kl_coef or self.config.lora_rank:
            return None
        return self._load_initial()

    def _load_initial(self) -> LMPolicy:
        config = self.config
        initial = LMPolicy.from_pretrained(model_path(config.model), device=config.device, dtype=config.dtype)
        initial.model.requires_grad_(False)
        return initial

    def _sample_pool(self, env: VectorTextEnv[Any, Any, Any], prompts: int, *, initial: bool = False) -> Pool:
        config = self.config
        return sample_pool(
            env,
            (self.reference or self._load_initial()) if initial else self.sampler,
            range(prompts),
            rollouts=config.eval_rollouts,
            max_new_tokens=config.max_new_tokens,
            temperature=config.eval_temperature,
            seed=[config.seed, EVAL_STREAM],
            sample_batch=config.sample_batch,
            scalar_weights=config.scalar_weights,
            state_weights=self._in_prompt,
            source={
                "run": self.folder.path.name,
                **config.model_dump(mode="json", include={"model", "method", "method_options", "seed"}),
                "step": 0 if initial else self.step,
            },
            scorer=self.scorer,
        )

    def _validate(self) -> dict[str, Any]:
        pool = self._sample_pool(self._validation_env, self.config.eval_every_prompts)
        means = {one.name.replace(" ", "_"): float(one.values.mean()) for one in measures(pool) if one.headline}
        return {"kind": "eval", "step": self.step, **means}

    def _checkpoint_due(self) -> bool:
        every = self.config.checkpoint_every
        passed = self.step // every > self._saved_step // every or self.step == self.config.steps
        return passed and not self._bad_in_a_row

    def _save(self, log: MetricsWriter) -> None:
        log.sync()
        save_checkpoint(
            self.folder.checkpoints,
            self.step,
            self.policy,
            self.optimizer,
            {
                "skipped_steps": self.skipped_steps,
                "next_task": self.step * self.config.prompts_per_step,
                "config": self.config.model_dump(mode="json"),
            },
            self.config.keep_checkpoints,
        )
        self._saved_step = self.step

    def _check_method(self) -> None:
        """Try the estimator on a batch without any reward, so that a setting it does not take is known now."""
        config, env = self.config, self.env
        weights = config.scalar_weights
        if weights is not None and len(weights) != env.reward_dim:
            names = ", ".join(env.objective_names)
            raise ValueError(
                f"objective weights for {config.env} need {env.reward_dim} values, one per objective "
                f"({names}); got {len(weights)}"
            )
        compute_advantages(
            torch.zeros(1, config.rollouts_per_prompt, config.answers_per_rollout, env.reward_dim),
            method=config.method,
            weights=torch.full((1, config.num_weights, env.reward_dim), 1 / env.reward_dim),
            scalar_weights=weights or env.scalar_weights,
            **config.method_options,
        )


def model_path(model: str) -> str:
    """The folder or name that a setting stands for; bundled models are known by name."""
    try:
        return str(bundled_model_path(model))
    except KeyError:
        return model


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's ``metrics.jsonl``."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
