"""The environments and set scores inside verl: rows of its data set, and the reward function that it calls.

A score depends on a rollout's own answers and on the weights of its prompt, so verl's own GRPO does the rest: it takes
the score as the reward and standardises it within the group. Each row carries everything that its score needs, and the
weights are a function of (seed, prompt), so the workers that score the rollouts of a group need not know each other.

    data.train_files=train.parquet algorithm.adv_estimator=grpo
    reward.custom_reward_function.path=pkg://vpo_agent.adapters.verl reward.custom_reward_function.name=compute_score

`vpo export verl` writes the file and prints the whole command line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vpo_agent.estimators import advantages, available_estimators, estimator
from vpo_agent.estimators.weights import draw_weights, prompt_key
from vpo_agent.pareto.metrics import diversity
from vpo_agent.rollouts.collect import make_text_env
from vpo_envs import Status, VectorTextEnv
from vpo_envs.core import ScorerFailure
from vpo_envs.preferences import in_whole_percent

UNLIKE_GRPO = {
    "gdpo": "standardises each objective within the group",
    "max_at_k": "compares the rollouts of a group",
    "maxrl": "divides by the mean of the group",
    "vpo_credit": "gives credit to single answers",
}
"""Methods that are more than a score of each rollout, which is all that verl takes, and what they do."""


def settings_of_rows(
    env_id: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    num_answers: int = 3,
    method: str = "vpo",
    method_options: Mapping[str, Any] | None = None,
    num_weights: int = 128,
    alpha: float = 1.0,
    weight_sampler: str = "sobol",
    scalar_weights: list[float] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """What a row says about how its responses are scored, as JSON values; checked by scoring once.

    Args:
        env_id: Id of a registered environment.
        env_kwargs: Its arguments, but for ``split`` and ``num_answers``.
        num_answers: Answers in a response, m.
        method: An estimator that scores each rollout by itself.
        method_options: Its options.
        num_weights: K, for methods that draw weights.
        alpha: Dirichlet concentration of the weights.
        weight_sampler: "sobol" or "iid".
        scalar_weights: Fixed weights of the scalar reward, (d,); the environment's own where ``None``.
        seed: Keys the weights.

    Raises:
        ValueError: An unknown environment, method or option, a method that is more than a score, or weights of another
            number than the environment has objectives.
    """
    estimator(method)
    if method in UNLIKE_GRPO:
        fitting = ", ".join(name for name in available_estimators() if name not in UNLIKE_GRPO)
        raise ValueError(
            f"{method} {UNLIKE_GRPO[method]}, and verl takes one score per rollout: choose one of {fitting}, "
            "or train with the built-in trainer or TRL"
        )
    settings: dict[str, Any] = {
        "env": env_id,
        "env_kwargs": dict(env_kwargs or {}),
        "num_answers": num_answers,
        "method": method,
        "method_options": dict(method_options or {}),
        "num_weights": num_weights,
        "alpha": alpha,
        "weight_sampler": weight_sampler,
        "scalar_weights": scalar_weights,
        "seed": seed,
    }
    env = _environment(env_id, json.dumps({**settings["env_kwargs"], "num_answers": num_answers}))
    if scalar_weights is not None and len(scalar_weights) != env.reward_dim:
        raise ValueError(
            f"objective weights for {env_id} need {env.reward_dim} values, one per objective "
            f"({', '.join(env.objective_names)}); got {len(scalar_weights)}"
        )
    _score(env, settings, env.task(0), np.zeros((num_answers, env.reward_dim), dtype=np.float32))
    return settings


def dataset_rows(settings: Mapping[str, Any], indices: Iterable[int], split: str = "train") -> list[dict[str, Any]]:
    """Rows in the schema of verl's data sets.

    Args:
        settings: Those of `settings_of_rows`.
        indices: Which tasks of the split.
        split: "train", "validation" or "test".

    Returns:
        ``data_source``, ``prompt`` (chat messages), ``ability``, ``reward_model`` (with the task as JSON in
        ``ground_truth``) and ``extra_info`` (with the settings as JSON in ``vpo``).
    """
    kwargs = {**settings["env_kwargs"], "num_answers": settings["num_answers"]}
    env = make_text_env(settings["env"], **kwargs, split=split)
    rows = []
    for index in indices:
        task = env.task(index)
        prompt = env.prompt(task, env.num_answers)
        if estimator(settings["method"]).in_prompt:
            prompt = env.condition(prompt, _weights(env, settings, task)[0], env.active(task))
        rows.append(
            {
                "data_source": settings["env"],
                "prompt": [{"role": "user", "content": prompt}],
                "ability": "vector_reward",
                "reward_model": {"style": "rule", "ground_truth": task.model_dump_json()},
                "extra_info": {"split": split, "index": index, "vpo": json.dumps(settings, sort_keys=True)},
            }
        )
    return rows


def write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows as a parquet file.

    Raises:
        ValueError: pyarrow is missing, or the file cannot be written.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ValueError("writing parquet needs the package pyarrow: pip install 'vpo-gym[data]'") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    except OSError as error:
        raise ValueError(f"cannot write {str(path)!r}: {error.strerror or error}") from None


def command_line(folder: Path, settings: Mapping[str, Any], *, model: str, rollouts: int) -> list[str]:
    """The command that trains on the exported files in verl 0.9, word by word.

    Args:
        folder: Where ``train.parquet`` and ``validation.parquet`` are.
        settings: Those of `settings_of_rows`.
        model: A model's name or folder.
        rollouts: Rollouts of each prompt, G.
    """
    by_deviation = settings["method"] != "dr_grpo"
    return [
        *("python", "-m", "verl.trainer.main_ppo"),
        "algorithm.adv_estimator=grpo",
        f"algorithm.norm_adv_by_std_in_grpo={by_deviation}",
        "algorithm.use_kl_in_reward=False",
        f"data.train_files={folder.absolute() / 'train.parquet'}",
        f"data.val_files={folder.absolute() / 'validation.parquet'}",
        "data.train_batch_size=128",
        "data.max_prompt_length=2048",
        "data.max_response_length=1024",
        "+data.apply_chat_template_kwargs.enable_thinking=False",
        "reward.custom_reward_function.path=pkg://vpo_agent.adapters.verl",
        "reward.custom_reward_function.name=compute_score",
        f"actor_rollout_ref.model.path={model}",
        f"actor_rollout_ref.rollout.n={rollouts}",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.actor.optim.lr=1e-6",
        "actor_rollout_ref.actor.ppo_mini_batch_size=64",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
        "actor_rollout_ref.actor.kl_loss_type=low_var_kl",
        "trainer.n_gpus_per_node=8",
        "trainer.nnodes=1",
        "trainer.total_epochs=1",
    ]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """The score of a response, as verl calls it.

    Args:
        data_source: The environment's id.
        solution_str: The response.
        ground_truth: The task, as JSON.
        extra_info: Holds the settings as JSON in ``vpo``.

    Returns:
        ``score``, which verl trains on; for its logs the mean of each objective over the answers, ``diversity`` of the
        answers and ``answered``, the share of answers that could be read.

    Raises:
        ValueError: The row was not written by `dataset_rows`.
        ScorerFailure: The scorer failed. verl cannot leave a rollout out of its group, and a failure is not a score.
    """
    if not extra_info or "vpo" not in extra_info:
        raise ValueError(
            f"the row of {data_source!r} has no extra_info['vpo']: write the data set with vpo export verl"
        )
    settings = _settings(extra_info["vpo"])
    env = _environment(settings["env"], json.dumps({**settings["env_kwargs"], "num_answers": settings["num_answers"]}))
    task = env.task_type.model_validate_json(ground_truth)
    batch = env.score_batch([task], [solution_str])
    if (batch.status == Status.INVALID).any():
        raise ScorerFailure(
            f"the scorer of {data_source} failed, which verl cannot leave out of a group: see that its requirements "
            "are there on every reward worker"
        )
    return {
        "score": _score(env, settings, task, batch.rewards[0]),
        **{name: float(mean) for name, mean in zip(env.objective_names, batch.rewards[0].mean(0), strict=True)},
        "diversity": float(diversity(batch.rewards[0])),
        "answered": float((batch.status[0] == Status.OK).mean()),
    }


@lru_cache(maxsize=64)
def _settings(text: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(text)
    return read


@lru_cache(maxsize=16)
def _environment(env_id: str, kwargs: str) -> VectorTextEnv[Any, Any, Any]:
    return make_text_env(env_id, **json.loads(kwargs))


def _weights(env: VectorTextEnv[Any, Any, Any], settings: Mapping[str, Any], task: Any) -> NDArray[np.float32]:
    """The weights of a prompt, (K, d). verl does not tell a reward function the step, so they stay the same."""
    weights = draw_weights(
        [prompt_key(task.content_hash())],
        num_objectives=env.reward_dim,
        num_weights=settings["num_weights"],
        alpha=settings["alpha"],
        sampler=settings["weight_sampler"],
        seed=settings["seed"],
        active=env.active(task)[None],
    )[0]
    if estimator(settings["method"]).in_prompt:
        return in_whole_percent(weights[0])[None].astype(np.float32)
    return np.asarray(weights)


def _score(
    env: VectorTextEnv[Any, Any, Any], settings: Mapping[str, Any], task: Any, matrix: NDArray[np.float32]
) -> float:
    """The score of one reward matrix, (m, d), by the estimator's own function."""
    result = advantages(
        torch.from_numpy(matrix)[None, None],
        method=settings["method"],
        weights=torch.from_numpy(_weights(env, settings, task))[None],
        scalar_weights=settings["scalar_weights"] or env.scalar_weights,
        active=torch.from_numpy(env.active(task))[None],
        **settings["method_options"],
    )
    return float(result.scores[0, 0])
