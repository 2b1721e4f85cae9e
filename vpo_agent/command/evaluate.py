"""``vpo eval``: what a model's answers are worth to a search."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from vpo_envs.command import Commands

OF_SAMPLING = (
    "env",
    "env_kwargs",
    "checkpoint",
    "prompts",
    "split",
    "temperature",
    "num_answers",
    "max_new_tokens",
    "seed",
    "device",
    "sample_batch",
)


def add_parser(commands: Commands) -> None:
    """Add ``vpo eval``."""
    parser = commands.add_parser(
        "eval",
        help="measure a run, a model or a saved pool of answers",
        description="Sample a pool of answers on held-out tasks, or read a saved one, and write a folder with the "
        "pool, its numbers and figures.",
    )
    parser.add_argument("target", help="a run's folder, a model (bundled, folder, Hub name), or a pool.npz")
    parser.add_argument(
        "--k", type=int, help="answers to each prompt, and the largest k shown (default 30; of a pool all)"
    )
    parser.add_argument("--prompts", type=int, metavar="N", help="how many prompts (default 200)")
    parser.add_argument("--env", metavar="ID", help="the environment to ask a model in, such as vpo/Maze-v0")
    parser.add_argument("--env-kwargs", metavar="JSON", help="arguments of the environment, over those of the run")
    parser.add_argument("--split", choices=["train", "validation", "test"], help="of the prompts (default test)")
    parser.add_argument("--checkpoint", metavar="STEP", help="a run's step, or initial (default: the newest)")
    parser.add_argument("--temperature", type=float, metavar="T", help="of sampling (default: the run's, or 1)")
    parser.add_argument("--num-answers", type=int, metavar="M", help="answers in a rollout (default: the run's, or 1)")
    parser.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="longest response (default: the run's, or 1024)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of sampling (default: the run's, or 0)")
    parser.add_argument("--device", help="auto, cpu, cuda or cuda:0")
    parser.add_argument(
        "--sample-batch", type=int, metavar="N", help="most responses sampled at one time (default: the run's, or 1024)"
    )
    parser.add_argument("--threshold", type=float, metavar="R", help="scalar reward that passes, for pass@k")
    parser.add_argument("--pairs", metavar="A,B;…", help="objectives to draw against each other, such as gold,diamond")
    parser.add_argument(
        "--examples", type=int, default=3, metavar="N", help="prompts whose answers are shown, default 3"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where everything goes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, typed: TextIO) -> None:
    """Evaluate and report.

    Raises:
        ValueError: A bad target or option.
    """
    target = Path(arguments.target)
    for name, least in (
        ("k", 1),
        ("prompts", 2),
        ("num_answers", 1),
        ("max_new_tokens", 1),
        ("seed", 0),
        ("examples", 0),
        ("sample_batch", 1),
    ):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, got {value}")
    if arguments.temperature is not None and not 0 < arguments.temperature < float("inf"):
        raise ValueError(f"--temperature must be above 0, got {arguments.temperature}")
    if target.suffix == ".npz" or target.is_file():
        _report(arguments, _saved(arguments, target), arguments.out or target.with_name(f"{target.stem}_eval"))
    else:
        _sample_and_report(arguments, target)


def _saved(arguments: argparse.Namespace, path: Path) -> Any:
    from vpo_agent.pareto.pool import Pool

    for name in OF_SAMPLING:
        if getattr(arguments, name) is not None:
            raise ValueError(f"{str(path)!r} is a saved pool, sampled already: leave --{name.replace('_', '-')} out")
    return Pool.load(path)


def _sample_and_report(arguments: argparse.Namespace, target: Path) -> None:
    from vpo_agent.report.folder import check_folder
    from vpo_agent.report.runs import is_run
    from vpo_agent.report.sampling import SamplingOptions, sample_model, sample_run

    given = {name: getattr(arguments, name) for name in (*OF_SAMPLING, "k", "pairs")}
    chosen = {name: value for name, value in given.items() if value is not None}
    chosen["env_kwargs"] = _object(arguments.env_kwargs)
    if arguments.out is not None:
        check_folder(arguments.out, "eval.json")
    if is_run(target):
        pool = sample_run(target, SamplingOptions(**chosen))
        out = target / f"eval_{pool.source['split']}_step_{pool.source['step']:06d}"
    else:
        pool = sample_model(arguments.target, SamplingOptions(**chosen))
        task = str(pool.source["env"]).rsplit("/", 1)[-1].split("-")[0].lower()
        out = Path("runs") / f"eval_{task}_{Path(arguments.target).name}"
    arguments.k = arguments.k or min(SamplingOptions.k, pool.rewards.shape[1] * pool.rewards.shape[2])
    _report(arguments, pool, arguments.out or out)


def _report(arguments: argparse.Namespace, pool: Any, out: Path) -> None:
    from vpo_agent.report.evaluation import evaluate_pool
    from vpo_agent.report.figures import read_pairs

    text = evaluate_pool(
        pool,
        out,
        k=arguments.k,
        threshold=arguments.threshold,
        pairs=None if arguments.pairs is None else read_pairs(arguments.pairs, pool.objectives),
        examples=arguments.examples,
        name=arguments.target,
    )
    print(text)
    print(f"{out}/ holds pool.npz, eval.json, eval.md and the figures")


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"--env-kwargs must be a JSON object, got {text!r}")
    return value
