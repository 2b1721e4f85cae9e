"""Environments and estimators inside TRL's ``GRPOTrainer``, which runs on many GPUs.

A score depends on the answers of one rollout and the weights of its prompt, and an advantage on the scores of its
group. So public reward functions suffice: the first one gathers the reward matrices of the whole batch from all
processes, and returns finished advantages as the reward, with weight 1. With ``scale_rewards="none"`` TRL only
subtracts the group's mean, which is 0 already. The score, every objective and the diversity have weight 0 and appear in
the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vpo_agent.estimators.bound import BoundEstimator
from vpo_agent.estimators.losses import token_weights
from vpo_agent.measure.measures import free_name
from vpo_agent.measure.metrics import diversity
from vpo_agent.policy.chat import ChatFormat
from vpo_agent.policy.language_model import LMPolicy
from vpo_envs import Status
from vpo_envs.common.libraries import check_package
from vpo_envs.common.thoughts import find_thoughts
from vpo_envs.core import AnyEnv, turns_of
from vpo_envs.text import answer_tags, as_messages, as_text, end_tags

# The extra allows only releases whose reward path is tested.
check_package("trl", "trl", "training with TRL")

from accelerate import PartialState  # noqa: E402 - after the check, since TRL brings both
from accelerate.utils import gather_object  # noqa: E402
from datasets import Dataset  # noqa: E402

MEAN_TOLERANCE = 1e-5
"""Largest absolute group mean of the advantages, which TRL subtracts."""


class Written(NamedTuple):
    """What a model wrote in one response."""

    text: str
    """The whole response, with the replies of the environment in it."""
    tokens: int
    """Number of tokens that the model wrote; tokens of replies do not count."""
    is_cut: bool
    """Whether the response was cut off before its end."""


class ScoredResponse(NamedTuple):
    """A response with its rewards, as processes exchange it."""

    row: int
    """Row of the data set; responses to the same row are a group."""
    task: str
    """The task as JSON."""
    num_answers: int
    """Number of answers that the prompt asked for, m."""
    tokens: int
    rewards: NDArray[np.float32]
    """Reward vectors of the answers, (m, d)."""
    valid: bool
    """Whether the scorer worked for every answer."""


class TRLAdapter:
    """Arguments of ``GRPOTrainer`` for an environment and a method.

    Args:
        env: The environment.
        tokenizer: The model's tokenizer.
        method: A registered estimator whose advantages have mean 0 in a group. ``max_at_k`` and ``set_rl``
            have that with ``baseline="others"``, which is set here.
        method_options: Options of the estimator.
        rollouts_per_prompt: Rollouts of each prompt, G, at least 2.
        num_answers: The different numbers of answers that prompts may ask for; the environment's number by default.
        updates_per_step: Optimizer steps that TRL takes on the rollouts of a training step.
        thinking: Whether the chat template is asked for thoughts before the answer.
        date: The date for chat templates that write one, such as ``2026-01-31``; today by default.
        **settings: Other fields of :class:`~vpo_agent.estimators.bound.BoundEstimator`.

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
        updates_per_step: int = 1,
        thinking: bool = False,
        date: str | None = None,
        **settings: Any,
    ) -> None:
        if rollouts_per_prompt < 2:
            raise ValueError(f"rollouts_per_prompt must be at least 2 inside TRL; got {rollouts_per_prompt}")
        options = dict(method_options or {})
        if method in ("max_at_k", "set_rl"):
            options.setdefault("baseline", "others")
        self.env = env
        self.tokenizer = tokenizer
        self.chat = ChatFormat(tokenizer, thinking=thinking, date=date)
        """How prompts become tokens."""
        self._ending_ids = {*as_list(tokenizer.eos_token_id), *as_list(self.chat.turn_end_id)}
        self._own_settings: tuple[Any, ...] = ()
        """The model of the trainer and its own settings, which the trainer changes."""
        self.estimator = BoundEstimator(env, method, options, **settings)
        self.rollouts_per_prompt = rollouts_per_prompt
        self.num_answers = tuple(num_answers) or (env.num_answers,)
        self.updates_per_step = updates_per_step
        reserved = ("advantage", "score", "diversity")
        objectives = [free_name(name, reserved) for name in env.objective_names]
        self.columns = ("advantage", "score", *objectives, "diversity")
        """Names of the reward functions."""
        self.truncated = 0.0
        """Share of this process's last responses that ran into the length limit, or ended inside their thoughts."""
        self.inputs: list[dict[str, Any]] = []
        """Rows of the data set that are being sampled for."""
        self._policy: LMPolicy | None = None
        self.scored: NDArray[np.float64] | None = None
        """Values of the reward functions for the B responses of this process, (B, 3 + d); NaN stands for ``None``."""
        for m in self.num_answers:
            self._check_mean(self.estimator.try_out(rollouts_per_prompt, m).advantages)

    def set_date(self, date: str | None) -> None:
        """Let the chat template write another day, see the argument ``date``."""
        self.chat = ChatFormat(self.tokenizer, thinking=self.chat.thinking, date=date)

    # Arguments of the trainer --------------------------------------------------------------------------------------

    def dataset(self, indices: Iterable[int], num_answers: Sequence[int] | None = None) -> Dataset:
        """Return the tasks with these indices.

        The columns are ``prompt``, ``task`` (JSON), ``row`` (index in the data set) and ``num_answers`` (how many
        answers the prompt asks for: as given for each task, or the environment's number). Prompts are chat messages if
        the tokenizer has a chat template, otherwise plain text.
        """
        tasks = [self.env.task(index) for index in indices]
        numbers = list(num_answers or [self.num_answers[0]] * len(tasks))
        prompts = [self.env.chat_prompt(task, m) for task, m in zip(tasks, numbers, strict=True)]
        asked = [as_messages(prompt) if self.chat.is_chat else as_text(prompt) for prompt in prompts]
        if self.chat.is_chat:
            # TRL's own formatting does not say which messages a template leaves out.
            self.chat.encode(prompts)
        return Dataset.from_dict(
            {
                "prompt": asked,
                "task": [task.model_dump_json() for task in tasks],
                "row": list(range(len(tasks))),
                "num_answers": numbers,
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
        if self.chat.is_chat:
            settings["chat_template_kwargs"] = self.chat.switches
        return settings

    def end_at_last_answer(self, model: Any) -> Any:
        """Make responses end with the turn, and at the last closing tag if that is one token; return the model.

        If prompts ask for different numbers of answers, responses do not end at tags that longer responses also hold.
        If responses begin with thoughts, they end at no tag, since a tag inside the thoughts would end them too. TRL
        ends responses at single tokens only. If the tag is several tokens, a response continues to the end of sequence,
        or with vLLM to a stop string, see :meth:`vllm_settings`. The trainer of :meth:`trainer_type` saves the model
        with its own end-of-sequence tokens.
        """
        special = {name: value for name, value in vars(model.config).items() if name.endswith("_token_id")}
        self._own_settings = (model, deepcopy(model.generation_config), special, self.tokenizer.pad_token)
        tags = [] if self.chat.thinks else end_tags(self.num_answers)
        ending_ids = {*(closing_token(self.tokenizer, tag) for tag in tags), self.chat.turn_end_id} - {None}
        if ending_ids:
            eos_ids = as_list(model.generation_config.eos_token_id) or as_list(self.tokenizer.eos_token_id)
            model.generation_config.eos_token_id = sorted({*eos_ids, *ending_ids})
        self._ending_ids |= set(as_list(model.generation_config.eos_token_id))
        return model

    def vllm_settings(self) -> dict[str, Any]:
        """Return ``generation_kwargs`` for vLLM, which ends responses at strings too, but not inside thoughts."""
        turn_end = [self.chat.turn_end_text] if self.chat.turn_end_text else []
        settings: dict[str, Any] = {
            "stop": turn_end + ([] if self.chat.thinks else end_tags(self.num_answers)),
            "include_stop_str_in_output": True,
            # Tags may be special tokens, and stop strings are looked for in the text.
            "skip_special_tokens": False,
        }
        if self.chat.turn_end_id is not None:
            settings["stop_token_ids"] = [self.chat.turn_end_id]
        return settings

    def trainer_type(self) -> type[Any]:
        """Return ``GRPOTrainer`` with the prompts and the saved settings of this library.

        Prompts have the same tokens as in the built-in trainer: one beginning, no end, and the date of the run. What is
        saved has the model's own generation settings and special tokens, not the training's.
        """
        from trl import GRPOTrainer

        adapter = self

        class AdaptedTrainer(GRPOTrainer):
            def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
                adapter.inputs = inputs
                return super()._generate_and_score_completions(inputs)

            def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
                return adapter.chat.encode(prompts), None, {}

            def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
                with adapter.own_settings():
                    super()._save(output_dir, state_dict)

        return AdaptedTrainer

    @contextmanager
    def own_settings(self) -> Iterator[None]:
        """Give the model of :meth:`end_at_last_answer`, and its tokenizer, their own settings while the block runs."""
        if not self._own_settings:
            yield
            return
        model, generation_config, special, pad_token = self._own_settings
        generation_config_of_training, config_of_training = model.generation_config, dict(vars(model.config))
        pad_token_of_training = self.tokenizer.pad_token
        try:
            self.tokenizer.pad_token = pad_token
            model.generation_config = generation_config
            vars(model.config).update(special)
            yield
        finally:
            self.tokenizer.pad_token = pad_token_of_training
            model.generation_config = generation_config_of_training
            vars(model.config).update(config_of_training)

    def sample_turns(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Sample responses in which the environment replies; it is the ``rollout_func`` of TRL's trainer.

        Replies are marked in ``env_mask``, so TRL trains and counts what the model wrote alone. Each process samples by
        the built-in loop, with the weights of its own model, which must be whole.
        """
        training = trainer.model.training
        if self._policy is None:
            model = trainer.accelerator.unwrap_model(trainer.model)
            self._policy = LMPolicy(model, self.tokenizer, thinking=self.chat.thinking, date=self.chat.date)
        tasks = [self.env.task_type.model_validate_json(row["task"]) for row in self.inputs]
        numbers = [row["num_answers"] for row in self.inputs]
        samples = self._policy.sample(
            [self.env.chat_prompt(task, m) for task, m in zip(tasks, numbers, strict=True)],
            rollouts=1,
            num_answers=numbers,
            max_new_tokens=trainer.max_completion_length,
            temperature=trainer.temperature,
            seed=[trainer.args.seed, trainer.state.global_step, PartialState().process_index],
            turns=turns_of(self.env, tasks, numbers),
        )
        trainer.model.train(training)

        def rows(values: Tensor, mask: Tensor) -> list[list[Any]]:
            return [row[seen].tolist() for row, seen in zip(values, mask, strict=True)]

        written = zip(samples.texts, samples.tokens.tolist(), samples.truncated.tolist(), strict=True)
        return {
            "prompt_ids": rows(samples.prompt_ids, samples.prompt_mask),
            "completion_ids": rows(samples.ids, samples.mask),
            "logprobs": rows(samples.log_probs, samples.mask),
            "env_mask": rows(samples.trained.int(), samples.mask),
            "response": [Written(*response) for response in written],
        }

    # Scores --------------------------------------------------------------------------------------------------------

    def score(
        self,
        completion_ids: list[list[int]],
        tasks: list[str],
        rows: list[int],
        step: int,
        num_answers: list[int] | None = None,
        written: list[Written] | None = None,
    ) -> None:
        """Score the responses of this process together with those of all others, into :attr:`scored`.

        Args:
            completion_ids: Tokens of the responses of this process; each process has the same number.
            tasks: The task of each response, as JSON.
            rows: The row of the data set that each response belongs to; the responses of a group are adjacent.
            step: Training step, which keys the weights.
            num_answers: The number of answers that each response was asked for; the environment's number by default.
            written: What was written in each response, where the environment replies.

        Raises:
            ValueError: The batch splits a group of rollouts.
        """
        numbers = num_answers or [self.num_answers[0]] * len(tasks)
        written = written or [
            Written(text, len(tokens), self._is_cut(tokens, text, m))
            for tokens, text, m in zip(completion_ids, self.chat.read(completion_ids), numbers, strict=True)
        ]
        self.truncated = sum(response.is_cut for response in written) / len(written)
        responses: list[ScoredResponse] = gather_object(self._score_responses(written, tasks, rows, numbers))
        columns = self._columns(responses, step)
        first = PartialState().process_index * len(rows)
        self.scored = columns[first : first + len(rows)]

    def _score_responses(
        self, written: list[Written], tasks: list[str], rows: list[int], num_answers: list[int]
    ) -> list[ScoredResponse]:
        """Score the responses of this process; responses with equally many answers are scored together."""
        task_of = {text: self.env.task_type.model_validate_json(text) for text in set(tasks)}
        scored: dict[int, ScoredResponse] = {}
        for m in set(num_answers):
            indices = [index for index, number in enumerate(num_answers) if number == m]
            batch = self.env.score_batch(
                [task_of[tasks[index]] for index in indices], [written[index].text for index in indices], m
            )
            valid = (batch.status != Status.INVALID).all(axis=1)
            for position, index in enumerate(indices):
                scored[index] = ScoredResponse(
                    row=rows[index],
                    task=tasks[index],
                    num_answers=m,
                    tokens=written[index].tokens,
                    rewards=batch.rewards[position],
                    valid=bool(valid[position]),
                )
        return [scored[index] for index in range(len(tasks))]

    def _columns(self, responses: list[ScoredResponse], step: int) -> NDArray[np.float64]:
        """Return the values of :attr:`columns` for whole groups of responses, (P·G, 3 + d)."""
        group = _group_size(responses)
        first_of_groups = responses[::group]
        tasks = [self.env.task_type.model_validate_json(response.task) for response in first_of_groups]
        num_answers = np.array([response.num_answers for response in first_of_groups])
        rewards = np.zeros((len(tasks), group, int(num_answers.max()), self.env.reward_dim), dtype=np.float32)
        for index, response in enumerate(responses):
            rewards[index // group, index % group, : response.num_answers] = response.rewards
        answered = np.arange(rewards.shape[2]) < num_answers[:, None]
        valid = np.array([response.valid for response in responses]).reshape(len(tasks), group)
        active = np.stack([self.env.active(task) for task in tasks])
        result = self.estimator.estimate(tasks, rewards, step=step, active=active, valid=valid, answered=answered)
        self._check_mean(result.advantages)
        tokens = torch.tensor([response.tokens for response in responses]).view(len(tasks), group).sum(1)
        weights = token_weights(tokens, torch.from_numpy(num_answers)).numpy()
        means = rewards.sum(axis=2) / num_answers[:, None, None]
        diversities = np.empty(valid.shape)
        for number, (rollouts, scored, asked) in enumerate(zip(rewards, valid, answered, strict=True)):
            diversities[number] = diversity(rollouts[scored][:, asked].reshape(-1, self.env.reward_dim))
        columns = np.concatenate(
            [
                result.advantages.double().numpy()[..., None] * weights[:, None, None],
                result.scores.numpy()[..., None],
                np.where(active[:, None], means, np.nan),
                diversities[..., None],
            ],
            axis=-1,
        )
        # TRL leaves a rollout without a score out of its group, as the estimator does.
        columns[~valid] = np.nan
        return columns.reshape(-1, len(self.columns))

    def _is_cut(self, tokens: list[int], text: str, num_answers: int) -> bool:
        """Whether a response ended inside its thoughts, or neither with its last answer nor by itself."""
        masked, unclosed = find_thoughts(text)
        return unclosed or not (tokens[-1] in self._ending_ids or answer_tags(num_answers)[-1][1] in masked)

    # Details -------------------------------------------------------------------------------------------------------

    def _check_mean(self, advantages: Tensor) -> None:
        """Raise ValueError unless the advantages (P, G) have mean 0 in each group."""
        largest = advantages.double().mean(1).abs().max()
        if largest > MEAN_TOLERANCE:
            options = [f"{name}={value!r}" for name, value in self.estimator.options.items()]
            method = ", ".join([self.estimator.name, *options])
            raise ValueError(
                f"the advantages of {method} have a group mean of {largest:.2g}, which TRL would subtract: use a "
                "method with mean 0, such as vpo, grpo, or max_at_k with baseline='others'"
            )


def as_list(token_ids: int | list[int] | None) -> list[int]:
    """Return end-of-sequence tokens, in any of the forms that settings have, as a list."""
    return token_ids if isinstance(token_ids, list) else [] if token_ids is None else [token_ids]


def closing_token(tokenizer: Any, tag: str) -> int | None:
    """Return the id of the token that is the closing ``tag``; ``None`` if the tag is several tokens."""
    ids: list[int] = tokenizer(tag, add_special_tokens=False)["input_ids"]
    return ids[0] if len(ids) == 1 and tokenizer.decode(ids) == tag else None


def _group_size(responses: Sequence[ScoredResponse]) -> int:
    """Return the number of rollouts of each group, G; ValueError unless it is the same for all groups."""
    sizes = {len(list(group)) for _, group in groupby(responses, key=lambda response: response.row)}
    if len(sizes) > 1:
        raise ValueError(f"a batch must hold whole groups of rollouts; got groups of {sorted(sizes)}")
    return sizes.pop()


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
        num_answers: list[int] | None = None,
        response: list[Written] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the value of each response of this process; ``None`` if its scorer failed."""
        if self._column == 0:
            self.adapter.env.set_trainer(self.adapter.chat.encode_texts, lambda: trainer_state)
            step = trainer_state.global_step // self.adapter.updates_per_step
            self.adapter.score(completion_ids, task, row, step, num_answers, response)
            if log_metric is not None:
                log_metric("truncated", self.adapter.truncated)
        assert self.adapter.scored is not None
        return [None if np.isnan(value) else float(value) for value in self.adapter.scored[:, self._column]]
