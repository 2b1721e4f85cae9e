"""``vpo search``: what a search at test time finds with a policy."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpo_agent.command.parser import (
    Commands,
    add_env_options,
    add_thinking_option,
    add_trust_option,
    at_least,
)
from vpo_agent.command.rewards import add_rewards_options
from vpo_agent.runs.continuing import vpo_command, when_stopped

if TYPE_CHECKING:
    from vpo_agent.search.runner import SearchJob, SearchTarget

OF_THE_JOB = ("method", "measure", "split", "tokens", "seed", "temperature", "start", "offspring", "feedback")
"""Options that a search job takes as they are."""
METHODS = ("best-of-n", "evolve")
MEASURES = ("scalar", "utility")
_DEFAULTS: dict[str, Any] = {"env_kwargs": {}, "max_new_tokens": 1024}


def add_parser(commands: Commands) -> None:
    """Add ``vpo search``."""
    parser = commands.add_parser(
        "search",
        help="search for good answers with one or several policies",
        description="Search the same tasks with each policy, with equally many answers or tokens. A task is solved "
        "when the score of its answers comes within 0.02 of the score of its exact front. The same command continues "
        "an interrupted search.",
    )
    add = parser.add_argument
    add("targets", nargs="+", metavar="TARGET", help="runs, or models (bundled, folder, GGUF file, Hub name)")
    add("--method", default="evolve", choices=METHODS, help="how to search (default: evolve)")
    add(
        "--measure",
        default="scalar",
        choices=MEASURES,
        help="what answers are scored by: the best scalar reward, or the utility of all answers (default: scalar)",
    )
    add(
        "--eval-prompts",
        type=at_least(1),
        metavar="N",
        help="first tasks of the split to search (default: 20, or all rows of a smaller data set)",
    )
    add(
        "--hard",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="search the tasks that 30 answers of each of these sample files leave unsolved (default: the first tasks)",
    )
    add("--iterations", type=int, metavar="N", help="answers sampled per task (default: 200)")
    add("--tokens", type=int, metavar="N", help="tokens sampled per task, in place of --iterations")
    add("--seed", type=int, default=0, metavar="N", help="seed of sampling (default: 0)")
    add("--out", type=Path, metavar="FOLDER", help="output folder (default: searches/METHOD-seedN)")
    add("--start", type=int, default=30, metavar="N", help="evolve: answers sampled before evolution (default: 30)")
    add("--offspring", type=int, default=5, metavar="N", help="evolve: children between selections (default: 5)")
    add(
        "--feedback",
        action="store_true",
        help="evolve: show the model a parent with its results on the examples of the prompt",
    )
    add("--split", default="test", choices=("validation", "test"), help="split of the tasks (default: test)")
    add("--env", metavar="ID", help="environment of a model that is not a run: id such as vpo/Maze-v0, or MODULE:ID")
    add_env_options(parser)
    add_trust_option(parser)
    add_rewards_options(parser)
    add("--num-answers", type=at_least(1), metavar="M", help="answers per response (default: the run's largest, or 1)")
    add("--temperature", type=float, default=1.0, metavar="T", help="sampling temperature (default: 1)")
    add("--max-new-tokens", type=int, metavar="N", help="length limit of a response (default: the run's, or 1024)")
    add("--checkpoint", type=int, metavar="STEP", help="step of each run's checkpoint (default: the newest)")
    add_thinking_option(parser, "default: the run's, or off")
    add("--device", default="auto", metavar="TEXT", help="auto, cpu, cuda or cuda:0 (default: auto)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Search and report."""
    with when_stopped(f"finished tasks are kept, and the same command continues: {vpo_command(*arguments.argv)}"):
        job, targets = _plan(arguments)
        from vpo_agent.search.runner import run_search, summary

        out = arguments.out or Path("searches") / f"{arguments.method}-seed{arguments.seed}"
        try:
            results = run_search(job, targets, out, say=partial(print, flush=True))
        except OSError as error:
            raise ValueError(
                f"cannot write into {str(out)!r}, {error.strerror or error}: make room; finished tasks are kept, "
                "and the same command continues"
            ) from error
        print(f"\n{summary(results)}\n\n{out}/ holds search.json, results.md, solved.png, and a .jsonl per policy")


