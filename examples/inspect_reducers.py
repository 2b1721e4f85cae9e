"""Compare inspect-ai's reducers with VPO Gym's reducers for sets of answers: the table of docs/adapters.md.

    pip install -e '.[inspect]'
    python examples/inspect_reducers.py

Every reducer gets the same eight varied answers to each of 100 mazes. No model is needed.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np

from vpo_agent.command.parser import exit_status
from vpo_envs.common.libraries import check_package
from vpo_envs.pareto import set_utility, spread_weights
from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers

ENV, PRESET = "vpo/Maze-v0", {"preset": "conflict"}
MAZES, ANSWERS = 100, 8


async def compare() -> None:
    check_package("inspect_ai", "inspect", "this example")
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score, Target, max_score, mean_score, pass_at
    from inspect_ai.solver import TaskState

    from vpo_envs.adapters.inspect import UTILITY, best_at, reward_vector, utility_at

    reducers = {
        "mean": mean_score(),
        "max": max_score(),
        f"pass_at({ANSWERS})": pass_at(ANSWERS),
        f"best_at({ANSWERS})": best_at(ANSWERS),
        f"utility_at({ANSWERS})": utility_at(ANSWERS),
    }
    env = make_text_env(ENV, **PRESET, split="test")
    names = env.objective_names
    tasks = [env.task(index) for index in range(MAZES)]
    scorer = reward_vector(ENV, PRESET, 1, [1 / len(names)] * len(names))

    async def score(task, answer: str) -> Score:
        output = ModelOutput.from_content("mockllm/model", format_answers([answer]))
        metadata = {"task": task.model_dump(mode="json")}
        state = TaskState("mockllm/model", 0, 1, input="", messages=[], output=output, metadata=metadata)
        return await scorer(state, Target(""))

    scores = []
    for index, task in enumerate(tasks):
        answers = env.demonstrations(task, np.random.default_rng(index), ANSWERS)
        scores.append([await score(task, answer) for answer in answers])
    vectors = np.array([[[one.value[name] for name in names] for one in of_maze] for of_maze in scores])

    print(f"| reducer | {' | '.join(names)} | mean of the four | `utility` |")
    print("|---" * (len(names) + 3) + "|")
    for reducer, reduce in reducers.items():
        found = [reduce(of_maze).value for of_maze in scores]
        means = [np.mean([value[name] for value in found]) for name in (*names, UTILITY)]
        shown = [*(f"{one:.2f}" for one in means[:-1]), f"{np.mean(means[:-1]):.3f}", f"{means[-1]:.3f}"]
        print(f"| `{reducer}` | {' | '.join(shown)} |")
    fronts = [np.array([point.vector for point in env.front(task)]) for task in tasks]
    best = np.mean([front.mean(axis=1).max() for front in fronts])
    utility = np.mean([set_utility(front, spread_weights(len(names))) for front in fronts])
    print("| exact front |" + " |" * len(names), f"{best:.3f} | {utility:.3f} |")
    above = (vectors.max(axis=1).mean(axis=1) > vectors.mean(axis=2).max(axis=1) + 1e-6).sum()
    print(f"`max`: better than every answer in {above} of the {MAZES} mazes")
    print(f"`pass_at`: {(vectors == 1).all(axis=2).sum()} answers were perfect in all")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: asyncio.run(compare())))
