"""Time of the weights and the advantages of one training batch, on one core.

    python benchmarks/estimators.py

The batch is the paper's: 128 prompts with 8 rollouts of 3 answers and 4 objectives, under 128 weights. The target is
10 ms for weights and advantages together. The paper's formula in plain Python is the reference for speed and result.
"""

from __future__ import annotations

import argparse
import statistics
import timeit
from collections.abc import Callable
from functools import partial
from operator import mul

import numpy as np
import torch

from vpo_agent.estimators import advantages, available_estimators, estimator
from vpo_agent.estimators.weights import WeightSampler, draw_weights


def median_ms(function: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call in milliseconds, after two warm-up calls."""
    return 1e3 * statistics.median(timeit.repeat(function, number=1, repeat=repeats + 2)[2:])


def plain_python(rewards: list[list[list[list[float]]]], weights: list[list[list[float]]]) -> list[list[float]]:
    """Return the VPO advantages (P, G) by the formula of the paper."""
    result = []
    for prompt, draws in zip(rewards, weights, strict=True):
        scores = [
            statistics.fmean(max(sum(map(mul, draw, answer)) for answer in rollout) for draw in draws)
            for rollout in prompt
        ]
        mean, deviation = statistics.fmean(scores), statistics.pstdev(scores)
        result.append([0.0 if deviation < 1e-6 else (score - mean) / (deviation + 1e-6) for score in scores])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    sizes = {"prompts": 128, "rollouts": 8, "answers": 3, "objectives": 4, "weights": 128, "repeats": 50}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size, help=f"default {size}")
    chosen = parser.parse_args()
    torch.set_num_threads(1)

    shape = (chosen.prompts, chosen.rollouts, chosen.answers, chosen.objectives)
    rewards = torch.from_numpy(np.random.default_rng(0).random(shape, dtype=np.float32))
    keys = np.arange(chosen.prompts, dtype=np.uint64)

    def draw(sampler: WeightSampler = "sobol", alpha: float = 1.0) -> torch.Tensor:
        numbers = draw_weights(
            keys, num_objectives=chosen.objectives, num_weights=chosen.weights, sampler=sampler, alpha=alpha
        )
        return torch.from_numpy(numbers)

    print(f"P={shape[0]} G={shape[1]} m={shape[2]} d={shape[3]} K={chosen.weights}, one thread, medians")
    weights = draw()
    print(f"draw_weights, sobol            {median_ms(draw, chosen.repeats):9.2f} ms")
    print(f"draw_weights, iid              {median_ms(lambda: draw('iid'), chosen.repeats):9.2f} ms")
    print(f"draw_weights, sobol, alpha=0.5 {median_ms(lambda: draw(alpha=0.5), max(1, chosen.repeats // 5)):9.2f} ms")
    for method in available_estimators():
        batch = rewards[:, :, :1] if estimator(method).answers == "single" else rewards
        spent = median_ms(partial(advantages, batch, method=method, weights=weights), chosen.repeats)
        print(f"advantages, {method:<18} {spent:9.2f} ms")
    both = median_ms(lambda: advantages(rewards, weights=draw()), chosen.repeats)
    print(f"draw_weights + advantages, vpo {both:9.2f} ms")

    start = timeit.default_timer()
    reference = plain_python(rewards.tolist(), weights.tolist())
    print(f"plain Python, vpo              {1e3 * (timeit.default_timer() - start):9.2f} ms")
    fast = advantages(rewards, weights=weights).advantages.double()
    difference = (fast - torch.tensor(reference, dtype=torch.float64)).abs().max()
    print(f"largest difference of the two advantages {difference.item():.1e}")


if __name__ == "__main__":
    main()
