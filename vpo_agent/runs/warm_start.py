"""The warm start: a supervised training on an environment's demonstrations, and the model that it leaves."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from vpo_agent.config import FRESH, Recipe, TrainConfig, make_config
from vpo_agent.learning.fits import Plan, Shape, device_memory, plan_run
from vpo_agent.learning.warm_start import WarmStart, demonstrated_tokens
from vpo_agent.measure.measures import measures
from vpo_agent.measure.sampling import different_tasks, sample_pool
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import MAX_RESPONSES, Samples
from vpo_agent.policy.word_models import has_words, small_policy, with_words_of
from vpo_agent.progress import progress_bar
from vpo_agent.rollouts.collect import trainer_state
from vpo_agent.rollouts.prompts import check_all_prompts, check_prompts
from vpo_agent.runs.checkpoints import load_checkpoint, save_checkpoint
from vpo_agent.runs.inputs import check_inputs, hash_inputs, note_inputs
from vpo_agent.runs.loop import Training
from vpo_agent.runs.rows import rows_until
from vpo_agent.runs.whole_files import newest_whole, write_text_atomically
from vpo_envs.common.imports import import_modules
from vpo_envs.core import AnyEnv
from vpo_envs.registration import make_text_env

RECIPE = "recipe.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
TRIED = 64
"""Tasks whose demonstrations are measured before the start."""
APART = 1_000_000
"""The warm start draws its tasks from this stream (plus the seed), so that RL starts from tasks not seen."""


class WarmStartTraining(Training):
    """One warm start, in a folder that holds the recipe, the rows, the checkpoints and in the end the model.

    Raises:
        ValueError: An unknown environment or model, no demonstrations, prompts too long for the model, a warm start
            that does not fit into the GPU's memory, a checkpoint of other settings, or a checkpoint of other inputs
            unless ``accept_changes``.
    """

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        *,
        device: str,
        gradient_checkpointing: bool = False,
        accept_changes: bool = False,
    ) -> None:
        checkpoint, _ = newest_whole(out / CHECKPOINTS)
        import_modules(recipe.imports)
        self.recipe, self.out = recipe, out
        self._losses: list[float] = []
        """Losses of the steps since the last row."""
        stream = {"data_seed": APART + recipe.seed, **recipe.env_kwargs}
        env = make_text_env(recipe.env, **stream, num_answers=max(recipe.answers))
        # Before a model is loaded.
        validation = _validation_env(recipe, recipe.answers[0])
        try:
            env.demonstrations(env.task(0), np.random.default_rng(0), recipe.answers[0])
        except NotImplementedError as error:
            way_out = "choose another environment, or add the method demonstrations"
            raise ValueError(f"{error}, which a warm start learns from: {way_out}") from None
        self._inputs = hash_inputs(
            recipe.env, recipe.env_kwargs, (env, validation), imports=recipe.imports, model=recipe.model
        )
        self._changed_inputs: list[str] = []
        if checkpoint is not None:
            owner = f"the warm start in {str(out)!r}"
            self._changed_inputs = check_inputs(out, self._inputs, owner, accept=accept_changes)
        env.check_scorers()
        policy = self._load(env, checkpoint, device, gradient_checkpointing)
        env.set_trainer(policy.chat.encode_texts, partial(trainer_state, 0, recipe.steps))
        if policy.slower:
            print(policy.slower)
        self.plan = None if has_words(policy) else _plan(policy, env, recipe, gradient_checkpointing)
        """How it fits into the memory of a GPU; ``None`` on a CPU."""
        settings = {"steps", "batch", "responses", "answers", "learning_rate", "seed"}
        self.learner = WarmStart(policy, env, **recipe.model_dump(include=settings))
        if self.plan:
            self.learner.microbatches.max_prompts = self.plan.microbatch_prompts
        if checkpoint is not None:
            state = load_checkpoint(checkpoint, self.learner.optimizer)
            before = Recipe.model_validate(state["recipe"])
            if changed := [name for name, value in recipe if getattr(before, name) != value]:
                option = f"--{changed[0].replace('_', '-')}"
                raise ValueError(f"the warm start in {str(out)!r} has another {changed[0]}: leave {option} out")
            self.learner.done = int(state["step"])
            self._losses += state["losses"]
        super().__init__(recipe.steps, self.learner.done)

    def train(self) -> None:
        """Take the steps that are left, as :meth:`take_steps` says, and save the model."""
        self.out.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self.out / RECIPE, self.recipe.model_dump_json(indent=2) + "\n")
        note_inputs(self.out, self._inputs, self._changed_inputs, self.step)
        # A row is written before its checkpoint, so a kill between the two leaves a row of steps that are taken again.
        write_text_atomically(self.out / METRICS, rows_until(self.out / METRICS, self.step))
        self._started = time.perf_counter()
        with progress_bar("warm start", self.steps, self.step) as self._bar:
            self.take_steps()
        policy = self.learner.policy
        if has_words(policy):
            policy.model.half()  # Half the size, and rounding that no answer notices.
        if self.recipe.lora_rank:
            # An ordinary model, which gets adapters of its own in RL; bfloat16 would round most of the update away.
            policy.model = policy.model.float().merge_and_unload()
        policy.save(self.out)

    def prepare(self) -> Samples:
        """Return the demonstrated responses of the next step."""
        return self.learner.samples()

    def learn(self, prepared: Samples) -> float:
        """Take one step; return the loss, in nats per token."""
        loss = self.learner.learn(prepared)
        self.step = self.learner.done
        return loss

    def record(self, result: float) -> None:
        """Keep the loss for the next row; every few steps evaluate, and write and print that row."""
        self._losses.append(result)
        self._bar.set_postfix_str(f"loss {result:.3f}", refresh=False)
        self._bar.update()
        if not self.checkpoint_due():
            return
        values: dict[str, float] = {"step": self.step, "loss": sum(self._losses) / len(self._losses)}
        for m in sorted(set(self.recipe.answers)):
            values |= {f"{name} (m={m})": value for name, value in self._evaluate(m).items()}
        values["minutes"] = (time.perf_counter() - self._started) / 60
        with (self.out / METRICS).open("a", encoding="utf-8") as log:
            log.write(json.dumps(values) + "\n")
        self._bar.write("  ".join(f"{name} {round(value, 3)}" for name, value in values.items()))
        sys.stdout.flush()
        self._losses.clear()

    def report(self, result: float) -> None:
        """Nothing else is due."""

    def checkpoint_due(self) -> bool:
        """Return True when a row is written and a checkpoint saved after this step."""
        return self.step % self.recipe.eval_every == 0 or self.step == self.steps

    def save(self) -> None:
        """Save a checkpoint, and delete the one before it."""
        state = {"recipe": self.recipe.model_dump(), "losses": self._losses}
        learner = self.learner
        save_checkpoint(self.out / CHECKPOINTS, self.step, learner.policy, learner.optimizer, state, keep=1)

    def _load(self, env: AnyEnv, checkpoint: Path | None, device: str, gradient_checkpointing: bool) -> LMPolicy:
        recipe = self.recipe
        if checkpoint is None and recipe.model == FRESH:
            return small_policy(env, num_tasks=1024, positions=recipe.positions, seed=recipe.seed)
        policy = LMPolicy.from_pretrained(
            recipe.model,
            device=device,
            dtype=recipe.dtype,
            lora_rank=recipe.lora_rank,
            checkpoint=checkpoint,
            seed=recipe.seed,
            gradient_checkpointing=gradient_checkpointing,
        )
        if recipe.lora_rank and has_words(policy):
            raise ValueError(f"adapters cannot teach {recipe.model!r} the words of a task: leave --lora-rank out")
        if checkpoint is None and has_words(policy):
            return with_words_of(policy, env, num_tasks=1024, seed=recipe.seed)
        return policy

    def _evaluate(self, m: int) -> dict[str, float]:
        """Return measures of validation answers, ``m`` in each response: means over tasks."""
        recipe = self.recipe
        env = _validation_env(recipe, m)
        encode = self.learner.policy.chat.encode_texts
        env.set_trainer(encode, partial(trainer_state, self.step, recipe.steps))
        pool = sample_pool(
            env,
            self.learner.policy,
            different_tasks(env, recipe.eval_prompts),
            rollouts=-(-recipe.eval_answers // m),
            max_new_tokens=recipe.max_new_tokens,
            temperature=1.0,
            seed=[recipe.seed, m],
            sample_batch=self.plan.sample_batch if self.plan else MAX_RESPONSES,
            label=f"evaluation at step {self.step}, m={m}",
        )
        means = {measure.name: float(measure.values.mean()) for measure in measures(pool)}
        row = {
            "readable": 1 - means["answers unreadable"],
            "zero reward": means["answers with zero reward"],
            "expected utility": means["expected utility"],
            "pool utility": means["pool utility"],
        }
        if "pool regret" in means:
            row["front"] = means["pool utility"] + means["pool regret"]
        return row


def _validation_env(recipe: Recipe, m: int) -> AnyEnv:
    return make_text_env(recipe.env, **recipe.env_kwargs, num_answers=m, split="validation")


def _plan(policy: LMPolicy, env: AnyEnv, recipe: Recipe, gradient_checkpointing: bool) -> Plan | None:
    """Check all prompts against the model's context, and plan the memory of a GPU; on a CPU there is no plan."""
    num_tasks = recipe.batch // recipe.responses
    response = demonstrated_tokens(policy, env, TRIED)
    validation = _validation_env(recipe, max(recipe.answers))
    longest = max(
        check_all_prompts(policy, env, recipe.steps * num_tasks, response, sample=max(TRIED, num_tasks)),
        check_prompts(policy, validation, range(recipe.eval_prompts), recipe.max_new_tokens),
    )
    memory = device_memory(policy.device)
    if memory is None:
        return None
    shape = Shape.of(policy.causal_lm, recipe.model)
    config = planned_settings(recipe, response, gradient_checkpointing)
    names = {"rollouts_per_prompt": "responses"}
    return plan_run(config, shape, prompt=longest, memory=memory, names=names)


def planned_settings(recipe: Recipe, response: int, gradient_checkpointing: bool) -> TrainConfig:
    """Return the settings of a training that takes the same memory, for responses of ``response`` tokens."""
    return make_config(
        {
            **recipe.model_dump(include={"lora_rank", "dtype", "eval_answers"}),
            "gradient_checkpointing": gradient_checkpointing,
            "prompts_per_step": recipe.batch // recipe.responses,
            "rollouts_per_prompt": recipe.responses,
            "max_new_tokens": max(response, recipe.max_new_tokens),
            "num_answers": 1,
            "kl_coef": 0.0,
        }
    )
