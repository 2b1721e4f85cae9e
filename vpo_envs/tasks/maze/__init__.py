"""Mazes: generator, simulator, exact front, and the two environments."""

from vpo_envs.tasks.maze.compact import MazeCompactEnv as MazeCompactEnv
from vpo_envs.tasks.maze.env import MazeEnv as MazeEnv
from vpo_envs.tasks.maze.steps import MazeStepsEnv as MazeStepsEnv
