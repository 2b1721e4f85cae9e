"""Your own rewards: a new decomposition is a subclass with another tuple of objectives.

    python examples/custom_rewards.py

The frugal maze adds a fifth objective, reaching the exit in few steps, to the maze's four. Registered under an id of
its own, it works everywhere that the maze does: in Gymnasium, with its exact Pareto front, and in the trainer.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from vpo_agent.command.job import train_and_report
from vpo_agent.command.options import parse_job, run
from vpo_envs import MazeEnv, Objective, register_env


class FrugalMaze(MazeEnv):
    """The maze, where short routes are worth something too."""

    objectives = (
        *MazeEnv.objectives,
        Objective("brevity", "Reaching the exit in few steps", lambda outcome: 1 - outcome.steps / outcome.max_steps),
    )


register_env("custom/FrugalMaze-v0", f"{__name__}:FrugalMaze")

PRESETS: dict[str, dict[str, Any]] = {
    "few-steps": {
        "env": "custom/FrugalMaze-v0",
        "env_kwargs": {"preset": "embedded", "prompt_style": "compact"},
        "model": "tiny-maze",
        "steps": 5,
        "max_new_tokens": 100,
        "learning_rate": 1e-4,
        "kl_coef": 0.0,
        "eval_prompts": 20,
    }
}


def main() -> None:
    """Show one reward vector and the front, then train for a few steps."""
    env: Any = gym.make("custom/FrugalMaze-v0", preset="embedded", num_answers=2)
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
    train_and_report(parse_job(None, description=__doc__ or "", presets=PRESETS, default_preset="few-steps"))


if __name__ == "__main__":
    run(main)
