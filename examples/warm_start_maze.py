"""Make the bundled tiny model: a small Qwen3 warm-started on demonstrations of the embedded maze.

    python examples/warm_start_maze.py --out runs/tiny --steps 600

The tokenizer has one word per cell of the compact prompt and one per move with the cell it leads to. Most demonstrated
routes are shortest ones to the exit: they pass gold and diamonds only by chance. Training stops early on purpose, to
leave something for reinforcement learning to learn.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from vpo_agent import LMPolicy
from vpo_agent.learning.warm_start import small_model, warm_start, word_tokenizer
from vpo_envs import MazeEnv, MazeTask
from vpo_envs.tasks.maze.demonstrations import random_routes
from vpo_envs.tasks.maze.task import MOVES, SYMBOLS
from vpo_envs.tasks.maze.text import COLUMNS
from vpo_envs.text import answer_tags

MAX_GRID = 9
MAX_BUDGET = 64
MAX_ANSWERS = 8
ANSWERS = (1, 2, 3, 3, 3, 5)
"""Answers per demonstrated response, drawn uniformly from these."""
DETOURS = 0.4
"""Share of the demonstrated routes that go through a random waypoint; the others take a shortest path to the exit."""


class ShortRoutes(MazeEnv):
    """The maze with demonstrations that rarely take detours."""

    def demonstrations(self, task: MazeTask, rng: np.random.Generator, num_answers: int) -> list[str]:
        return [self.write_answer(task, route) for route in random_routes(task, rng, num_answers, detours=DETOURS)]


def vocabulary() -> list[str]:
    """Return the words of compact maze prompts up to 9×9 and of their answers."""
    cells = [f"{COLUMNS[c]}{r + 1}" for r in range(MAX_GRID) for c in range(MAX_GRID)]
    words = [tag for m in (1, MAX_ANSWERS) for pair in answer_tags(m) for tag in pair] + ["budget", "answers"]
    words += [str(number) for number in range(1, MAX_BUDGET + 1)]
    words += [f"{cell}{symbol}" for cell in cells for symbol in SYMBOLS]
    return words + [f"{move}{cell}" for cell in cells for move in MOVES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to save the model in")
    parser.add_argument("--steps", type=int, default=600, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="demonstrations per step (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="peak rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and data (default: %(default)s)")
    chosen = parser.parse_args()

    # A data stream of its own: reinforcement learning starts from mazes that the model has not seen.
    env = ShortRoutes(preset="embedded-easy", prompt_style="compact", data_seed=1_000_000 + chosen.seed)
    tokenizer = word_tokenizer(vocabulary())
    policy = LMPolicy(small_model(tokenizer, seed=chosen.seed), tokenizer)
    start = time.perf_counter()

    def report(step: int, loss: float) -> None:
        if step % 20 == 0:
            print(f"step {step}/{chosen.steps}  loss {loss:.4f}  {time.perf_counter() - start:.0f} s", flush=True)

    recipe = {name: value for name, value in vars(chosen).items() if name != "out"}
    warm_start(policy, env, **recipe, answers=ANSWERS, report=report)
    policy.save(chosen.out)
    (chosen.out / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")
    print(f"saved to {chosen.out}")


if __name__ == "__main__":
    main()
