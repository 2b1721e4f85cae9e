"""Environments and estimators inside TRL's ``GRPOTrainer``, which runs on many GPUs.

A score depends on the answers of one rollout and the weights of its prompt, and an advantage on the scores of its
group. So public reward functions suffice: the first one gathers the reward matrices of the whole batch from all
processes, and returns finished advantages as the reward, with weight 1. With ``scale_rewards="none"`` TRL only
subtracts the group's mean, which is 0 already. The score, every objective and the diversity have weight 0 and appear in
the logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vpo_agent.estimators.losses import token_weights
from vpo_agent.learning.bound_estimator import BoundEstimator
from vpo_agent.measure.measures import free_name
from vpo_agent.measure.metrics import diversity
from vpo_envs import Status
from vpo_envs.common.libraries import check_package
from vpo_envs.core import AnyEnv
from vpo_envs.text import end_tags

# The extra allows only releases whose reward path is tested.
check_package("trl", "trl", "training with TRL")

from accelerate import PartialState  # noqa: E402 - after the check, since TRL brings both
from accelerate.utils import gather_object  # noqa: E402
from datasets import Dataset  # noqa: E402

MEAN_TOLERANCE = 1e-5
"""Largest absolute group mean of the advantages, which TRL subtracts."""


class TRLAdapter:
    """Arguments of ``GRPOTrainer`` for an environment and a method.

    Args:
        env: The environment.
        tokenizer: The model's tokenizer.
        method: A registered estimator whose advantages have mean 0 in a group. ``max_at_k`` and ``set_rl``
            have that with ``baseline="others"``, which is set here.
        method_options: Options of the estimator.
        rollouts_per_prompt: G.
        num_answers: The different numbers of answers that prompts ask for; that of the environment by default.
        **settings: Other fields of :class:`~vpo_agent.learning.bound_estimator.BoundEstimator`.

    Raises:
        ValueError: An unknown method or option, a method whose mean is not 0, several answers for a method of single
            answers, or a number of fixed weights other than the number of objectives.
    """

    def __init__(
        self,
        env: AnyEnv,
        tokenizer: Any,
        *,
        method: str = "vpo",
        method_options: dict[str, Any] | None = None,
        rollouts_per_prompt: int = 8,
        num_answers: Sequence[int] = (),
        **settings: Any,
    ) -> None:
        if rollouts_per_prompt < 2:
            raise ValueError(f"rollouts_per_prompt must be at least 2 inside TRL; got {rollouts_per_prompt}")
        options = {**({"baseline": "others"} if method in ("max_at_k", "set_rl") else {}), **(method_options or {})}
        self.env = env
        self.tokenizer = tokenizer
        self.estimator = BoundEstimator(env, method, options, **settings)
        self.rollouts_per_prompt = rollouts_per_prompt
        self.num_answers = tuple(num_answers) or (env.num_answers,)
        own = ("advantage", "score", "diversity")
        self.columns = (*own[:2], *(free_name(name, own) for name in env.objective_names), own[2])
        """Names of the reward functions."""
        self.scored: NDArray[np.float64] | None = None
        """Their values for the responses of this process, (B, 3 + d); NaN where they return ``None``."""
        for m in self.num_answers:
            self._check_mean(self.estimator.try_out(rollouts_per_prompt, m).advantages)

    # Arguments of the trainer --------------------------------------------------------------------------------------

    def dataset(self, indices: Iterable[int], num_answers: Sequence[int] | None = None) -> Dataset:
        """Return the tasks with these indices.

        The columns are ``prompt``, ``task`` (JSON), ``row`` (index in the data set) and ``asked`` (answers that the
        prompt asks for: those of ``num_answers``, or of the environment). With a chat template prompts are messages,
        otherwise plain text.
        """
        tasks = [self.env.task(index) for index in indices]
        asked = list(num_answers or [self.num_answers[0]] * len(tasks))
        prompts = [self.env.prompt(task, m) for task, m in zip(tasks, asked, strict=True)]
        chat = self.tokenizer.chat_template is not None
        return Dataset.from_dict(
            {
                "prompt": [[{"role": "user", "content": prompt}] for prompt in prompts] if chat else prompts,
                "task": [task.model_dump_json() for task in tasks],
                "row": list(range(len(tasks))),
                "asked": asked,
            }
        )

    def reward_functions(self) -> list[Any]:
        """Return the advantage and, for the logs, the score, every objective and the diversity."""
        return [AdapterReward(self, column) for column in range(len(self.columns))]

    def required_settings(self) -> dict[str, Any]:
        """Return the arguments of ``GRPOConfig`` without which advantages would not reach the loss unchanged."""
        settings: dict[str, Any] = {
            "num_generations": self.rollouts_per_prompt,
            "reward_weights": [1.0] + [0.0] * (len(self.columns) - 1),
            "scale_rewards": "none",
            "multi_objective_aggregation": "sum_then_normalize",
            "remove_unused_columns": False,
            "mask_truncated_completions": False,
        }
        if self.tokenizer.chat_template is not None:
            settings["chat_template_kwargs"] = {"enable_thinking": False}
        return settings

    def end_at_last_answer(self, model: Any) -> Any:
        """Make responses end at the last closing tag, if that is one token of the vocabulary, and return the model.

        Where prompts ask for different numbers of answers, tags that longer responses hold do not end a shorter one.
        TRL ends responses at single tokens only. If the tag is several, a response continues to the end of sequence, or
        with vLLM to a stop string: ``generation_kwargs={"stop": [...], "include_stop_str_in_output": True}``.
        """
        closing = {closing_token(self.tokenizer, tag) for tag in end_tags(self.num_answers)} - {None}
        if closing:
            own = model.generation_config.eos_token_id
            before = own if isinstance(own, list) else [self.tokenizer.eos_token_id if own is None else own]
            model.generation_config.eos_token_id = sorted({*(one for one in before if one is not None), *closing})
        return model

    # Scores --------------------------------------------------------------------------------------------------------

    def score(
        self,
        completion_ids: list[list[int]],
        tasks: list[str],
        rows: list[int],
        step: int,
        asked: list[int] | None = None,
    ) -> None:
        """Score the responses of this process together with those of all others, into :attr:`scored`.

        Args:
            completion_ids: Tokens of the responses of this process; each process has the same number.
            tasks: The task of each, as JSON.
            rows: The row of the data set that each belongs to; those of a group are adjacent.
            step: Training step, which keys the weights.
            asked: The number of answers that each was asked for; that of the environment by default.
        """
        parsed = {text: self.env.task_type.model_validate_json(text) for text in set(tasks)}
        texts = self.tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        asked = asked or [self.num_answers[0]] * len(tasks)
        matrices: dict[int, tuple[NDArray[np.float32], bool, int]] = {}
        for m in set(asked):
            own = [place for place, number in enumerate(asked) if number == m]
            batch = self.env.score_batch([parsed[tasks[one]] for one in own], [texts[one] for one in own], m)
            valid = (batch.status != Status.INVALID).all(axis=1).tolist()
            lengths = [len(completion_ids[place]) for place in own]
            matrices |= zip(own, zip(batch.rewards, valid, lengths, strict=True), strict=True)
        here = (rows, tasks, [matrices[place] for place in range(len(tasks))])
        all_rows, all_tasks, all_scored = (list(chain(*each)) for each in zip(*gather_object([here]), strict=True))
        sizes = {len(list(run)) for _, run in groupby(all_rows)}
        if len(sizes) > 1:
            raise ValueError(f"a batch must hold whole groups of rollouts; got groups of {sorted(sizes)}")
        group = sizes.pop()
        first = PartialState().process_index * len(rows)
        mine = slice(first, first + len(rows))
        scored = np.empty((len(all_rows), len(self.columns)))
        numbers = np.array([len(rewards) for rewards, *_ in all_scored])
        tokens = torch.tensor([length for *_, length in all_scored])
        weights = token_weights(tokens, torch.from_numpy(numbers)).numpy()
        for m in set(numbers.tolist()):
            places = np.flatnonzero(numbers == m)
            groups = [self.env.task_type.model_validate_json(all_tasks[start]) for start in places[::group]]
            rewards, valid = (
                np.array([all_scored[place][part] for place in places]).reshape(len(groups), group, *shape)
                for part, shape in enumerate(((m, self.env.reward_dim), ()))
            )
            scored[places] = self._columns(groups, rewards, valid, step)
            scored[places, 0] *= weights[places]
        self.scored = scored[mine]

    def _columns(
        self, groups: list[Any], rewards: NDArray[np.float32], valid: NDArray[np.bool_], step: int
    ) -> NDArray[np.float64]:
        """Return what :attr:`columns` names for groups of one number of answers, (P·G, 3 + d)."""
        result = self.estimator.estimate(rewards, valid, groups, self.estimator.weights(groups, step))
        self._check_mean(result.advantages)
        flat = [rollouts[kept].reshape(-1, self.env.reward_dim) for rollouts, kept in zip(rewards, valid, strict=True)]
        active = np.stack([self.env.active(task) for task in groups])[:, None]
        columns = np.stack(
            [
                result.advantages.double().numpy(),
                result.scores.numpy(),
                *np.moveaxis(np.where(active, rewards.mean(axis=2), np.nan), -1, 0),
                np.repeat([[diversity(vectors)] for vectors in flat], valid.shape[1], axis=1),
            ],
            axis=-1,
        )
        # TRL leaves a rollout without a score out of its group, as the estimator does.
        columns[~valid] = np.nan
        return columns.reshape(-1, len(self.columns))

    # Details -------------------------------------------------------------------------------------------------------

    def _check_mean(self, of_groups: Tensor) -> None:
        if (means := of_groups.double().mean(1).abs()).max() > MEAN_TOLERANCE:
            options = [f"{name}={value!r}" for name, value in self.estimator.options.items()]
            named = ", ".join([self.estimator.name, *options])
            raise ValueError(
                f"the advantages of {named} have a group mean of {means.max():.2g}, which TRL would subtract: use a "
                "method with mean 0, such as vpo, grpo, or max_at_k with baseline='others'"
            )


def closing_token(tokenizer: Any, closing: str) -> int | None:
    """Return the token that is a closing tag; ``None`` if the tag is several."""
    ids: list[int] = tokenizer(closing, add_special_tokens=False)["input_ids"]
    return ids[0] if len(ids) == 1 and tokenizer.decode(ids) == closing else None


class AdapterReward:
    """A reward function of a :class:`TRLAdapter`; the first one, the advantage, scores the batch for all of them."""

    def __init__(self, adapter: TRLAdapter, column: int) -> None:
        self.__name__ = adapter.columns[column]
        self.adapter = adapter
        self._column = column

    def __call__(
        self,
        *,
        completion_ids: list[list[int]],
        task: list[str],
        row: list[int],
        trainer_state: Any,
        asked: list[int] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the number of each response of this process; ``None`` if its scorer failed."""
        if self._column == 0:
            self.adapter.score(completion_ids, task, row, trainer_state.global_step, asked)
        assert self.adapter.scored is not None
        return [None if np.isnan(value) else float(value) for value in self.adapter.scored[:, self._column]]
