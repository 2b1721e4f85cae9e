"""Measure the time of the weightings and the advantages of one training batch, on one core.

    python benchmarks/estimators.py

The batch is the paper's: 128 prompts with 8 rollouts of 3 answers and 4 objectives, under 128 weightings. The target is
10 ms for weightings and advantages of VPO together.
"""

from __future__ import annotations

import argparse
import statistics
import timeit
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from vpo_agent.estimators import advantages, available_estimators, estimator
from vpo_agent.estimators.weights import WeightSampler, draw_weights

PROMPTS, ROLLOUTS, ANSWERS, OBJECTIVES, WEIGHTS = 128, 8, 3, 4, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=50, help="repeats of each measurement (default: 50)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    rewards = np.random.default_rng(0).random((PROMPTS, ROLLOUTS, ANSWERS, OBJECTIVES), dtype=np.float32)
    sets = torch.from_numpy(rewards)
    keys = np.arange(PROMPTS, dtype=np.uint64)

    def draw(sampler: WeightSampler = "sobol", alpha: float = 1.0) -> torch.Tensor:
        sizes = {"num_objectives": OBJECTIVES, "num_weights": WEIGHTS}
        return torch.from_numpy(draw_weights(keys, **sizes, sampler=sampler, alpha=alpha))

    def show(what: str, function: Callable[[], object]) -> None:
        """Print the median time of a call, after two warm-up calls."""
        times = timeit.repeat(function, number=1, repeat=repeats + 2)[2:]
        print(f"{what:<31}{1e3 * statistics.median(times):9.2f} ms", flush=True)

    show("draw_weights, sobol", draw)
    show("draw_weights, iid", partial(draw, "iid"))
    show("draw_weights, sobol, alpha=0.5", partial(draw, alpha=0.5))
    weights = draw()
    for method in available_estimators():
        batch = sets[:, :, :1] if estimator(method).answers == "single" else sets
        show(f"advantages, {method}", partial(advantages, batch, method=method, weights=weights))
    show("draw_weights + advantages, vpo", lambda: advantages(sets, weights=draw()))


if __name__ == "__main__":
    main()
