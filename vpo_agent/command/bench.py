"""``vpo bench``: one number for a model on the fixed tasks of a track."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vpo_agent.command.evaluate import NOT_FOR_AN_ENDPOINT, add_endpoint_options, open_endpoint, refuse, unfinished
from vpo_agent.command.parser import DTYPE_HELP, Commands, Failed, add_trust_option, at_least
from vpo_agent.runs.continuing import vpo_command, when_stopped

if TYPE_CHECKING:
    from vpo_agent.bench.sample import Plan


def add_parser(commands: Commands) -> None:
    """Add ``vpo bench``."""
    parser = commands.add_parser(
        "bench",
        help="score a model on the fixed tasks of bench-v2",
        description="Score the sets of three answers that a model gives on fixed tasks. A score of 0 is what a model "
        "can reach without reading the task; the best three answers score 1. The same command continues an "
        "interrupted bench.",
    )
    add = parser.add_argument
    add(
        "models",
        nargs="*",
        metavar="MODEL",
        help="run, model (bundled, folder, GGUF file, Hub name), optimum for the exact best answers, or blind for "
        "answers that do not read the task; TASK=MODEL is for one task (default: the bundled base of each task)",
    )
    add(
        "--track",
        choices=["compact", "natural"],
        help="compact for tiny models, natural for all others (default: compact, or natural behind an --endpoint)",
    )
    add(
        "--seed",
        type=at_least(0),
        default=0,
        metavar="N",
        help="seed of the prompts; another seed gives a private score (default: 0)",
    )
    add("--name", metavar="TEXT", help="name of the entry (default: the names of the models)")
    add("--device", metavar="TEXT", help="auto, cpu, cuda or cuda:0 (default: auto)")
    add(
        "--dtype",
        metavar="TEXT",
        help=f"{DTYPE_HELP} (default: auto, or as in the entry to verify)",
    )
    add(
        "--sample-batch",
        type=at_least(1),
        metavar="N",
        help="responses sampled at the same time, at most (default: 1024)",
    )
    add(
        "--price",
        type=_price,
        metavar="IN,OUT",
        help="prices of a million tokens read and of a million tokens generated, in any currency",
    )
    add(
        "--verify",
        type=Path,
        metavar="FILE",
        help="sample the entry in FILE again and say by how much its scores differ",
    )
    add("--out", type=Path, metavar="FOLDER", help="output folder (default: runs/bench_TRACK_NAME)")
    add_trust_option(parser)
    add_endpoint_options(parser)
    parser.set_defaults(run=run, thinking=None)


def run(arguments: argparse.Namespace) -> None:
    """Score a model, or verify an entry."""
    if arguments.verify is not None:
        _verify(arguments)
        return
    with when_stopped(f"finished tasks are kept, and the same command continues: {vpo_command(*arguments.argv)}"):
        from vpo_agent.bench.entry import entry_table, headline, make_entry
        from vpo_agent.bench.sample import sample_track
        from vpo_agent.runs.whole_files import write_text_atomically

        track = arguments.track or ("compact" if arguments.endpoint is None else "natural")
        name = _entry_name(arguments)
        folder = re.sub(r"[^\w.=-]+", "_", f"bench_{track}_{name}")
        out = arguments.out or Path("runs") / folder
        plan = _plan(arguments, track, arguments.seed, arguments.models, out)
        kept = "What is in the output folder already is not sampled again."
        print(f"{_cost(plan, arguments.price)} {kept}", flush=True)
        pools = sample_track(plan, out, lambda line: print(line, file=sys.stderr, flush=True))
        entry = make_entry(plan, pools, name)
        write_text_atomically(out / "entry.json", json.dumps(entry, indent=1, allow_nan=False) + "\n")
        if plan.endpoint is not None:
            plan.endpoint.forget()
        print(f"\n{entry_table(entry)}\n\n{headline(entry)}\n{out}/ holds entry.json and the answers to each task")


def _entry_name(arguments: argparse.Namespace) -> str:
    """Return the name of the entry: from the command line, or else from its models."""
    from vpo_agent.runs.targets import target_name

    if arguments.name or arguments.model:
        return str(arguments.name or arguments.model)
    names = []
    for model in arguments.models:
        task, equals, target = model.rpartition("=")
        names.append(f"{task}{equals}{target_name(target)}")
    return " ".join(names) or "bundled bases"


def _plan(arguments: argparse.Namespace, track: str, seed: int, models: list[str], out: Path) -> Plan:
    from vpo_agent.bench.sample import make_plan

    options = {name: getattr(arguments, name) for name in ("device", "dtype", "sample_batch")}
    hardware = {name: value for name, value in options.items() if value is not None}
    endpoint = None
    if arguments.endpoint is not None:
        given = {**({"target": models[0]} if models else {}), **hardware}
        refuse(given, NOT_FOR_AN_ENDPOINT, "does not apply to a model behind an endpoint")
        endpoint = open_endpoint(arguments, unfinished(out))
    elif arguments.model is not None:
        raise ValueError("--model applies only to a model behind an --endpoint: give a local model without --model")
    return make_plan(track, seed, models, endpoint, hardware)


def _cost(plan: Plan, price: tuple[float, float] | None) -> str:
    """Say what the sampling takes, before it starts."""
    size = plan.size()
    parts = [
        f"{len(plan.tasks)} tasks, {size['prompts']:,} prompts, {size['responses']:,} responses of three answers",
        f"about {size['read']:,} tokens read and at most {size['generated']:,} generated",
    ]
    if price is not None:
        price_read, price_generated = price
        total = (size["read"] * price_read + size["generated"] * price_generated) / 1e6
        parts.append(f"at most {total:,.2f} at these prices")
    return f"{'; '.join(parts)}."


def _price(text: str) -> tuple[float, float]:
    try:
        read, generated = map(float, text.split(","))
    except ValueError:
        read = generated = math.nan
    if not (0 <= read < math.inf and 0 <= generated < math.inf):
        raise argparse.ArgumentTypeError(f"must be two prices such as 0.15,0.60, got {text!r}")
    return read, generated


def _verify(arguments: argparse.Namespace) -> None:
    """Sample an entry again; raise Failed if its prompts or models have changed, or a number differs too much."""
    from vpo_agent.bench.entry import TOLERANCE, differences, headline, make_entry, read_entry
    from vpo_agent.bench.sample import WRITTEN, sample_track, weights_hash
    from vpo_agent.bench.tasks import digest
    from vpo_agent.policy.downloads import check_saved_model

    entry = read_entry(arguments.verify)
    if arguments.endpoint is None:
        arguments.dtype = arguments.dtype or entry["sampling"]["dtype"]
    elif entry["models"]:
        raise ValueError(f"{str(arguments.verify)!r} is an entry of local models: leave --endpoint out")
    models = list(arguments.models)
    if not models:
        targets = {task: model["target"] for task, model in entry["models"].items()}
        models = [f"{task}={target}" for task, target in targets.items()]
        for target in set(targets.values()).difference(WRITTEN):
            check_saved_model(target, f"the entry {str(arguments.verify)!r}")
    if not models and arguments.endpoint is None:
        raise ValueError(f"{str(arguments.verify)!r} was sampled behind an endpoint: give --endpoint and --model")
    with tempfile.TemporaryDirectory(prefix="vpo-bench-") as folder:
        out = arguments.out or Path(folder) / "again"
        if any(out.glob("*.npz")) or unfinished(out).exists():
            raise ValueError(
                f"{str(out)!r} holds answers already, and --verify samples all of them: give another --out"
            )
        plan = _plan(arguments, entry["track"], entry["seed"], models, out)
        if digest(plan.prompts) != entry["prompts"]:
            raise Failed(
                f"the installed version has other prompts than {str(arguments.verify)!r}: install the version that "
                "wrote the entry"
            )
        for task, model in entry["models"].items():
            if weights_hash(plan.models[task]) != model["weights"]:
                raise Failed(
                    f"{task}: {plan.models[task]!r} has other weights than the entry states: give the model of the "
                    f"entry, as {task}=MODEL"
                )
        print(_cost(plan, arguments.price), flush=True)
        pools = sample_track(plan, out, lambda line: print(line, file=sys.stderr, flush=True))
        again = make_entry(plan, pools, entry["name"])
    by_name = differences(entry, again)
    print(f"{headline(entry)}\nscore when sampled again: {again['score']['mean']:.3f}; differences:")
    for name in ("score", *entry["tasks"]):
        print(f"  {name}: {by_name[name] + 0:+.4f}")
    too_large = [f"{name} differs by {value:+.4f}" for name, value in by_name.items() if abs(value) > TOLERANCE]
    if too_large:
        raise Failed(f"not reproduced: {', '.join(too_large)}, and the tolerance is {TOLERANCE}")
    print(f"reproduced: no number differs by more than {TOLERANCE}, and no count by more than that share")
