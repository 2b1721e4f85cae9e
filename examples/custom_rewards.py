"""Your own rewards: a new decomposition is a subclass with another tuple of objectives.

    python examples/custom_rewards.py --name frugal
    vpo eval runs/frugal --import examples/custom_rewards.py

The frugal maze rewards reaching the exit in few steps in place of avoiding lava, which small mazes do not have.
Registered under an id of its own, it works wherever the maze does: in Gymnasium, with its exact Pareto front, and in
the trainer. The commands of ``vpo`` import this file only if you ask for it; without a run, name it with the id:

    vpo envs examples/custom_rewards.py:custom/FrugalMaze-v0
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from vpo_agent.command.train import train_script
from vpo_agent.presets import TASKS
from vpo_envs import MazeCompactEnv, MazeEnv, Objective, register_env


class FrugalMaze(MazeCompactEnv):
    """The small maze, where the exit counts by itself and short routes score something too."""

    objectives = (
        *MazeEnv.objectives[:3],  # completion, gold and diamond
        Objective("brevity", "Reaching the exit in few steps", lambda outcome: 1 - outcome.steps / outcome.max_steps),
    )


register_env("custom/FrugalMaze-v0", f"{__name__}:FrugalMaze")

PRESETS = {"few-steps": {**TASKS["maze"]["compact"], "env": "custom/FrugalMaze-v0", "steps": 5, "eval_prompts": 20}}


def show() -> None:
    """Show the front of one maze, and the reward of a response with two of its routes."""
    env: Any = gym.make("custom/FrugalMaze-v0", num_answers=2)
    _, info = env.reset(seed=7)
    task = env.unwrapped.task_type.model_validate(info["task"])
    front = env.unwrapped.front(task)
    print("objectives:", ", ".join(info["objectives"]))
    print(f"exact front of this maze: {len(front)} reward vectors")
    for point in front[:2]:
        print("  ", " ".join(f"{value:.2f}" for value in point.vector), " from ", point.answer)
    response = "\n".join(f"<answer_{i}>{point.answer}</answer_{i}>" for i, point in enumerate(front[:2], start=1))
    _, reward, *_ = env.step(response)
    print("reward of a response with these two answers:", reward.round(2), "\n")


if __name__ == "__main__":
    show()
    train_script(__doc__ or "", PRESETS)
