"""Environments and set scores inside verl: rows of its data sets, and the reward function that it calls.

A score depends on the answers of one rollout and the weights of its prompt, so verl's own GRPO does the rest: it takes
the score as the reward and standardises it within the group. Each row contains everything that its score needs, and the
weights are a function of (seed, prompt), so the workers that score a group need no communication.

`vpo export verl` writes the files and prints the whole command line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any

from envs_data.parsing import parse_json
from vpo_agent.estimators import available_estimators, estimator
from vpo_agent.estimators.bound import SETTINGS, BoundEstimator
from vpo_agent.measure.measures import PREFIX, short_names
from vpo_agent.measure.metrics import diversity
from vpo_agent.rollouts.collect import make_text_env
from vpo_envs import Status
from vpo_envs.common.libraries import check_package
from vpo_envs.core import ScorerFailure, check_never_replies
from vpo_envs.text import as_messages

UNLIKE_GRPO = ("vpo_pool", "set_rl", "max_at_k")
"""Methods that compare the rollouts of a group, so that verl's one score per rollout is not enough."""
PROGRAM = "python -m verl.trainer.main_ppo"


def settings_of_rows(
    env_id: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    num_answers: int | list[int] = 3,
    method: str = "vpo",
    method_options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the settings that each row stores for scoring, as JSON values, after a trial run.

    Args:
        env_id: Id of a registered environment.
        env_kwargs: Its arguments, without ``split`` and ``num_answers``.
        num_answers: Answers in a response, m; a list such as ``[1, 3]`` makes tasks ask for these numbers in turn.
        method: An estimator that scores each rollout by itself.
        method_options: Options of the estimator.
        **settings: Other fields of :class:`~vpo_agent.estimators.bound.BoundEstimator`.

    Raises:
        ValueError: An unknown environment, method or option, an environment that replies, a method that needs more
            than a score per rollout, or a number of fixed weights other than the number of objectives.
    """
    estimator(method)
    if estimator(method).compares_rollouts:
        fitting = ", ".join(name for name in available_estimators() if not estimator(name).compares_rollouts)
        raise ValueError(
            f"{method} compares the rollouts of a group, and verl takes one score per rollout: choose one of "
            f"{fitting}, or train with the built-in trainer"
        )
    row = {
        "env": env_id,
        "env_kwargs": dict(env_kwargs or {}),
        "num_answers": num_answers,
        "method": method,
        "method_options": dict(method_options or {}),
        **{field.name: field.default for field in fields(BoundEstimator) if field.name in SETTINGS},
        **settings,
    }
    for m in set(_numbers(row)):
        bound = _estimator_of(_as_text({**row, "num_answers": m}))
        way_out = "train with the built-in trainer, or inside TRL"
        check_never_replies(bound.env, env_id, "the export for verl", way_out)
        bound.try_out(1, m)
    return row


def dataset_rows(settings: Mapping[str, Any], indices: Iterable[int], split: str = "train") -> list[dict[str, Any]]:
    """Return the tasks of a split with these indices as rows in the schema of verl's data sets.

    Returns:
        ``data_source``, ``prompt`` (chat messages), ``ability``, ``reward_model`` (with the task as JSON in
        ``ground_truth``) and ``extra_info`` (with the settings as JSON in ``vpo``).
    """
    numbers = _numbers(settings)
    settings_of = {m: _as_text({**settings, "num_answers": m}) for m in numbers}
    env = make_text_env(settings["env"], **settings["env_kwargs"], num_answers=max(numbers), split=split)
    tasks = {index: env.task(index) for index in indices}
    rows = []
    for (index, task), m in zip(tasks.items(), cycle(numbers), strict=False):
        row = {
            "data_source": settings["env"],
            "prompt": as_messages(env.chat_prompt(task, m)),
            "ability": "vector_reward",
            "reward_model": {"style": "rule", "ground_truth": task.model_dump_json()},
            "extra_info": {"split": split, "index": index, "vpo": settings_of[m]},
        }
        rows.append(row)
    return rows


def write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows as a parquet file."""
    check_package("pyarrow", "data", "writing parquet")
    import pyarrow.parquet

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    except OSError as error:
        raise ValueError(f"cannot write {str(path)!r}: {error.strerror or error}") from None


def command_line(folder: Path, *, model: str, rollouts: int, thinking: bool = False) -> tuple[str, list[str]]:
    """Return the program and the options that train on ``train.parquet`` in a folder, with verl 0.9.

    ``validation.parquet`` is in the same folder.
    """
    options = [
        "algorithm.adv_estimator=grpo",
        "algorithm.norm_adv_by_std_in_grpo=True",
        "algorithm.use_kl_in_reward=False",
        f"data.train_files={folder.absolute() / 'train.parquet'}",
        f"data.val_files={folder.absolute() / 'validation.parquet'}",
        "data.train_batch_size=128",
        "data.max_prompt_length=2048",
        "data.max_response_length=1024",
        f"+data.apply_chat_template_kwargs.enable_thinking={thinking}",
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
    return PROGRAM, options


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, **_: Any
) -> dict[str, float]:
    """Score a response; verl calls this function.

    Returns:
        ``score``, which verl trains on. For its logs: the mean of each objective over the answers, the ``diversity`` of
        the answers, and ``answered``, the share of answers that could be read.

    Raises:
        ValueError: The row was not written by `dataset_rows`.
        ScorerFailure: The scorer failed. verl cannot leave a rollout out of its group, and a failure is not a score.
    """
    if not extra_info or "vpo" not in extra_info:
        raise ValueError(
            f"the row of {data_source!r} has no extra_info['vpo']: write the data set with vpo export verl"
        )
    estimator_of_row = _estimator_of(extra_info["vpo"])
    env = estimator_of_row.env
    task = env.task_type.model_validate_json(ground_truth)
    batch = env.score_batch([task], [solution_str])
    if (batch.status == Status.INVALID).any():
        raise ScorerFailure(
            f"the scorer of {data_source} failed ({batch.failure}), and verl cannot leave a rollout out of its group: "
            "check that the scorer's requirements are installed on every reward worker"
        )
    result = estimator_of_row.estimate([task], batch.rewards[None], step=0)
    means = dict(zip(env.objective_names, batch.rewards[0].mean(0), strict=True))
    row = {
        "score": float(result.scores[0, 0]),
        **{f"{PREFIX}{name}": float(mean) for name, mean in means.items()},
        "diversity": float(diversity(batch.rewards[0])),
        "answered": float((batch.status[0] == Status.OK).mean()),
    }
    return short_names(row)


def _numbers(settings: Mapping[str, Any]) -> list[int]:
    """Return the numbers of answers that tasks ask for."""
    m = settings["num_answers"]
    return m if isinstance(m, list) else [m]


def _as_text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


@lru_cache(maxsize=16)
def _estimator_of(settings_of_row: str) -> BoundEstimator:
    """Return the estimator for the settings of a row, which are JSON."""
    settings = parse_json(settings_of_row)
    env = make_text_env(settings.pop("env"), **settings.pop("env_kwargs"), num_answers=settings.pop("num_answers"))
    return BoundEstimator(env, settings.pop("method"), settings.pop("method_options"), **settings)
