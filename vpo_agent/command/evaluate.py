"""``vpo eval``: measures of a run, a model, a model behind an endpoint, or a sample file."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vpo_agent.command.parser import (
    DTYPE_HELP,
    Commands,
    add_env_options,
    add_thinking_option,
    add_trust_option,
    at_least,
)
from vpo_agent.command.rewards import add_rewards_options
from vpo_agent.runs.continuing import vpo_command

if TYPE_CHECKING:
    from vpo_agent.measure.pool import Pool
    from vpo_agent.rollouts.endpoint import EndpointPolicy


FOR_A_POOL = ("target", "k", "threshold", "out", "imports", "trusted", "run", "argv")
"""Arguments that also apply to a sample file; all others concern sampling."""
NOT_FOR_AN_ENDPOINT = ("target", "checkpoint", "device", "dtype", "sample_batch")
"""Arguments without a meaning for a model behind an endpoint."""
ONLY_FOR_AN_ENDPOINT = ("model", "api", "api_key_env", "concurrency", "timeout", "reply_timeout", "retries")
"""Arguments that need ``--endpoint``."""
BESIDE_HARBOR = ("harbor", "imports", "trusted", "run", "argv")
"""Arguments that may stand beside ``--harbor``."""
REPLY_S = 1800.0
"""Default of ``--reply-timeout``: some servers send blanks while a model thinks, so that no byte is late."""


class Evaluated(NamedTuple):
    """A pool to report on."""

    pool: Pool
    name: str
    """What the report calls it."""
    usual_out: Path
    """Folder of the report unless ``--out`` names one."""


def add_parser(commands: Commands) -> None:
    """Add ``vpo eval``."""
    parser = commands.add_parser(
        "eval",
        help="measure the answers of a run, a model or a sample file",
        description="Sample answers to held-out tasks, or read a sample file, and write a folder with the answers, "
        "their measures and figures.",
    )
    add = parser.add_argument
    add("target", nargs="?", help="run, model (bundled, folder, GGUF file, Hub name), or sample file such as pool.npz")
    add(
        "--k",
        type=at_least(1),
        metavar="K",
        help="answers per prompt, and the largest k shown (default: 30, or all of a sample file)",
    )
    add(
        "--eval-prompts",
        type=at_least(2),
        metavar="N",
        help="prompts to answer (default: 200, or all rows of a smaller data set)",
    )
    add("--env", metavar="ID", help="environment of a model that is not a run: id such as vpo/Maze-v0, or MODULE:ID")
    add_env_options(parser, note=", over those of the run")
    add_trust_option(parser)
    add("--split", choices=["train", "validation", "test"], help="split of the prompts (default: test)")
    step = at_least(0)
    add(
        "--checkpoint",
        type=lambda text: text if text == "base" else step(text),
        metavar="STEP",
        help="step of a run's checkpoint, or base for the model before training (default: the newest)",
    )
    add("--temperature", type=float, metavar="T", help="sampling temperature (default: the run's, or 1)")
    add("--num-answers", type=at_least(1), metavar="M", help="answers per response (default: the run's, or 1)")
    add(
        "--max-new-tokens",
        type=at_least(1),
        metavar="N",
        help="length limit of a response, in tokens (default: the run's, or 1024)",
    )
    add("--seed", type=at_least(0), metavar="N", help="seed of sampling (default: the run's, or 0)")
    add_thinking_option(parser, "default: the run's, or off; behind an endpoint, as the server chooses")
    add("--device", metavar="TEXT", help="auto, cpu, cuda or cuda:0 (default: the run's, or auto)")
    add("--dtype", metavar="TEXT", help=f"{DTYPE_HELP} (default: the run's, or auto)")
    add(
        "--sample-batch",
        type=at_least(1),
        metavar="N",
        help="responses sampled at the same time, at most (default: the run's, or 1024)",
    )
    add(
        "--threshold",
        type=float,
        metavar="R",
        help="scalar reward from which an answer solves its task, for pass@k (default: within 0.02 of the best on the "
        "exact front)",
    )
    add("--out", type=Path, metavar="FOLDER", help="output folder (default: named after the target)")
    add("--harbor", type=Path, metavar="JOBS", help="measure the trials in this folder of Harbor's jobs instead")
    add_endpoint_options(parser)
    add_rewards_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate and report."""
    from vpo_agent.pages.page import check_folder

    if arguments.temperature is not None and not 0 < arguments.temperature < float("inf"):
        raise ValueError(f"--temperature must be above 0, got {arguments.temperature}")
    if arguments.out is not None:
        check_folder(arguments.out, "eval.json")
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    if arguments.harbor is not None:
        from vpo_agent.report.harbor import harbor_report, read_trials

        refuse(given, set(given).difference(BESIDE_HARBOR), "does not apply to trials of --harbor")
        print(harbor_report(read_trials(arguments.harbor)))
    elif arguments.endpoint is not None:
        refuse(given, NOT_FOR_AN_ENDPOINT, "does not apply to a model behind an endpoint")
        _evaluate_endpoint(arguments, given)
    else:
        refuse(given, ONLY_FOR_AN_ENDPOINT, "applies only to a model behind an --endpoint")
        if arguments.target is None:
            raise ValueError("nothing to evaluate: give a run, a model or a sample file, or --endpoint URL")
        if _is_pool(Path(arguments.target)):
            _evaluate_saved_pool(arguments, given)
        else:
            evaluated = _sample(arguments, given)
            _report_new_pool(evaluated, arguments, arguments.out or _unused(evaluated.usual_out, evaluated.pool))


