"""``vpo warm-start``: a model learns an environment's answers from its demonstrations, before any RL."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpo_agent.command.stopped import vpo_command
from vpo_envs.command.parser import Commands, Parser, add_env_options

if TYPE_CHECKING:
    from vpo_agent.config import TrainConfig
    from vpo_agent.learning.plan import Plan
    from vpo_agent.learning.recipe import Recipe
    from vpo_agent.learning.warm_start import WarmStart
    from vpo_agent.policy.language_model import LMPolicy
    from vpo_envs import VectorTextEnv

RECIPE = "recipe.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
TRIED = 64
"""Instances whose demonstrations are measured before the start."""
APART = 1_000_000
"""The warm start draws its instances from this stream (plus the seed), so that RL starts from instances not seen."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo warm-start``; its options are the fields of a recipe, which are read only when it is called."""
    parser = commands.add_parser(
        "warm-start",
        help="teach a model an environment's answers by its demonstrations",
        description="Train a model on an environment's demonstrations by next-token prediction, so that RL starts from "
        "a policy that answers readably and in all ways. On validation tasks, it shows on the way which share of the "
        "answers can be read and what they are worth to a search. The folder holds an ordinary model and its recipe.",
    )
    parser.declare = _declare
    parser.set_defaults(run=run)


def _declare(parser: Parser) -> None:
    from vpo_agent.learning.recipe import Recipe

    add = parser.add_argument
    add("--recipe", type=Path, metavar="FILE", help="settings as TOML, YAML or JSON, such as a model's recipe.json")
    add_env_options(parser)
    for name, field in Recipe.model_fields.items():
        if name not in ("env_kwargs", "imports"):
            default = str(field.default).strip("[]").replace(",", "")
            note = "" if field.is_required() else f" (default: {default})"
            many: dict[str, Any] = {"nargs": "+", "type": int} if name == "answers" else {}
            add(f"--{name.replace('_', '-')}", metavar="VALUE", help=f"{field.description}{note}", **many)
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder for the model")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:0")
    add("--gradient-checkpointing", action="store_true", help="recompute activations in the backward pass")
    add("--resume", action="store_true", help="continue from the folder's last checkpoint")


def run(arguments: argparse.Namespace) -> None:
    """Train, evaluate on the way, and save."""
    try:
        _run(arguments)
    except KeyboardInterrupt:
        words = list(arguments.argv)
        if not any((arguments.out / CHECKPOINTS).glob("step_*")):
            raise KeyboardInterrupt(f"no step is saved yet, so start again with: {vpo_command(*words)}") from None
        resume = [] if arguments.resume else ["--resume"]
        raise KeyboardInterrupt(f"continue from the last checkpoint with: {vpo_command(*words, *resume)}") from None


def _run(arguments: argparse.Namespace) -> None:
    from vpo_agent.learning.plan import MOST_RESPONSES
    from vpo_agent.learning.recipe import FRESH, Recipe
    from vpo_agent.learning.warm_start import WarmStart, has_words, small_policy, with_words_of
    from vpo_agent.policy.language_model import LMPolicy
    from vpo_agent.report.folder import check_folder
    from vpo_agent.runs.checkpoints import load_checkpoint, newest_whole, write_text_atomically
    from vpo_agent.runs.run_folder import rows_until
    from vpo_envs.registration import import_modules, make_text_env

    out: Path = arguments.out
    found, _ = newest_whole(out / CHECKPOINTS)
    if arguments.resume and found is None:
        raise ValueError(f"there is no checkpoint to resume from in {str(out)!r}: leave --resume out")
    if found is not None and not arguments.resume:
        raise ValueError(f"{str(out)!r} holds a warm start already: give --resume, or another --out")
    check_folder(out, RECIPE)
    recipe = read_recipe(arguments)
    import_modules(recipe.imports)
    stream = {"data_seed": APART + recipe.seed, **recipe.env_kwargs}
    env = make_text_env(recipe.env, **stream, num_answers=max(recipe.answers))
    _check_demonstrations(env, recipe)
    if found is None and recipe.model == FRESH:
        policy = small_policy(env, instances=1024, positions=recipe.positions, seed=recipe.seed)
    else:
        policy = LMPolicy.from_pretrained(
            recipe.model,
            device=arguments.device,
            dtype=recipe.dtype,
            lora_rank=recipe.lora_rank,
            checkpoint=found,
            seed=recipe.seed,
            gradient_checkpointing=arguments.gradient_checkpointing,
        )
        if recipe.lora_rank and has_words(policy):
            raise ValueError(f"adapters cannot teach {recipe.model!r} the words of a task: leave --lora-rank out")
        if found is None and has_words(policy):
            policy = with_words_of(policy, env, instances=1024, seed=recipe.seed)
    plan = None if has_words(policy) else _plan(policy, env, recipe, arguments.gradient_checkpointing)
    settings = {"steps", "batch", "responses", "answers", "learning_rate", "seed"}
    job = WarmStart(policy, env, **recipe.model_dump(include=settings))
    if plan:
        print(plan.table())
        job.microbatches.most_prompts = plan.microbatch_prompts
    if found is not None:
        state = load_checkpoint(found, job.optimizer)
        before = Recipe.model_validate(state["recipe"])
        if changed := [name for name, value in recipe if getattr(before, name) != value]:
            option = f"--{changed[0].replace('_', '-')}"
            raise ValueError(f"the warm start in {str(out)!r} has another {changed[0]}: leave {option} out")
        job.done = int(state["step"])
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomically(out / RECIPE, recipe.model_dump_json(indent=2) + "\n")
    # A row is written before its checkpoint, so a kill between the two leaves a row of steps that are taken again.
    write_text_atomically(out / METRICS, rows_until(out / METRICS, job.done))
    _train(job, recipe, out, plan.sample_batch if plan else MOST_RESPONSES)
    if has_words(policy):
        policy.model.half()  # Half the size, and rounding that no answer notices.
    if recipe.lora_rank:
        policy.model = policy.model.merge_and_unload()  # An ordinary model, which gets adapters of its own in RL.
    policy.save(out)
    print(f"saved to {out}; train it with: vpo train --env {recipe.env} --model {out}")


