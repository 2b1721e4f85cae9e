"""``vpo warm-start``: a model learns an environment's answers from its demonstrations, before any RL."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpo_envs.command.parser import Commands, add_env_options, at_least

if TYPE_CHECKING:
    from vpo_agent.learning.warm_start import WarmStart

FRESH = "small"
RECIPE = "recipe.json"
CHECKPOINTS = "checkpoints"
DEFAULTS: dict[str, Any] = {
    "env_kwargs": {},
    "imports": [],
    "model": FRESH,
    "steps": 1000,
    "batch": 64,
    "answers": [1, 3],
    "learning_rate": 1e-3,
    "positions": 256,
    "seed": 0,
    "max_new_tokens": 64,
    "eval_every": 100,
    "eval_prompts": 50,
    "eval_answers": 30,
}
"""The settings of a recipe but ``env``, which has no default."""
APART = 1_000_000
"""The warm start draws its instances from this stream (plus the seed), so that RL starts from instances not seen."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo warm-start``."""
    parser = commands.add_parser(
        "warm-start",
        help="teach a model an environment's answers by its demonstrations",
        description="Train a model on an environment's demonstrations by next-token prediction, so that RL starts from "
        "a policy that answers readably and in all ways. On validation tasks, it shows on the way which share of the "
        "answers can be read and what they are worth to a search. The folder holds an ordinary model and its recipe.",
    )
    add = parser.add_argument
    add("--recipe", type=Path, metavar="FILE", help="settings as TOML, YAML or JSON, such as a model's recipe.json")
    add("--env", metavar="ID", help="environment with demonstrations: an id, or MODULE:ID")
    add_env_options(parser)
    add("--model", help=f"model to start from (default: {FRESH}, a million fresh weights and the task's own words)")
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder for the model")
    whole = {"steps": "optimizer steps", "batch": "responses per step", "seed": "seed of weights and data"}
    whole |= {"positions": f"most tokens of prompt and response, for --model {FRESH}"}
    whole |= {"max_new_tokens": "longest response in evaluations", "eval_every": "steps between evaluations"}
    whole |= {"eval_prompts": "validation tasks of an evaluation", "eval_answers": "answers to each"}
    for name, text in whole.items():
        least = 0 if name == "seed" else 1
        option = f"--{name.replace('_', '-')}"
        add(option, type=at_least(least), metavar="N", help=f"{text} (default: {DEFAULTS[name]})")
    text = "numbers of answers, drawn from for each response (default: 1 3)"
    add("--answers", type=at_least(1), nargs="+", metavar="M", help=text)
    add("--learning-rate", type=float, metavar="RATE", help=f"peak rate (default: {DEFAULTS['learning_rate']})")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:0")
    add("--resume", action="store_true", help="continue from the folder's last checkpoint")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Train, evaluate on the way, and save."""
    from vpo_agent.learning.warm_start import WarmStart, small_policy
    from vpo_agent.policy.language_model import LMPolicy
    from vpo_agent.report.folder import check_folder
    from vpo_agent.runs.checkpoints import load_checkpoint, newest_whole, write_text_atomically
    from vpo_envs.registration import import_modules, make_text_env

    out: Path = arguments.out
    found, _ = newest_whole(out / CHECKPOINTS)
    if arguments.resume and found is None:
        raise ValueError(f"there is no checkpoint to resume from in {str(out)!r}: leave --resume out")
    if found is not None and not arguments.resume:
        raise ValueError(f"{str(out)!r} holds a warm start already: give --resume, or another --out")
    check_folder(out, RECIPE)
    recipe = _recipe(arguments)
    import_modules(recipe["imports"])
    stream = {"data_seed": APART + recipe["seed"], **recipe["env_kwargs"]}
    env = make_text_env(recipe["env"], **stream, num_answers=max(recipe["answers"]))
    if found is None and recipe["model"] == FRESH:
        policy = small_policy(env, instances=1024, positions=recipe["positions"], seed=recipe["seed"])
    else:
        policy = LMPolicy.from_pretrained(found or recipe["model"], device=arguments.device)
    settings = {name: recipe[name] for name in ("steps", "batch", "answers", "learning_rate", "seed")}
    job = WarmStart(policy, env, **settings)
    if found is not None:
        state = load_checkpoint(found, job.optimizer)
        if state["recipe"] != recipe:
            changed = sorted(name for name in recipe if state["recipe"].get(name) != recipe[name])
            raise ValueError(f"the warm start in {str(out)!r} has another {changed[0]}: leave --{changed[0]} out")
        job.done = int(state["step"])
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomically(out / RECIPE, json.dumps(recipe, indent=2) + "\n")
    _train(job, recipe, out)
    if recipe["model"] == FRESH:
        policy.model.half()  # Half the size, and rounding that no answer notices.
    policy.save(out)
    print(f"saved to {out}; train it with: vpo train --env {recipe['env']} --model {out}")


def _recipe(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings: the defaults, the file's, and those of the command line, later ones winning."""
    from vpo_agent.config import read_values

    file = arguments.recipe or (arguments.out / RECIPE if arguments.resume else None)
    stated = read_values(file) if file else {}
    if unknown := sorted(stated.keys() - DEFAULTS.keys() - {"env"}):
        raise ValueError(f"{str(file)!r}: unknown setting {unknown[0]!r}; the settings are env, {', '.join(DEFAULTS)}")
    given = {
        name: value for name, value in vars(arguments).items() if name in ("env", *DEFAULTS) and value not in (None, [])
    }
    recipe = {**DEFAULTS, **stated, **given}
    if "env" not in recipe:
        raise ValueError("a warm start needs an environment: give --env ID or --recipe FILE")
    if not 0 < recipe["learning_rate"] < 1:
        raise ValueError(f"--learning-rate must lie between 0 and 1, got {recipe['learning_rate']}")
    return recipe


