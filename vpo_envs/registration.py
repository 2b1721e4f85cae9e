"""Registers the environments with Gymnasium, and makes them by id, also those of other modules."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from vpo_envs.common.imports import FUNCTIONS_ID, asked_module, import_modules
from vpo_envs.common.paths import path_of
from vpo_envs.common.trust import is_trusted
from vpo_envs.common.wording import did_you_mean

if TYPE_CHECKING:
    from vpo_envs.core import AnyEnv

SHOWN_CHARS = 200
"""Characters of an argument that a message shows."""


def register_env(env_id: str, entry_point: str, **kwargs: object) -> None:
    """Register a vector-reward environment with Gymnasium; registering an id again replaces it.

    Gymnasium's passive checker warns at every vector reward, so it is switched off; ``max_episode_steps`` stays unset,
    since a time limit of one step would mark every episode truncated.

    Args:
        env_id: Such as ``"vpo/Maze-v0"``.
        entry_point: ``"module:Class"``; a string, so that the spec survives JSON.
        **kwargs: Default arguments of the constructor, JSON values.
    """
    gym.registry.pop(env_id, None)
    gym.register(
        id=env_id,
        entry_point=entry_point,
        # An attribute that `vpo_envs.vector` makes up for each class.
        vector_entry_point=f"vpo_envs.vector:{entry_point.replace(':', '.')}",
        disable_env_checker=True,
        kwargs=dict(kwargs),
    )


def register_envs() -> None:
    """Register every environment of the suite."""
    register_env("vpo/Archive-v0", "vpo_envs.tasks.archive.env:ArchiveEnv")
    register_env("vpo/Maze-v0", "vpo_envs.tasks.maze.env:MazeEnv")
    register_env("vpo/MazeSteps-v0", "vpo_envs.tasks.maze.steps:MazeStepsEnv")
    register_env("vpo/Tools-v0", "vpo_envs.tasks.tools.env:ToolsEnv")
    register_env("vpo/MuSiQue-v0", "vpo_envs.tasks.musique.env:MuSiQueEnv")
    register_env("vpo/EUREQA-v0", "vpo_envs.tasks.eureqa.env:EUREQAEnv")
    register_env("vpo/Personas-v0", "vpo_envs.tasks.personas.env:PersonasEnv")
    register_env("vpo/RewardModels-v0", "vpo_envs.tasks.reward_models.env:RewardModelsEnv")
    register_env("vpo/Code-v0", "vpo_envs.tasks.code.env:CodeEnv")
    register_env("vpo/Programs-v0", "vpo_envs.tasks.programs.env:ProgramsEnv")
    register_env("vpo/Countdown-v0", "vpo_envs.tasks.countdown.env:CountdownEnv")
    register_env("vpo/GSM8K-v0", "vpo_envs.tasks.gsm8k.env:GSM8KEnv")
    register_env(FUNCTIONS_ID, "vpo_envs.functions.env:FunctionsEnv")


def env_ids() -> list[str]:
    """Return the ids in the namespace ``vpo`` in alphabetical order."""
    return sorted((env_id for env_id in gym.registry if env_id.startswith("vpo/")), key=str.lower)


def text_env_ids() -> list[str]:
    """Return the ids in the namespace ``vpo`` whose environments are answered in text."""
    from vpo_envs.core import VectorTextEnv  # loads pydantic, which an import of the package should not

    return [env_id for env_id in env_ids() if issubclass(env_type(env_id), VectorTextEnv)]


def env_type(env_id: str) -> type[Any]:
    """Return the class behind an id or ``MODULE:ID``, as for :func:`make_text_env`; ``object`` if it is a function."""
    module, _, bare_id = env_id.rpartition(":")
    if bare_id.endswith(".py"):
        raise ValueError(f"{env_id} is a file: name the environment or the function in it as well, as {env_id}:NAME")
    try:
        import_modules([module] if module else [])
    except ValueError as error:
        raise ValueError(f"unknown environment {env_id!r}: {error}") from None
    try:
        entry_point = gym.spec(bare_id).entry_point
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    except (gym.error.Error, ImportError, AttributeError, ValueError) as error:
        if module and bare_id not in gym.registry:
            registered = ", ".join(_ids_made_in(module)) or "no environment"
            raise ValueError(f"unknown environment {env_id!r}: {module} registers {registered}") from None
        why = f"{error}; " if module else ""
        known = text_env_ids()
        raise ValueError(
            f"unknown environment {env_id!r}: {why}{did_you_mean(bare_id, known)}choose one of {', '.join(known)}, or "
            "name the module that registers your own, as MODULE:ID or with --import MODULE"
        ) from None
    return creator if isinstance(creator, type) else object


def make_text_env(env_id: str, **kwargs: Any) -> AnyEnv:
    """Make a text environment.

    Args:
        env_id: An id, or ``MODULE:ID`` to import the module or ``.py`` file that registers it first.
        **kwargs: Arguments of the environment.

    Raises:
        ValueError: An unknown id, an environment that is not answered in text, or unknown or bad arguments.
    """
    from vpo_envs.core import VectorTextEnv

    env_class = env_type(env_id)
    if not issubclass(env_class, VectorTextEnv):
        raise ValueError(
            f"{env_id} is a {env_class.__name__}, not a text environment: choose one of {', '.join(text_env_ids())}"
        )
    try:
        env = gym.make(env_id.rpartition(":")[2], **kwargs).unwrapped
    except (ValueError, TypeError, AttributeError, gym.error.Error, ImportError) as error:
        reason = " ".join(str(error).split()).partition(" was raised from the environment creator")[0]
        raise ValueError(f"{env_id} cannot be made: {reason}") from None
    assert isinstance(env, VectorTextEnv)
    return env


def saved_env(env_id: str, arguments: Mapping[str, Any], imports: Iterable[str] = ()) -> str:
    """Return the id of an environment that saved data name, so that making it imports nothing.

    Saved data may come from anybody: only what was asked for is imported, and arguments that could read, run or ask for
    anything, or lift a limit, must be trusted.

    Raises:
        ValueError: The data need modules that were not asked for, or arguments that are not trusted.
    """
    module, _, bare_id = env_id.rpartition(":")
    named = list(dict.fromkeys([*imports, *([module] if module else [])]))
    if bare_id not in gym.registry and named:
        options = " ".join(f"--import {shlex.quote(name)}" for name in named)
        raise ValueError(
            f"{bare_id} is registered by {' and '.join(named)}, which runs only if you ask for it: add {options}, or "
            "the place that it has moved to"
        )
    check_saved_arguments(bare_id, arguments)
    return bare_id


def arguments_to_trust(env_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that saved data may choose only if they are trusted: neither harmless nor the default."""
    from vpo_envs.contract.arguments import constructor_arguments

    made_of = env_type(env_id)
    harmless: frozenset[str] = getattr(made_of, "harmless_arguments", frozenset())
    defaults = constructor_arguments(made_of)
    return {
        name: value
        for name, value in arguments.items()
        if name not in harmless and not (name in defaults and value == defaults[name])
    }


