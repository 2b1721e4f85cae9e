"""Text environments with vector rewards; importing this registers them with Gymnasium.

The other names below are loaded when they are first used, so that a program pays for the tasks that it makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs_data.lazy import lazy_names
from vpo_envs.registration import register_env, register_envs

if TYPE_CHECKING:
    from vpo_envs.checker import CheckFailed, CheckReport, check_vector_env
    from vpo_envs.code import CodeEnv, CodeOutcome, CodeTask, CodeTest
    from vpo_envs.conflict import ConflictReport, objective_conflict
    from vpo_envs.core import (
        AnswerTimeout,
        FrontPoint,
        Objective,
        RewardBatch,
        ScorerFailure,
        Split,
        Status,
        Task,
        UnknownFront,
        Unparsable,
        VectorTextEnv,
    )
    from vpo_envs.data_env import DataTextEnv
    from vpo_envs.eureqa import EUREQAConfig, EUREQAEnv, EUREQAOutcome, EUREQATask
    from vpo_envs.maze import MazeConfig, MazeEnv, MazeOutcome, MazeStepsEnv, MazeTask
    from vpo_envs.musique import MuSiQueConfig, MuSiQueEnv, MuSiQueOutcome, MuSiQueTask
    from vpo_envs.tools import ToolCall, ToolsConfig, ToolsEnv, ToolsOutcome, ToolsTask
    from vpo_envs.vector import TextVectorEnv
    from vpo_envs.wrappers import PreferenceConditioned

_MODULES = {
    "AnswerTimeout": "core",
    "CheckFailed": "checker",
    "CheckReport": "checker",
    "CodeEnv": "code",
    "CodeOutcome": "code",
    "CodeTask": "code",
    "CodeTest": "code",
    "ConflictReport": "conflict",
    "DataTextEnv": "data_env",
    "EUREQAConfig": "eureqa",
    "EUREQAEnv": "eureqa",
    "EUREQAOutcome": "eureqa",
    "EUREQATask": "eureqa",
    "FrontPoint": "core",
    "MazeConfig": "maze",
    "MazeEnv": "maze",
    "MazeOutcome": "maze",
    "MazeStepsEnv": "maze",
    "MazeTask": "maze",
    "MuSiQueConfig": "musique",
    "MuSiQueEnv": "musique",
    "MuSiQueOutcome": "musique",
    "MuSiQueTask": "musique",
    "Objective": "core",
    "PreferenceConditioned": "wrappers",
    "RewardBatch": "core",
    "ScorerFailure": "core",
    "Split": "core",
    "Status": "core",
    "Task": "core",
    "TextVectorEnv": "vector",
    "ToolCall": "tools",
    "ToolsConfig": "tools",
    "ToolsEnv": "tools",
    "ToolsOutcome": "tools",
    "ToolsTask": "tools",
    "UnknownFront": "core",
    "Unparsable": "core",
    "VectorTextEnv": "core",
    "check_vector_env": "checker",
    "objective_conflict": "conflict",
}

__all__ = [
    "AnswerTimeout",
    "CheckFailed",
    "CheckReport",
    "CodeEnv",
    "CodeOutcome",
    "CodeTask",
    "CodeTest",
    "ConflictReport",
    "DataTextEnv",
    "EUREQAConfig",
    "EUREQAEnv",
    "EUREQAOutcome",
    "EUREQATask",
    "FrontPoint",
    "MazeConfig",
    "MazeEnv",
    "MazeOutcome",
    "MazeStepsEnv",
    "MazeTask",
    "MuSiQueConfig",
    "MuSiQueEnv",
    "MuSiQueOutcome",
    "MuSiQueTask",
    "Objective",
    "PreferenceConditioned",
    "RewardBatch",
    "ScorerFailure",
    "Split",
    "Status",
    "Task",
    "TextVectorEnv",
    "ToolCall",
    "ToolsConfig",
    "ToolsEnv",
    "ToolsOutcome",
    "ToolsTask",
    "UnknownFront",
    "Unparsable",
    "VectorTextEnv",
    "check_vector_env",
    "objective_conflict",
    "register_env",
    "register_envs",
]

register_envs()

if not TYPE_CHECKING:  # a type checker that saw these would take any name for one of the package
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