def _train(job: WarmStart, recipe: dict[str, Any], out: Path) -> None:
    """Take the steps that are left, with an evaluation and a checkpoint every few of them."""
    from vpo_agent.runs.checkpoints import save_checkpoint

    started, losses = time.perf_counter(), []
    while job.done < job.steps:
        losses.append(job.step())
        if job.done % recipe["eval_every"] and job.done < job.steps:
            continue
        row = {"step": job.done, "loss": sum(losses) / len(losses)}
        losses = []
        for m in sorted(set(recipe["answers"])):
            row |= {f"{name} (m={m})": value for name, value in _evaluate(job, recipe, m).items()}
        row["minutes"] = (time.perf_counter() - started) / 60
        with (out / "metrics.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        print("  ".join(f"{name} {round(value, 3)}" for name, value in row.items()), flush=True)
        save_checkpoint(out / CHECKPOINTS, job.done, job.policy, job.optimizer, {"recipe": recipe}, keep=1)


def _evaluate(job: WarmStart, recipe: dict[str, Any], m: int) -> dict[str, float]:
    """Return what validation answers in sets of ``m`` are worth: averages over tasks."""
    from vpo_agent.pareto.measures import measures
    from vpo_agent.pareto.sampling import sample_pool
    from vpo_envs.registration import make_text_env

    env = make_text_env(recipe["env"], **recipe["env_kwargs"], num_answers=m, split="validation")
    pool = sample_pool(
        env,
        job.policy,
        range(recipe["eval_prompts"]),
        rollouts=-(-recipe["eval_answers"] // m),
        max_new_tokens=recipe["max_new_tokens"],
        temperature=1.0,
        seed=[recipe["seed"], m],
    )
    found = {one.name: float(one.values.mean()) for one in measures(pool)}
    shown = {"readable": 1 - found["answers unreadable"], "worth zero": found["answers worth zero"]}
    shown |= {name: found[name] for name in ("expected utility", "pool utility")}
    if "pool regret" in found:
        shown["front"] = found["pool utility"] + found["pool regret"]
    return shown
