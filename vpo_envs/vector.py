"""Vector environments for ``gym.make_vec``: many copies of a text environment that are scored together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vpo_envs.core import AnyEnv, VectorTextEnv

Step = tuple[tuple[str, ...], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class TextVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], Any]):
    """``num_envs`` copies of a text environment that share one data source, and whose answers are scored together.

    Copy ``i`` behaves like a single environment that was reset with ``seed + i``. When an episode ends, the next one
    starts in the same step (Gymnasium's same-step autoreset). The observation is then the new prompt. The results of
    the step are in ``infos["final_obs"]`` and ``infos["final_info"]``, with one entry for each copy. The scores of
    one-step tasks are in ``infos["final_info"]["reward_matrix"]``, shape (n, m, d).

    Args:
        env_type: Class of the environment; it must not override ``reset`` or ``step``.
        num_envs: Number of copies, n >= 1.
        **kwargs: Arguments of the environment.
    """

    def __init__(self, env_type: type[AnyEnv], *, num_envs: int = 1, **kwargs: Any) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        for method in ("reset", "step"):
            if getattr(env_type, method) is not getattr(VectorTextEnv, method):
                raise TypeError(
                    f"{env_type.__name__} overrides {method}, which {type(self).__name__} would not call: use "
                    "mo_gymnasium.wrappers.vector.MOSyncVectorEnv"
                )
        env = env_type(**kwargs)
        # The copies share everything constant; reset() gives each its own task, answers and random numbers.
        self.envs: list[AnyEnv] = [copy.copy(env) for _ in range(num_envs)]
        self.num_envs = num_envs
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = env.render_mode
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(env.observation_space, num_envs)
        self.action_space = batch_space(env.action_space, num_envs)
        self.reward_space = env.reward_space
        """Space of one copy's reward, shape (d,)."""
        self.reward_dim = env.reward_dim
        self.objective_names = env.objective_names

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start an episode in each copy.

        Args:
            seed: A number, from which copy i gets ``seed + i``, or one number for each copy.
            options: Options of the environment. ``"index"`` and ``"task"`` may be lists with one value for each copy.

        Returns:
            Prompts, and infos: for each key an array over the copies, and a mask ``_key`` of the copies that have it.
        """
        n = self.num_envs
        seeds = [seed + i for i in range(n)] if isinstance(seed, int | np.integer) else list(seed or [None] * n)
        if len(seeds) != n:
            raise ValueError(f"reset needs one seed for each of {n} environments, got {len(seeds)}")
        options = dict(options or {})
        each = [dict(options) for _ in range(n)]
        for key in ("index", "task"):
            values = options.get(key)
            if isinstance(values, list | tuple | np.ndarray):
                if len(values) != n:
                    raise ValueError(f"option {key!r} needs one value for each of {n} environments, got {len(values)}")
                for copy_options, value in zip(each, values, strict=True):
                    copy_options[key] = value
        started = [env.reset(seed=seeds[i], options=each[i]) for i, env in enumerate(self.envs)]
        return tuple(prompt for prompt, _ in started), merge_infos([info for _, info in started])

    def step(self, actions: Sequence[str]) -> Step:
        """Score n responses; return prompts, rewards (n, d) float32, terminated (n,), truncated (n,) and infos."""
        n = self.num_envs
        if isinstance(actions, str) or len(actions) != n:
            got = "one string" if isinstance(actions, str) else len(actions)
            raise ValueError(f"step needs one action for each of {n} environments, got {got}")
        turns = [env.read_action(action) for env, action in zip(self.envs, actions, strict=True)]
        results = list(self.envs[0].score_responses([turn.response for turn in turns]))
        rewards = np.zeros((n, self.reward_dim), dtype=np.float32)
        terminated, truncated = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        observations: list[str] = []
        infos: list[dict[str, Any] | None] = [None] * n
        final_infos: list[dict[str, Any] | None] = [None] * n
        final_observations = np.full(n, None, dtype=object)
        for i, (env, turn, scored) in enumerate(zip(self.envs, turns, results, strict=True)):
            observation, rewards[i], terminated[i], truncated[i], info = env.finish_step(turn, scored)
            if terminated[i] or truncated[i]:
                final_observations[i], final_infos[i] = observation, info
                observation, info = env.reset()
            observations.append(observation)
            infos[i] = info
        merged = merge_infos(infos)
        over = terminated | truncated
        if over.any():
            merged |= {"final_obs": final_observations, "_final_obs": over}
            merged |= {"final_info": merge_infos(final_infos), "_final_info": over.copy()}
        return tuple(observations), rewards, terminated, truncated, merged

    def render(self) -> tuple[Any, ...] | None:
        """Render each copy."""
        return None if self.render_mode is None else tuple(env.render() for env in self.envs)


def merge_infos(infos: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge infos (one per environment, or ``None``) into Gymnasium's form, except that dictionaries stay whole.

    Returns:
        For each key an array with one entry per environment (stacked if all are arrays of one shape, otherwise an array
        of objects), and under ``_key`` a mask (n,) of the environments that have it.
    """
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for info in infos if info is not None for key in info):
        mask = np.array([info is not None and key in info for info in infos])
        given = {i: info[key] for i, info in enumerate(infos) if info is not None and key in info}
        shapes = {value.shape if isinstance(value, np.ndarray) else None for value in given.values()}
        array: NDArray[Any] = np.full(len(infos), None, dtype=object)
        if len(shapes) == 1 and None not in shapes:
            first = next(iter(given.values()))
            array = np.zeros((len(infos), *first.shape), dtype=first.dtype)
        for i, value in given.items():
            array[i] = value
        merged[key], merged[f"_{key}"] = array, mask
    return merged


def _stepwise_copies(env_type: type[Any], *, num_envs: int = 1, **kwargs: Any) -> VectorEnv[Any, Any, Any]:
    from mo_gymnasium.wrappers import vector  # brings pygame along

    copies: VectorEnv[Any, Any, Any] = vector.MOSyncVectorEnv(iter([partial(env_type, **kwargs)] * num_envs))  # type: ignore[attr-defined,misc]  # no types
    return copies


def __getattr__(name: str) -> Callable[..., VectorEnv[Any, Any, Any]]:
    """Return what makes vector environments of a class: ``vpo_envs.vector:note.NoteEnv`` makes copies of ``NoteEnv``.

    ``gym.make_vec`` looks up an attribute of a module, which the registered string names, and does not tell it which
    environment is wanted. So each class has an attribute of this module, which Python asks for here.
    """
    module, _, class_name = name.rpartition(".")
    if not module:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    env_type = getattr(import_module(module), class_name)
    return partial(TextVectorEnv if issubclass(env_type, VectorTextEnv) else _stepwise_copies, env_type)
