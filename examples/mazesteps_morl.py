"""Walk a maze with Pareto Conditioned Networks of morl-baselines, for many trade-offs at once: two minutes on a CPU.

pip install -e '.[rl]'
python examples/mazesteps_morl.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import chdir
from functools import partial

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import FlattenObservation

import vpo_envs  # noqa: F401  # registers the environments
from vpo_agent.command.parser import exit_status
from vpo_envs.common.libraries import check_package
from vpo_envs.pareto import set_utility, spread_weights

KNOBS = {"size": 5, "slack": 6, "zone_radius": 1, "gold": (2, 2), "diamonds": (2, 2), "lava": (1, 2), "opened": (8, 12)}
"""Small enough that random moves find the exit in one episode of sixty; in the 9×9 maze they never do."""


def make() -> FlattenObservation:
    """One maze, with rewards as things are collected; PCN reads a flat observation."""
    maze = {"difficulty": KNOBS, "index": 5, "reward_timing": "collected"}
    return FlattenObservation(gym.make("vpo/MazeSteps-v0", **maze))


def random_returns(env: FlattenObservation, episodes: int) -> np.ndarray:
    returns = np.zeros((episodes, env.unwrapped.reward_dim))
    for total in returns:
        env.reset()
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.action_space.sample())
            total += reward
    return returns


def main(steps: int = 20000, seed: int = 0) -> tuple[float, float, float]:
    """Train; return the expected utility of random walks, of equally many of the policy, and of the exact front."""
    check_package("morl_baselines", "rl", "this example")
    from morl_baselines.multi_policy.pcn.pcn import PCN

    torch.manual_seed(seed)
    env = make()
    env.reset(seed=seed)
    env.action_space.seed(seed)
    d = env.unwrapped.reward_dim
    # The last number scales the horizon, which is at most the step budget.
    agent = PCN(env, np.array([1.0] * d + [0.1]), learning_rate=2e-3, log=False, seed=seed, device="cpu")
    ones = np.ones(d, dtype=np.float32)
    # It learns from random walks at first, of which few reach the exit.
    episodes = {"num_er_episodes": 500, "max_buffer_size": 500, "num_step_episodes": 10}
    effort = {"num_model_updates": 20, "num_points_pf": 1}
    # PCN saves its network in the current folder, a thousand times.
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        agent.train(steps, eval_env=make(), ref_point=np.zeros(d), max_return=ones, **episodes, **effort)
    learned = np.array(agent.evaluate(make(), ones, n=10)[0])
    weights = spread_weights(d)
    walks = (random_returns(env, 10), learned, np.array(env.unwrapped.pareto_front()))
    by_chance, reached, front = (set_utility(points, weights) for points in walks)
    print(
        "returns of the policy",
        env.unwrapped.maze.objective_names,
        np.unique(learned.round(2), axis=0).tolist(),
        sep="\n",
    )
    print(f"expected utility {reached:.3f}; of random moves {by_chance:.3f}, of the exact front {front:.3f}")
    return by_chance, reached, front


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20000, help="moves to learn from (default: 20000)")
    sys.exit(exit_status(partial(main, parser.parse_args().steps)))
