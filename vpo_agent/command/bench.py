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

from vpo_agent.command.evaluate import add_endpoint_options, open_endpoint, unfinished
from vpo_agent.command.parser import Commands, Failed, at_least
from vpo_agent.runs.loop import vpo_command, when_stopped

if TYPE_CHECKING:
    from vpo_agent.bench.sample import Plan


def add_parser(commands: Commands) -> None:
    """Add ``vpo bench``."""
    parser = commands.add_parser(
        "bench",
        help="score a model on the fixed tasks of bench-v1",
        description="Score the sets of three answers that a model gives on fixed tasks: 0 is what answers earn that "
        "do not read the task, 1 the best three answers there are. An interrupted bench in --out is continued.",
    )
    add = parser.add_argument
    about = "a run, a model (bundled, folder, GGUF file, Hub name) or optimum, for all tasks or as TASK=MODEL for one; "
    add("models", nargs="*", metavar="MODEL", help=f"{about}by default the bundled base of each task")
    add("--track", choices=["compact", "natural"], help="compact for tiny models, natural for all others, which is the "
        "default behind an --endpoint")  # fmt: skip
    add("--seed", type=at_least(0), default=0, metavar="N", help="other instances, for a private score (default: 0)")
    add("--name", help="name of the entry (default: that of the models)")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:0")
    add("--price", type=_price, metavar="IN,OUT", help="prices of a million tokens, read and generated")
    add("--verify", type=Path, metavar="FILE", help="sample an entry again and say by how much it differs")
    add("--out", type=Path, metavar="FOLDER", help="output folder (default: runs/bench_TRACK_NAME)")
    add_endpoint_options(parser)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> None:
    """Score a model, or verify an entry."""
    if chosen.verify is not None:
        _verify(chosen)
        return
    with when_stopped(f"finished tasks are kept, and the same command continues: {vpo_command(*chosen.argv)}"):
        from vpo_agent.bench.entry import entry_table, headline, make_entry
        from vpo_agent.bench.sample import sample_track
        from vpo_agent.runs.checkpoints import write_text_atomically
        from vpo_agent.runs.targets import target_name

        track = chosen.track or ("compact" if chosen.endpoint is None else "natural")
        split = (model.rpartition("=") for model in chosen.models)
        named = [f"{task}{equals}{target_name(one)}" for task, equals, one in split]
        name = chosen.name or chosen.model or " ".join(named) or "bundled bases"
        folder = re.sub(r"[^\w.=-]+", "_", f"bench_{track}_{name}")
        out = chosen.out or Path("runs") / folder
        plan = _plan(chosen, track, chosen.seed, chosen.models, out)
        kept = " What is in the output folder already is not sampled again."
        print(_cost(plan, chosen.price) + kept, flush=True)
        pools = sample_track(plan, out, lambda line: print(line, file=sys.stderr, flush=True))
        entry = make_entry(plan, pools, name)
        write_text_atomically(out / "entry.json", json.dumps(entry, indent=1, allow_nan=False) + "\n")
        if plan.endpoint is not None:
            plan.endpoint.forget()
        print(f"\n{entry_table(entry)}\n\n{headline(entry)}\n{out}/ holds entry.json and the answers to each task")


def _plan(chosen: argparse.Namespace, track: str, seed: int, models: list[str], out: Path) -> Plan:
    from vpo_agent.bench.sample import make_plan

    endpoint = None
    if chosen.endpoint is not None:
        if chosen.models:
            raise ValueError(f"{chosen.models[0]!r} does not apply to a model behind an endpoint: leave it out")
        endpoint = open_endpoint(chosen, unfinished(out))
    elif chosen.model is not None:
        raise ValueError("--model applies only to a model behind an --endpoint: leave it out")
    return make_plan(track, seed, models, endpoint, chosen.device)


def _cost(plan: Plan, price: tuple[float, float] | None) -> str:
    """Say what the sampling takes, before it starts."""
    size = plan.size()
    told = f"{len(plan.tasks)} tasks, {size['prompts']:,} prompts, {size['responses']:,} responses of three answers"
    told += f"; about {size['read']:,} tokens read and at most {size['generated']:,} generated"
    if price is not None:
        told += f"; at most {(size['read'] * price[0] + size['generated'] * price[1]) / 1e6:,.2f} at these prices"
    return f"{told}."


def _price(text: str) -> tuple[float, float]:
    try:
        read, generated = map(float, text.split(","))
    except ValueError:
        read = generated = math.nan
    if not (0 <= read < math.inf and 0 <= generated < math.inf):
        raise argparse.ArgumentTypeError(f"must be two prices such as 0.15,0.60, got {text!r}")
    return read, generated


def _verify(chosen: argparse.Namespace) -> None:
    from vpo_agent.bench.entry import TOLERANCE, differences, headline, make_entry, read_entry
    from vpo_agent.bench.sample import sample_track, weights_hash
    from vpo_agent.bench.tasks import digest

    entry = read_entry(chosen.verify)
    models = chosen.models or [f"{task}={known['target']}" for task, known in entry["models"].items()]
    if not models and chosen.endpoint is None:
        raise ValueError(f"{str(chosen.verify)!r} was sampled behind an endpoint: give --endpoint and --model")
    with tempfile.TemporaryDirectory(prefix="vpo-bench-") as folder:
        out = chosen.out or Path(folder) / "again"
        if any(out.glob("*.npz")) or unfinished(out).exists():
            raise ValueError(
                f"{str(out)!r} holds answers already, and --verify samples all of them: give another --out"
            )
        plan = _plan(chosen, entry["track"], entry["seed"], models, out)
        if digest(plan.prompts) != entry["prompts"]:
            raise Failed(f"the prompts of {str(chosen.verify)!r} are not those of the installed version")
        for task, known in entry["models"].items():
            if weights_hash(plan.models[task]) != known["weights"]:
                raise Failed(f"{task}: the weights of {plan.models[task]!r} are not those that the entry states")
        print(_cost(plan, chosen.price), flush=True)
        pools = sample_track(plan, out, lambda line: print(line, file=sys.stderr, flush=True))
        again = make_entry(plan, pools, entry["name"])
    found = differences(entry, again)
    print(f"{headline(entry)}\nsampled again: {again['score']['mean']:.3f}")
    means = ("score", *entry["tasks"])
    print("\n".join(f"  {name}: {found[name] + 0:+.4f}" for name in means))
    if apart := [f"{name} differs by {value:+.4f}" for name, value in found.items() if abs(value) > TOLERANCE]:
        raise Failed(f"{', '.join(apart)}: more than {TOLERANCE}")
    print(f"reproduced: no number differs by more than {TOLERANCE}, counts as shares")
