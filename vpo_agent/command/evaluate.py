"""``vpo eval``: what a model's answers are worth to a search."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpo_envs.command.parser import Commands, add_env_options, at_least

if TYPE_CHECKING:
    from vpo_agent.pareto.pool import Pool

OF_A_POOL = ("target", "k", "threshold", "pairs", "examples", "out", "imports", "run")
"""Arguments that also apply to a saved pool; all others concern sampling."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo eval``."""
    parser = commands.add_parser(
        "eval",
        help="measure a run, a model or a saved pool of answers",
        description="Sample a pool of answers on held-out tasks, or read a saved one, and write a folder with the "
        "pool, its numbers and figures.",
    )
    add = parser.add_argument
    add("target", help="a run's folder, a model (bundled, folder, Hub name), or a pool.npz")
    add(
        "--k", type=at_least(1), help="answers per prompt, and the largest k shown (default: 30; for a saved pool, all)"
    )
    add("--prompts", type=at_least(2), metavar="N", help="number of prompts (default: 200)")
    add("--env", metavar="ID", help="environment to evaluate a model in: an id such as vpo/Maze-v0, or MODULE:ID")
    add_env_options(parser, note=", over those of the run")
    add("--split", choices=["train", "validation", "test"], help="split of the prompts (default: test)")
    step = at_least(0)
    add(
        "--checkpoint",
        type=lambda text: text if text == "initial" else step(text),
        metavar="STEP",
        help="step of a run's checkpoint, or initial (default: the newest)",
    )
    add("--temperature", type=float, metavar="T", help="sampling temperature (default: the run's, or 1)")
    add("--num-answers", type=at_least(1), metavar="M", help="answers per rollout (default: the run's, or 1)")
    add("--max-new-tokens", type=at_least(1), metavar="N", help="longest response (default: the run's, or 1024)")
    add("--seed", type=at_least(0), metavar="N", help="seed of the sampling (default: the run's, or 0)")
    add("--device", help="auto, cpu, cuda or cuda:0")
    add(
        "--sample-batch",
        type=at_least(1),
        metavar="N",
        help="responses sampled at the same time, at most (default: the run's, or 1024)",
    )
    add("--threshold", type=float, metavar="R", help="scalar reward at which an answer passes, for pass@k")
    add("--pairs", metavar="A,B;…", help="objectives to draw against each other, such as gold,diamond")
    add("--examples", type=at_least(0), default=3, metavar="N", help="prompts whose answers are shown (default: 3)")
    add("--out", type=Path, metavar="FOLDER", help="output folder")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate and report."""
    from vpo_agent.report.evaluation import evaluate_pool
    from vpo_agent.report.figures import read_pairs

    target = Path(arguments.target)
    if arguments.temperature is not None and not 0 < arguments.temperature < float("inf"):
        raise ValueError(f"--temperature must be above 0, got {arguments.temperature}")
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    if target.suffix == ".npz" or target.is_file():
        from vpo_agent.pareto.pool import Pool

        for name in given:
            if name not in OF_A_POOL:
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"{str(target)!r} is a saved pool, which {option} cannot change: leave it out")
        pool, usual_out = Pool.load(target), target.with_name(f"{target.stem}_eval")
    else:
        sampling = {name: value for name, value in given.items() if name not in OF_A_POOL or name in ("k", "pairs")}
        pool, usual_out = _sample(arguments, target, sampling)
    out = arguments.out or usual_out
    report = evaluate_pool(
        pool,
        out,
        k=arguments.k,
        threshold=arguments.threshold,
        pairs=None if arguments.pairs is None else read_pairs(arguments.pairs, pool.objectives),
        examples=arguments.examples,
        name=arguments.target,
    )
    print(f"{report}\n{out}/ holds pool.npz, eval.json, eval.md and the figures")


def _sample(arguments: argparse.Namespace, target: Path, sampling: dict[str, Any]) -> tuple[Pool, Path]:
    """Return a pool sampled from a run or model, and the usual folder of its report."""
    from vpo_agent.config import is_run
    from vpo_agent.report.folder import check_folder
    from vpo_agent.report.sampling import DEFAULTS, sample_model, sample_run

    if arguments.out is not None:
        check_folder(arguments.out, "eval.json")
    if is_run(target):
        pool = sample_run(target, sampling)
        out = target / f"eval_{pool.source['split']}_step_{pool.source['step']:06d}"
    else:
        pool = sample_model(arguments.target, sampling)
        task = str(pool.source["env"]).rsplit("/", 1)[-1].split("-")[0].lower()
        out = Path("runs") / f"eval_{task}_{Path(arguments.target).name}"
    arguments.k = arguments.k or min(DEFAULTS["k"], pool.rewards.shape[1] * pool.rewards.shape[2])
    return pool, out