def check_saved_arguments(env_id: str, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if saved data give an environment arguments that are neither harmless nor trusted."""
    chosen = arguments_to_trust(env_id, arguments)
    untrusted = {name: value for name, value in chosen.items() if not is_trusted(name, value)}
    if untrusted:
        stated = ", ".join(f"{name}={value!r:.{SHOWN_CHARS}}" for name, value in untrusted.items())
        raise ValueError(
            f"the arguments {stated} of {env_id} come from a saved file, and are used only if you trust it: add "
            f"--trust {shlex.quote(','.join(untrusted))}{_import_of_rewards(arguments)}"
        )


def _import_of_rewards(arguments: Mapping[str, Any]) -> str:
    """Return the option that imports the reward functions which arguments name; empty if there are none to import."""
    module = str(arguments.get("rewards", "")).rpartition(":")[0]
    return f" --import {shlex.quote(module)}" if module and asked_module(module) is None else ""


def registering_module(env_id: str) -> str | None:
    """Return the name or file of the module that registers an environment; ``None`` for those of the suite."""
    name = _made_in(env_id.rpartition(":")[2])
    if name.partition(".")[0] == "vpo_envs":
        return None
    module = sys.modules.get(name)
    if module is not None and name == "__main__" and module.__spec__ is not None:
        return module.__spec__.name  # python -m package.module
    file = getattr(module, "__file__", None)
    # A module outside a package may have been found beside a script, where another process does not look.
    return name if not file or getattr(module, "__package__", None) else str(Path(file).resolve())


def _made_in(env_id: str) -> str:
    """Return the name of the module with the class or function that makes an environment."""
    entry_point = gym.spec(env_id).entry_point
    if isinstance(entry_point, str):
        return entry_point.partition(":")[0]
    return str(getattr(entry_point, "__module__", ""))


def _ids_made_in(module: str) -> list[str]:
    """Return the ids whose environments are made in a module, given by its name or file, or in modules below it."""
    names = {module}
    if module.endswith(".py"):
        file = str(path_of(module).resolve())
        names = {name for name, loaded in list(sys.modules.items()) if getattr(loaded, "__file__", None) == file}
    return [env_id for env_id in gym.registry if any(f"{_made_in(env_id)}.".startswith(f"{name}.") for name in names)]