def _evaluate_endpoint(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Sample from a model behind an endpoint, and report; its answers are kept until the report is written."""
    if arguments.env is None:
        raise ValueError("--endpoint needs --env, such as --env vpo/Maze-v0")
    name = str(arguments.model)
    usual_out = Path("runs") / f"eval_{_task_name(str(arguments.env))}_{Path(name).name}"
    endpoint = open_endpoint(arguments, unfinished(arguments.out or usual_out))
    from vpo_agent.runs.pools import DEFAULTS, sample_endpoint

    arguments.k = arguments.k or DEFAULTS["k"]
    pool = sample_endpoint(endpoint, _sampling_settings(given))
    evaluated = Evaluated(pool, name, usual_out)
    _report_new_pool(evaluated, arguments, arguments.out or _unused(usual_out, pool))
    endpoint.forget()


def _is_pool(target: Path) -> bool:
    return target.suffix == ".npz" or (target.is_file() and target.suffix.lower() != ".gguf")


def _evaluate_saved_pool(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    from vpo_agent.measure.pool import Pool

    path = Path(arguments.target)
    refuse(given, set(given).difference(FOR_A_POOL), f"cannot change {str(path)!r}, which is a sample file")
    evaluated = Evaluated(Pool.load(path), arguments.target, path.with_name(f"{path.stem}_eval"))
    out = arguments.out or evaluated.usual_out
    try:
        _report(evaluated, arguments, out)
    except OSError as error:
        raise ValueError(f"cannot write the folder {str(out)!r}: {error.strerror or error}") from error


def _report_new_pool(evaluated: Evaluated, arguments: argparse.Namespace, out: Path) -> None:
    """Report on a pool that was just sampled, which is kept beside the report's folder until that is written."""
    # The figures may fill the disk, and whatever ends the report would take the pool along.
    kept = out.with_name(f"{out.name}.sampled.npz")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        evaluated.pool.save(kept)
        _report(evaluated, arguments, out)
    except OSError as error:
        again = vpo_command("eval", str(kept), "--out", str(out))
        way_out = f"; what was sampled is kept, so give {again}" if kept.is_file() else ""
        raise ValueError(f"cannot write the folder {str(out)!r}: {error.strerror or error}{way_out}") from error
    kept.unlink()


def _report(evaluated: Evaluated, arguments: argparse.Namespace, out: Path) -> None:
    from vpo_agent.report.evaluation import evaluate_pool

    text = evaluate_pool(evaluated.pool, out, k=arguments.k, threshold=arguments.threshold, name=evaluated.name)
    print(f"{text}\n{out}/ holds pool.npz, eval.json, eval.md with all measures, and the figures")


def _unused(out: Path, pool: Pool) -> Path:
    """Return ``out``, or with a number after it the first folder without an evaluation of other settings."""
    for number in count(1):
        folder = out if number == 1 else out.with_name(f"{out.name}_{number}")
        if not (folder / "pool.npz").is_file() or _may_be_replaced(folder / "pool.npz", pool):
            break
    return folder


def _may_be_replaced(path: Path, pool: Pool) -> bool:
    """Return whether a sample file is of the same shape and settings as ``pool``, or damaged."""
    from vpo_agent.measure.pool import Pool

    def settings(pool: Pool) -> str:
        source = {name: value for name, value in pool.source.items() if name != "usage"}
        return json.dumps([pool.status.shape, source], sort_keys=True, default=str)

    try:
        return settings(Pool.load(path)) == settings(pool)
    except ValueError:
        return True


def refuse(given: Mapping[str, Any], names: Collection[str], reason: str) -> None:
    """Raise a ValueError if one of these arguments is given."""
    for name in given:
        if name in names:
            shown = repr(given[name]) if name == "target" else f"--{name.replace('_', '-')}"
            raise ValueError(f"{shown} {reason}: leave it out")


def _sampling_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    names = {"eval_prompts": "prompts"}
    return {names.get(name, name): value for name, value in given.items() if name not in FOR_A_POOL or name == "k"}


def _task_name(env: str) -> str:
    return env.rsplit("/", 1)[-1].split("-")[0].lower()


def _sample(arguments: argparse.Namespace, given: Mapping[str, Any]) -> Evaluated:
    """Sample a pool from a run or model."""
    from vpo_agent.config import is_run
    from vpo_agent.policy.downloads import check_model
    from vpo_agent.runs.targets import find_model, target_name

    target, sampling = arguments.target, _sampling_settings(given)
    if not is_run(Path(target)):
        model = find_model(target)
        if "env" in sampling:
            check_model(model)
    from vpo_agent.runs.pools import DEFAULTS, sample_model, sample_run

    arguments.k = arguments.k or DEFAULTS["k"]
    if is_run(Path(target)):
        pool = sample_run(Path(target), sampling)
        return Evaluated(pool, target, Path(target) / f"eval_{pool.source['split']}_step_{pool.source['step']:06d}")
    pool = sample_model(target, sampling)
    name = target_name(target).rpartition("/")[2]
    return Evaluated(pool, target, Path("runs") / f"eval_{_task_name(str(pool.source['env']))}_{name}")


def add_endpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`open_endpoint` reads."""
    add = parser.add_argument_group("endpoint", "a model behind an OpenAI-compatible endpoint, instead of a target")
    add.add_argument("--endpoint", metavar="URL", help="base of the API, such as http://127.0.0.1:8000/v1")
    add.add_argument("--model", metavar="NAME", help="name of the model there")
    add.add_argument(
        "--api",
        choices=["chat", "completions"],
        help="chat, or completions for prompts without a chat template (default: chat)",
    )
    add.add_argument(
        "--api-key-env", metavar="VARIABLE", help="environment variable that holds the key (default: no key)"
    )
    add.add_argument(
        "--concurrency", type=at_least(1, 1024), metavar="N", help="requests at the same time (default: 8)"
    )
    add.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="seconds without a byte after which a request fails (default: 300)",
    )
    add.add_argument(
        "--reply-timeout",
        type=_seconds,
        metavar="S",
        help="seconds that a try of a request may take on average, even if bytes keep coming (default: "
        f"{REPLY_S:g}, or --timeout if longer)",
    )
    add.add_argument("--retries", type=at_least(0), metavar="N", help="further tries of a failed request (default: 7)")


def open_endpoint(arguments: argparse.Namespace, journal: Path) -> EndpointPolicy:
    """Return the model that the options name; its answers are kept in the file ``journal``."""
    from vpo_envs.endpoint import Client

    key, variable = None, arguments.api_key_env
    if variable is not None:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise ValueError(f"--api-key-env {variable}: this environment variable is not set")
    options: dict[str, Any] = {"key": key, "key_name": variable or "--api-key-env"}
    options["whole"] = arguments.reply_timeout or max(REPLY_S, arguments.timeout or 0)
    if arguments.timeout is not None:
        options["timeout"] = arguments.timeout
    if arguments.retries is not None:
        options["retries"] = arguments.retries
    client = Client(arguments.endpoint, **options)
    # An endpoint that is down is found before anything is loaded; the journal may hold all answers that are asked for.
    cards = client.models() if arguments.model is None or not journal.exists() else []
    if arguments.model is None:
        names = ", ".join(str(card.get("id")) for card in cards[:10])
        raise ValueError(f"--endpoint needs --model, a name{f' such as {names}' if names else ' of a model there'}")
    from vpo_agent.rollouts.endpoint import EndpointPolicy

    return EndpointPolicy(
        client,
        arguments.model,
        chat=arguments.api != "completions",
        thinking=arguments.thinking,
        concurrency=arguments.concurrency or 8,
        journal=journal,
    )


def unfinished(out: Path) -> Path:
    """Return the file that keeps the answers for the folder ``out`` until it is written."""
    return out.with_name(f"{out.name}.unfinished.jsonl")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return seconds