def _plan(arguments: argparse.Namespace) -> tuple[SearchJob, list[SearchTarget]]:
    """Return the job and the policies that the command line asks for."""
    from vpo_agent.policy.downloads import check_model
    from vpo_agent.runs.targets import find_model, load_policy, target_name

    if arguments.iterations is not None and arguments.tokens is not None:
        raise ValueError("--iterations and --tokens are two budgets: give one of them")
    for target in arguments.targets:
        find_model(target, arguments.checkpoint)
    plans = [_settings(arguments, target) for target in arguments.targets]
    for target in arguments.targets:
        check_model(find_model(target, arguments.checkpoint))
    from vpo_agent.search.runner import SearchJob, SearchTarget

    for target, plan in zip(arguments.targets, plans, strict=True):
        if (plan["env"], plan["env_kwargs"]) != (plans[0]["env"], plans[0]["env_kwargs"]):
            other = f"another environment than {arguments.targets[0]!r}"
            raise ValueError(f"{target!r} is a policy for {other}: search each alone")
    job = SearchJob(
        env=plans[0]["env"],
        env_kwargs=plans[0]["env_kwargs"],
        indices=tuple(_indices(arguments, plans[0])),
        max_new_tokens=arguments.max_new_tokens or max(plan["max_new_tokens"] for plan in plans),
        iterations=200 if arguments.iterations is None else arguments.iterations,
        **{name: getattr(arguments, name) for name in OF_THE_JOB},
    )
    targets = [
        SearchTarget(
            target_name(target).replace("/", "-"),
            plan["num_answers"],
            partial(load_policy, target, arguments.checkpoint, arguments.device, thinking=arguments.thinking),
        )
        for target, plan in zip(arguments.targets, plans, strict=True)
    ]
    return job, targets


def _settings(arguments: argparse.Namespace, target: str) -> dict[str, Any]:
    """Return the environment, answers per response and length limit of a target."""
    from vpo_agent.runs.targets import near_target, settings_of

    known = settings_of(target)
    if "num_answers" in known:  # a run
        return {**known, "num_answers": arguments.num_answers or known["num_answers"]}
    if arguments.env is not None:
        known = {"env": arguments.env}
    if not known:
        raise ValueError(
            f"{target!r} has no environment of its own: {near_target(target)}give an environment, such as --env "
            "vpo/Maze-v0"
        )
    given = {} if arguments.env_kwargs is None else {"env_kwargs": arguments.env_kwargs}
    return {**_DEFAULTS, **known, **given, "num_answers": arguments.num_answers or 1}


def _indices(arguments: argparse.Namespace, plan: dict[str, Any]) -> list[int]:
    """Return the tasks to search, of the environment of a plan."""
    if arguments.hard is None:
        from vpo_agent.measure.sampling import different_tasks, fewer_tasks
        from vpo_envs.registration import make_text_env

        env = make_text_env(plan["env"], **plan["env_kwargs"], split=arguments.split)
        count = arguments.eval_prompts or 20
        indices = different_tasks(env, count, least=1)
        if fewer := fewer_tasks(env, indices, count):
            print(fewer)
        return indices
    if arguments.eval_prompts is not None:
        raise ValueError("--eval-prompts and --hard exclude each other: give one of them")
    from vpo_agent.measure.pool import Pool
    from vpo_agent.search.records import hard_tasks

    hard = hard_tasks([Pool.load(path) for path in arguments.hard], measure=arguments.measure)
    if not hard:
        raise ValueError(
            "30 answers of these sample files solve every task, so no task is left to search: choose other "
            "sample files, or leave --hard out"
        )
    return hard