def _check_demonstrations(env: VectorTextEnv[Any, Any, Any], recipe: Recipe) -> None:
    """Raise ValueError if the environment has no demonstrations, before a model is loaded."""
    import numpy as np

    try:
        env.demonstrations(env.task(0), np.random.default_rng(0), recipe.answers[0])
    except NotImplementedError as error:
        raise ValueError(
            f"{error}, which a warm start learns from: choose another environment, or add the method demonstrations"
        ) from None


def _plan(
    policy: LMPolicy, env: VectorTextEnv[Any, Any, Any], recipe: Recipe, gradient_checkpointing: bool
) -> Plan | None:
    """Check all prompts against the model's context, and plan the memory of a GPU; on a CPU there is no plan.

    Raises:
        ValueError: A prompt with its response is too long for the model, or the warm start for the GPU's memory.
    """
    from vpo_agent.learning.plan import device_memory, plan_run
    from vpo_agent.learning.warm_start import demonstrated_tokens
    from vpo_agent.policy.memory import Shape
    from vpo_agent.rollouts.prompts import check_all_prompts, check_prompts

    instances = recipe.batch // recipe.responses
    response = demonstrated_tokens(policy, env, TRIED)
    validation = _validation_env(recipe, max(recipe.answers))
    longest = max(
        check_all_prompts(policy, env, recipe.steps * instances, response, sample=max(TRIED, instances)),
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
    from vpo_agent.config import make_config

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


def _validation_env(recipe: Recipe, m: int) -> VectorTextEnv[Any, Any, Any]:
    from vpo_envs.registration import make_text_env

    return make_text_env(recipe.env, **recipe.env_kwargs, num_answers=m, split="validation")


def read_recipe(arguments: argparse.Namespace) -> Recipe:
    """Return the settings: the defaults, the file's, and those of the command line, later ones winning."""
    from vpo_agent.command.options import typed
    from vpo_agent.config import check_settings, read_values
    from vpo_agent.learning.recipe import Recipe

    file = arguments.recipe or (arguments.out / RECIPE if arguments.resume else None)
    given = {name: typed(Recipe, name, getattr(arguments, name)) for name in Recipe.model_fields}
    settings = read_values(file) if file else {}
    settings |= {name: value for name, value in given.items() if value not in (None, [])}
    if "env" not in settings:
        raise ValueError("a warm start needs an environment: give --env ID or --recipe FILE")
    return check_settings(Recipe, settings, f"the settings, with those of {str(file)!r}" if file else "the settings")


def _train(job: WarmStart, recipe: Recipe, out: Path, sample_batch: int) -> None:
    """Take the steps that are left, with an evaluation and a checkpoint every few of them.

    On Ctrl-C it ends the step, saves a checkpoint and raises again. A second Ctrl-C stops at once and saves nothing.
    """
    from vpo_agent.runs.checkpoints import save_checkpoint
    from vpo_agent.runs.interrupts import Interrupts

    def save() -> None:
        state = {"recipe": recipe.model_dump()}
        save_checkpoint(out / CHECKPOINTS, job.done, job.policy, job.optimizer, state, keep=1)

    def report() -> None:
        row = {"step": job.done, "loss": sum(losses) / len(losses)}
        for m in sorted(set(recipe.answers)):
            row |= {f"{name} (m={m})": value for name, value in _evaluate(job, recipe, m, sample_batch).items()}
        row["minutes"] = (time.perf_counter() - started) / 60
        with (out / METRICS).open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        print("  ".join(f"{name} {round(value, 3)}" for name, value in row.items()), flush=True)

    started, losses = time.perf_counter(), list[float]()
    interrupts = Interrupts()
    with interrupts.handled():
        while job.done < job.steps:
            interrupts.held = True
            try:
                losses.append(job.step())
            except ValueError:  # a prompt that is too long
                if losses:
                    save()
                raise
            if job.done % recipe.eval_every == 0 or job.done == job.steps:
                report()
                save()
                losses.clear()
            try:
                interrupts.release()
            except KeyboardInterrupt:
                if losses:
                    save()
                raise


def _evaluate(job: WarmStart, recipe: Recipe, m: int, sample_batch: int) -> dict[str, float]:
    """Return what validation answers in sets of ``m`` are worth: averages over tasks."""
    from vpo_agent.measure.measures import measures
    from vpo_agent.measure.sampling import sample_pool

    env = _validation_env(recipe, m)
    pool = sample_pool(
        env,
        job.policy,
        range(recipe.eval_prompts),
        rollouts=-(-recipe.eval_answers // m),
        max_new_tokens=recipe.max_new_tokens,
        temperature=1.0,
        seed=[recipe.seed, m],
        sample_batch=sample_batch,
    )
    found = {one.name: float(one.values.mean()) for one in measures(pool)}
    shown = {"readable": 1 - found["answers unreadable"], "worth zero": found["answers worth zero"]}
    shown |= {name: found[name] for name in ("expected utility", "pool utility")}
    if "pool regret" in found:
        shown["front"] = found["pool utility"] + found["pool regret"]
    return shown
