"""Mazes: generator, simulator, exact front, and the two environments."""

from vpo_envs.tasks.maze.env import MazeEnv
from vpo_envs.tasks.maze.generate import PRESETS, MazeConfig
from vpo_envs.tasks.maze.lanes import LanesConfig
from vpo_envs.tasks.maze.routes import MazeOutcome
from vpo_envs.tasks.maze.steps import MazeStepsEnv
from vpo_envs.tasks.maze.task import MazeTask

__all__ = ["PRESETS", "LanesConfig", "MazeConfig", "MazeEnv", "MazeOutcome", "MazeStepsEnv", "MazeTask"]
