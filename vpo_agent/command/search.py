"""``vpo search``: what a search at test time finds with a policy."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from vpo_agent.search.runner import SearchJob, SearchTarget
    from vpo_envs.command import Commands

METHODS = ("best-of-n", "evolve")
_TINY = {"env": "vpo/Maze-v0", "env_kwargs": {"preset": "embedded", "prompt_style": "compact"}, "max_new_tokens": 100}


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "search",
        help="search for good answers with one or several policies",
        description="Searches the same instances with each policy, with equally many answers. An instance is solved by "
        "a scalar reward within 0.02 of the optimum on its exact front. The folder --out is resumed where it stopped.",
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="run folders, models' folders or names, tiny-maze")
    parser.add_argument("--method", default="evolve", help=f"{', '.join(METHODS)}; default evolve")
    parser.add_argument(
        "--prompts", type=int, metavar="N", help="search the first N instances of the split, default 20"
    )
    parser.add_argument("--indices", metavar="I,J,...", help="search these instances instead")
    parser.add_argument(
        "--hard", nargs="+", type=Path, metavar="POOL", help="search the instances that best@30 of no saved pool solves"
    )
    parser.add_argument("--iterations", type=int, default=200, help="answers sampled per instance, default 200")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--out", type=Path, help="folder of the search; default searches/METHOD-seedS")
    parser.add_argument("--variation", default="prefix", choices=("prefix", "rewrite"), help="default prefix")
    parser.add_argument("--start", type=int, default=30, help="of evolve: answers sampled first, default 30")
    parser.add_argument("--offspring", type=int, default=5, help="of evolve: children between selections, default 5")
    parser.add_argument("--split", default="test", choices=("validation", "test"), help="default test")
    parser.add_argument("--env", help="for a model that is no run: id of the environment")
    parser.add_argument("--env-kwargs", metavar="JSON", help="its arguments, as a JSON object")
    parser.add_argument("--num-answers", type=int, help="answers per response of a model that is no run, default 1")
    parser.add_argument("--temperature", type=float, default=1.0, help="default 1")
    parser.add_argument("--max-new-tokens", type=int, help="longest response; default: the run's, else 1024")
    parser.add_argument("--checkpoint", type=int, metavar="STEP", help="of each run; default: its newest")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1; default auto")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace, stdin: TextIO) -> None:
    """Search and report.

    Raises:
        ValueError: A bad option, or a run or model that does not exist.
    """
    if chosen.method not in METHODS:
        raise ValueError(f"unknown method {chosen.method!r}: choose one of {', '.join(METHODS)}")
    if not chosen.targets:
        raise ValueError("give the policies to search with, such as runs/NAME or tiny-maze")
    from vpo_agent.search.runner import per_instance, run_search, summary

    job, targets = _plan(chosen)
    out = chosen.out or Path("searches") / f"{chosen.method}-seed{chosen.seed}"
    results = run_search(job, targets, out, say=partial(print, flush=True))
    for name, result in results.items():
        print(f"\n{name}, {result.method}\n\n{per_instance(result)}")
    print(f"\n{summary(results)}\n\n{out}/ holds search.json, results.md, solved.png, and a .jsonl and .npz per policy")


def _plan(chosen: argparse.Namespace) -> tuple[SearchJob, list[SearchTarget]]:
    """The job and the policies that the command line asks for."""
    from vpo_agent.runs.targets import find_model, load_policy, target_name
    from vpo_agent.search.runner import SearchJob, SearchTarget

    for target in chosen.targets:
        find_model(target, chosen.checkpoint)
    plans = [_settings(chosen, target) for target in chosen.targets]
    for target, plan in zip(chosen.targets, plans, strict=True):
        if (plan["env"], plan["env_kwargs"]) != (plans[0]["env"], plans[0]["env_kwargs"]):
            raise ValueError(
                f"{target!r} is a policy for another environment than {chosen.targets[0]!r}: search each alone"
            )
    job = SearchJob(
        env=plans[0]["env"],
        env_kwargs=plans[0]["env_kwargs"],
        indices=tuple(_indices(chosen)),
        method=chosen.method,
        split=chosen.split,
        iterations=chosen.iterations,
        seed=chosen.seed,
        temperature=chosen.temperature,
        max_new_tokens=chosen.max_new_tokens or max(plan["max_new_tokens"] for plan in plans),
        variation=chosen.variation,
        start=chosen.start,
        offspring=chosen.offspring,
    )
    targets = [
        SearchTarget(
            target_name(target).replace("/", "-"),
            plan["num_answers"],
            partial(load_policy, target, chosen.checkpoint, chosen.device),
        )
        for target, plan in zip(chosen.targets, plans, strict=True)
    ]
    return job, targets


def _settings(chosen: argparse.Namespace, target: str) -> dict[str, Any]:
    """Environment, answers per response and longest response of a target."""
    from vpo_agent.config import make_config, read_config

    config_file = Path(target).expanduser() / "config.json"
    if (config_file.parent / "checkpoints").is_dir() and config_file.is_file():
        config = make_config(read_config(config_file), str(config_file))
        return {
            "env": config.env,
            "env_kwargs": config.env_kwargs,
            "num_answers": config.answers_per_rollout,
            "max_new_tokens": config.max_new_tokens,
        }
    tiny = target == "tiny-maze" and chosen.env is None
    if chosen.env is None and not tiny:
        raise ValueError(f"{target!r} does not say which environment it is for: give --env, such as --env vpo/Maze-v0")
    settings = dict(_TINY) if tiny else {"env": chosen.env, "env_kwargs": {}, "max_new_tokens": 1024}
    if chosen.env_kwargs is not None:
        try:
            settings["env_kwargs"] = json.loads(chosen.env_kwargs)
        except ValueError:
            settings["env_kwargs"] = None
        if not isinstance(settings["env_kwargs"], dict):
            raise ValueError(f"--env-kwargs must be a JSON object, got {chosen.env_kwargs!r}")
    return {**settings, "num_answers": 1 if chosen.num_answers is None else chosen.num_answers}


def _indices(chosen: argparse.Namespace) -> list[int]:
    """Which instances to search."""
    given = [name for name in ("prompts", "indices", "hard") if getattr(chosen, name) is not None]
    if len(given) > 1:
        raise ValueError(f"--{given[0]} and --{given[1]} exclude each other: give one of them")
    if chosen.hard is not None:
        from vpo_agent.pareto.pool import Pool
        from vpo_agent.search.records import hard_instances

        hard = hard_instances([Pool.load(path) for path in chosen.hard])
        if not hard:
            raise ValueError("best@30 of these pools solves every instance, so none is left to search")
        return hard
    if chosen.indices is not None:
        try:
            return [int(index) for index in chosen.indices.split(",")]
        except ValueError:
            raise ValueError(f"--indices takes whole numbers apart by commas, got {chosen.indices!r}") from None
    prompts = 20 if chosen.prompts is None else chosen.prompts
    if prompts < 1:
        raise ValueError(f"--prompts must be at least 1, got {prompts}")
    return list(range(prompts))
