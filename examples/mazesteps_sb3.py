"""Walk a maze with PPO of Stable-Baselines3, for one weighting of the objectives: a minute on a CPU.

pip install -e '.[rl]'
python examples/mazesteps_sb3.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import gymnasium as gym
import numpy as np
from mo_gymnasium.wrappers import LinearReward

import vpo_envs  # noqa: F401  # registers the environments
from vpo_agent.command.parser import exit_status
from vpo_envs.common.libraries import check_package

WEIGHTS = np.array([0.1, 0.5, 0.2, 0.2])
"""Of completion, gold, diamonds and avoided lava."""

KNOBS = {"size": 5, "slack": 6, "zone_radius": 1, "gold": (2, 2), "diamonds": (2, 2), "lava": (1, 2), "opened": (8, 12)}
"""Small enough that random moves find the exit in one episode of sixty; in larger mazes they hardly ever do."""


def make(render_mode: str | None = None) -> LinearReward:
    """One maze, with rewards as things are collected; the wrapper makes a number of each vector."""
    arguments = {"difficulty": KNOBS, "index": 5, "reward_timing": "collected", "render_mode": render_mode}
    return LinearReward(gym.make("vpo/MazeSteps-v0", **arguments), weight=WEIGHTS)


def walk(env: LinearReward, choose: Callable[[np.ndarray], int]) -> float:
    """Walk until the episode ends, and return the sum of the rewards."""
    observation, _ = env.reset()
    total, over = 0.0, False
    while not over:
        observation, reward, over, _, _ = env.step(choose(observation))
        total += float(reward)
    return total


def main(steps: int = 8000) -> tuple[float, float, float]:
    """Train; return three mean returns: of random moves, of the policy, and the highest possible."""
    check_package("stable_baselines3", "rl", "this example")
    from stable_baselines3 import PPO

    env = make(render_mode="ansi")
    env.action_space.seed(0)
    by_chance = float(np.mean([walk(env, lambda _: env.action_space.sample()) for _ in range(200)]))
    model = PPO("MlpPolicy", make(), n_steps=256, seed=0, device="cpu").learn(steps)
    learned = walk(env, lambda observation: int(model.predict(observation, deterministic=True)[0]))
    optimum = max(float(WEIGHTS @ vector) for vector in env.unwrapped.pareto_front())
    print(env.render())
    print(f"return after {steps} steps {learned:.3f}; random moves {by_chance:.3f}, exact optimum {optimum:.3f}")
    return by_chance, learned, optimum


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8000, help="moves to learn from (default: 8000)")
    sys.exit(exit_status(partial(main, parser.parse_args().steps)))
