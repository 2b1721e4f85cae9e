"""Registers the environments with Gymnasium under the namespace ``vpo``."""

from __future__ import annotations

import gymnasium as gym


def register_env(env_id: str, entry_point: str, *, vectorized: bool = True, **kwargs: object) -> None:
    """Register a vector-reward environment with Gymnasium; registering an id again replaces it.

    Gymnasium's passive checker warns at every vector reward, so it is switched off; ``max_episode_steps`` stays unset,
    since a time limit of one step would mark every episode truncated.

    Args:
        env_id: Such as ``"vpo/Maze-v0"``.
        entry_point: ``"module:Class"``; a string, so that the spec survives JSON.
        vectorized: Whether ``gym.make_vec`` takes :class:`~vpo_envs.vector.TextVectorEnv` for it, which is for text
            environments alone.
        **kwargs: Default arguments of the constructor, JSON values.
    """
    gym.registry.pop(env_id, None)
    gym.register(
        id=env_id,
        entry_point=entry_point,
        vector_entry_point=f"vpo_envs.vector:{entry_point.replace(':', '.')}" if vectorized else None,
        disable_env_checker=True,
        kwargs=dict(kwargs),
    )


def register_envs() -> None:
    """Register every environment of the suite."""
    register_env("vpo/Maze-v0", "vpo_envs.tasks.maze.env:MazeEnv")
    register_env("vpo/MazeSteps-v0", "vpo_envs.tasks.maze.steps:MazeStepsEnv", vectorized=False)
    register_env("vpo/Tools-v0", "vpo_envs.tasks.tools.env:ToolsEnv")
    register_env("vpo/MuSiQue-v0", "vpo_envs.tasks.musique.env:MuSiQueEnv")
    register_env("vpo/EUREQA-v0", "vpo_envs.tasks.eureqa.env:EUREQAEnv")
    register_env("vpo/Code-v0", "vpo_envs.tasks.code.env:CodeEnv")
