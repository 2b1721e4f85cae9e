"""Time a training step where the environment replies, for each token, against a step of a single turn.

The compact archive with its base, and compact MuSiQue with its own: models of one size, and as many prompts, rollouts
and answers. Pairs alternate; the figure is the median of the ratios of processor seconds for each token of prompts,
responses and replies.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

from vpo_agent import Trainer, make_config
from vpo_agent.presets import TASKS


def seconds_for_each_token(trainer: Trainer) -> float:
    """Take a step and return its seconds for each token; those of a prompt count once, as they are computed."""
    start = time.process_time()
    prepared = trainer.prepare()
    trainer.learn(prepared)
    seconds = time.process_time() - start
    samples = prepared.rollouts.samples
    return seconds / float(samples.mask.sum() + samples.prompt_mask.sum())


def main() -> None:
    """Print the median ratio and its quartiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="pairs of steps (default: 10)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"steps": arguments.pairs + 1, "runs_dir": folder, "device": "cpu"}
        replying, single = (
            Trainer(make_config({**TASKS[task]["compact"], **settings, "name": task}))
            for task in ("archive", "musique")
        )
        ratios = []
        for pair in range(arguments.pairs + 1):
            first, second = (replying, single) if pair % 2 else (single, replying)
            seconds = {id(first): seconds_for_each_token(first), id(second): seconds_for_each_token(second)}
            if pair:  # The first pair warms up.
                ratios.append(seconds[id(replying)] / seconds[id(single)])
    lower, median, upper = statistics.quantiles(ratios, n=4)
    print(
        f"seconds for each token, with replies / in a single turn: {median:.2f} (quartiles {lower:.2f} and {upper:.2f})"
    )


if __name__ == "__main__":
    main()
