"""The environments and estimators inside TRL's ``GRPOTrainer``, which runs on many GPUs.

A score depends on a rollout's own answers and on the weights of its prompt, and an advantage on the scores of its group
besides. So all of it fits behind the trainer's public reward functions: the first one gathers the reward matrices of
the whole batch from all processes, and returns finished advantages as the reward, with weight 1. With
``scale_rewards="none"`` TRL then only subtracts the group's mean, and that of an advantage is 0 already. The score,
every objective and the diversity go along with weight 0, for the logs.

    adapter = TRLAdapter(make_text_env("vpo/Maze-v0", num_answers=3), tokenizer, method="vpo", rollouts_per_prompt=8)
    trainer = adapter.trainer_class(
        model=adapter.end_at_last_answer(model),
        processing_class=tokenizer,
        reward_funcs=adapter.reward_functions(),
        train_dataset=adapter.dataset(range(1000)),
        args=GRPOConfig(**adapter.required_settings(), output_dir="out"),
    )

Credit for each answer (``vpo_credit``) is no number per rollout, so it takes a small subclass, :class:`CreditTrainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from packaging.specifiers import SpecifierSet
from torch import Tensor

from vpo_agent.estimators import Advantages, advantages, estimator
from vpo_agent.estimators.weights import WeightSampler, draw_weights, prompt_key
from vpo_agent.pareto.metrics import diversity
from vpo_agent.policy.samples import Samples
from vpo_agent.rollouts.spans import closing_token, token_credit
from vpo_envs import Status, VectorTextEnv
from vpo_envs.preferences import in_whole_percent

TRL_VERSIONS = ">=1.16,<1.17"
"""The releases of TRL whose reward path the tests have seen; the extra ``trl`` asks for the same."""


def check_trl() -> None:
    """Check that a release of TRL is installed that this adapter knows.

    Raises:
        ModuleNotFoundError: There is none.
        ImportError: It is another one.
    """
    try:
        found = version("trl")
    except PackageNotFoundError:
        raise ModuleNotFoundError(
            "training with TRL needs the package trl: pip install 'vpo-gym[trl]'", name="trl"
        ) from None
    if not SpecifierSet(TRL_VERSIONS).contains(found, prereleases=True):
        raise ImportError(f"the TRL adapter knows trl{TRL_VERSIONS}, not {found}: pip install 'trl{TRL_VERSIONS}'")


check_trl()

from accelerate import PartialState  # noqa: E402 - only once TRL is known to be there, which brings all three
from accelerate.utils import gather_object  # noqa: E402
from datasets import Dataset  # noqa: E402
from trl import GRPOTrainer  # noqa: E402

MEAN_TOLERANCE = 1e-5
"""How far from 0 the mean advantage of a group may be, of which TRL subtracts it."""


class CreditTrainer(GRPOTrainer):
    """TRL's trainer, with credit for each answer added to the advantages of its tokens."""

    credit: Callable[[Tensor, Tensor], Tensor]
    """Takes tokens and mask of the responses of this process, both (B, T), and gives their credit, (B, T)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        adapters = [function.adapter for function in self.reward_funcs if isinstance(function, AdvantageReward)]
        if len(adapters) != 1:
            raise ValueError(
                "CreditTrainer needs the reward functions of a TRLAdapter: pass adapter.reward_functions()"
            )
        self.credit = adapters[0].credit_of_tokens

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        credit = self.credit(output["completion_ids"], output["completion_mask"])
        output["advantages"] = output["advantages"][:, None] + credit.to(output["advantages"])
        return output


class TRLAdapter:
    """Everything that ``GRPOTrainer`` takes from an environment and a method.

    Args:
        env: The environment; its ``num_answers`` says how many answers a response holds.
        tokenizer: The model's.
        method: A registered estimator whose advantages have mean 0 in a group. For ``max_at_k`` that is
            ``baseline="others"``, which is set here.
        method_options: Options of the estimator.
        rollouts_per_prompt: G.
        num_weights: K, for methods that draw weights.
        alpha: Dirichlet concentration of the weights.
        weight_sampler: "sobol" or "iid".
        scalar_weights: Fixed weights of the scalar reward, (d,); the environment's own where ``None``.
        seed: Keys the weights.

    Raises:
        ValueError: An unknown method or option, one that is not mean 0, several answers for a method of single
            answers, or weights of another number than the environment has objectives.
    """

    def __init__(
        self,
        env: VectorTextEnv[Any, Any, Any],
        tokenizer: Any,
        *,
        method: str = "vpo",
        method_options: dict[str, Any] | None = None,
        rollouts_per_prompt: int = 8,
        num_weights: int = 128,
        alpha: float = 1.0,
        weight_sampler: WeightSampler = "sobol",
        scalar_weights: list[float] | None = None,
        seed: int = 0,
    ) -> None:
        if rollouts_per_prompt < 2:
            raise ValueError(f"rollouts_per_prompt must be at least 2 inside TRL, got {rollouts_per_prompt}")
        if scalar_weights is not None and len(scalar_weights) != env.reward_dim:
            raise ValueError(
                f"objective weights for this environment need {env.reward_dim} values, one per objective "
                f"({', '.join(env.objective_names)}); got {len(scalar_weights)}"
            )
        self.env = env
        self.tokenizer = tokenizer
        self.method = method
        self.options = dict(method_options or {})
        if method == "max_at_k":
            self.options.setdefault("baseline", "others")
        self.rollouts_per_prompt = rollouts_per_prompt
        self.num_weights, self.alpha, self.weight_sampler = num_weights, alpha, weight_sampler
        self.scalar_weights = scalar_weights or env.scalar_weights
        self.seed = seed
        self._in_prompt = estimator(method).in_prompt
        self._credit: Tensor | None = None
        self._last: _Scored | None = None
        self._gives_credit = self._try_method()

    # What the trainer is made of -----------------------------------------------------------------------------------

    @property
    def trainer_class(self) -> type[Any]:
        """``GRPOTrainer``, or :class:`CreditTrainer` for a method that gives credit to single answers."""
        return CreditTrainer if self._gives_credit else cast("type[Any]", GRPOTrainer)

    def dataset(self, indices: Iterable[int]) -> Dataset:
        """The tasks with these indices: columns ``prompt``, ``task`` (JSON) and ``row`` (place in this data set).

        A tokenizer with a chat template gets messages, any other plain text. Where the method states its weight in the
        prompt, it stands there.
        """
        tasks = [self.env.task(index) for index in indices]
        prompts = [self.env.prompt(task, self.env.num_answers) for task in tasks]
        if self._in_prompt:
            stated = self._weights(tasks, step=0)[:, 0]
            prompts = [
                self.env.condition(prompt, weights, self.env.active(task))
                for prompt, weights, task in zip(prompts, stated, tasks, strict=True)
            ]
        chat = self.tokenizer.chat_template is not None
        return Dataset.from_dict(
            {
                "prompt": [[{"role": "user", "content": prompt}] for prompt in prompts] if chat else prompts,
                "task": [task.model_dump_json() for task in tasks],
                "row": list(range(len(tasks))),
            }
        )

    def reward_functions(self) -> list[Callable[..., list[float | None]]]:
        """The advantage, and for the logs the score, every objective and the diversity."""
        names = ("score", *self.env.objective_names, "diversity")
        logged = [LoggedReward(self, name, i) for i, name in enumerate(names)]
        return [AdvantageReward(self), *logged]

    def required_settings(self) -> dict[str, Any]:
        """What ``GRPOConfig`` must say for the advantages to arrive unchanged."""
        settings: dict[str, Any] = {
            "num_generations": self.rollouts_per_prompt,
            "reward_weights": [1.0] + [0.0] * (2 + self.env.reward_dim),
            "scale_rewards": "none",
            "multi_objective_aggregation": "sum_then_normalize",
            "remove_unused_columns": False,
            "mask_truncated_completions": False,
        }
        if self.tokenizer.chat_template is not None:
            settings["chat_template_kwargs"] = {"enable_thinking": False}
        return settings

    def end_at_last_answer(self, model: Any) -> Any:
        """Have a model's responses end at the last closing tag, where that is one token of the vocabulary.

        TRL ends responses at single tokens only. Where the tag is several, a response goes on to the end of sequence,
        or with vLLM to a stop string: ``generation_kwargs={"stop": [...], "include_stop_str_in_output": True}``.

        Returns:
            The same model.
        """
        closing = closing_token(self.tokenizer, self.env.num_answers)
        if closing is not None:
            own = model.generation_config.eos_token_id
            before = own if isinstance(own, list) else [self.tokenizer.eos_token_id if own is None else own]
            model.generation_config.eos_token_id = sorted({*(one for one in before if one is not None), closing})
        return model

    # Scores --------------------------------------------------------------------------------------------------------

    def score(self, completion_ids: list[list[int]], tasks: list[str], rows: list[int], step: int) -> _Scored:
        """Score the responses of this process, together with those of all others.

        Args:
            completion_ids: Tokens of the responses of this process; each process has as many.
            tasks: The task of each, as JSON.
            rows: The row of the data set that each belongs to; those of a group are adjacent.
            step: Training step, which keys the weights.

        Raises:
            ValueError: Groups of different sizes, or an estimator whose advantages have another group mean than 0.
        """
        if self._credit is not None:
            raise ValueError(
                f"{self.method} gives credit to answers, which GRPOTrainer drops: use adapter.trainer_class"
            )
        env = self.env
        parsed = {text: env.task_type.model_validate_json(text) for text in set(tasks)}
        texts = self.tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        batch = env.score_batch([parsed[text] for text in tasks], texts)
        local = _Local(rows, tasks, batch.rewards, (batch.status != Status.INVALID).all(axis=1))
        parts: list[_Local] = gather_object([local])
        everyone = _Local(
            [row for part in parts for row in part.rows],
            [task for part in parts for task in part.tasks],
            np.concatenate([part.rewards for part in parts]),
            np.concatenate([part.valid for part in parts]),
        )
        sizes = [len(list(run)) for _, run in groupby(everyone.rows)]
        group = sizes[0]
        if set(sizes) != {group}:
            raise ValueError(f"a batch must hold whole groups of rollouts, got groups of {sorted(set(sizes))}")
        first = [env.task_type.model_validate_json(task) for task in everyone.tasks[::group]]
        rewards = everyone.rewards.reshape(len(first), group, *everyone.rewards.shape[1:])
        valid = everyone.valid.reshape(len(first), group)
        result = self._estimate(rewards, valid, first, step)
        self._check_mean(result.advantages)
        pools = [
            diversity(matrices[kept].reshape(-1, env.reward_dim)) for matrices, kept in zip(rewards, valid, strict=True)
        ]
        logged = np.concatenate(
            [result.scores.flatten()[:, None], everyone.rewards.mean(axis=1), np.repeat(pools, group)[:, None]], axis=1
        )
        # NaN stands for None: TRL then leaves the rollout out of its group, as the estimator does.
        logged[~everyone.valid] = np.nan
        pulls = np.where(everyone.valid, result.advantages.flatten().double().numpy(), np.nan)
        mine = slice(PartialState().process_index * len(rows), (PartialState().process_index + 1) * len(rows))
        if result.credit is not None:
            self._credit = result.credit.flatten(0, 1)[mine]
        self._last = _Scored(pulls[mine], logged[mine])
        return self._last

    def credit_of_tokens(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The credit of the tokens of the responses that were scored last, (B, T); it is handed out once.

        Args:
            ids: Tokens of the responses, padded on the right, (B, T).
            mask: 1 where a token stands, (B, T).
        """
        if self._credit is None:
            return torch.zeros(ids.shape, device=ids.device)
        credit, self._credit = self._credit, None
        here, stands = ids.cpu(), mask.cpu().bool()
        rows = [row[: int(length)] for row, length in zip(here.tolist(), stands.sum(1), strict=True)]
        samples = Samples(
            prompt_ids=here[:0],
            prompt_mask=stands[:0],
            ids=here,
            mask=stands,
            log_probs=torch.zeros(here.shape),
            texts=self.tokenizer.batch_decode(rows, skip_special_tokens=True),
            truncated=torch.zeros(len(here), dtype=torch.bool),
            temperature=1.0,
        )
        return token_credit(self.tokenizer, samples, credit).to(ids.device)

    # Inside --------------------------------------------------------------------------------------------------------

    def _weights(self, tasks: list[Any], step: int) -> NDArray[np.float32]:
        """The weights of each prompt, (P, K, d); those that a prompt states cannot change with the step."""
        weights = draw_weights(
            [prompt_key(task.content_hash()) for task in tasks],
            num_objectives=self.env.reward_dim,
            num_weights=self.num_weights,
            alpha=self.alpha,
            sampler=self.weight_sampler,
            seed=self.seed,
            step=0 if self._in_prompt else step,
            active=np.stack([self.env.active(task) for task in tasks]),
        )
        if self._in_prompt:
            return np.stack([in_whole_percent(weight) for weight in weights[:, 0]])[:, None].astype(np.float32)
        return weights

    def _estimate(
        self, rewards: NDArray[np.float32], valid: NDArray[np.bool_], tasks: list[Any], step: int
    ) -> Advantages:
        needs = estimator(self.method).needs_weights
        return advantages(
            torch.from_numpy(rewards),
            method=self.method,
            weights=torch.from_numpy(self._weights(tasks, step)) if needs else None,
            scalar_weights=self.scalar_weights,
            active=torch.from_numpy(np.stack([self.env.active(task) for task in tasks])),
            valid=torch.from_numpy(valid),
            **self.options,
        )

    def _try_method(self) -> bool:
        """Try the estimator on random rewards, so that one that does not fit is known now; whether it gives credit."""
        shape = (2, self.rollouts_per_prompt, self.env.num_answers, self.env.reward_dim)
        rewards = np.random.default_rng(0).random(shape, dtype=np.float32)
        tasks = [self.env.task(0), self.env.task(1)]
        result = self._estimate(rewards, np.ones(shape[:2], dtype=bool), tasks, 0)
        self._check_mean(result.advantages)
        return result.credit is not None

    def _check_mean(self, of_groups: Tensor) -> None:
        if (means := of_groups.double().mean(1).abs()).max() > MEAN_TOLERANCE:
            named = ", ".join([self.method, *(f"{name}={value!r}" for name, value in self.options.items())])
            raise ValueError(
                f"the advantages of {named} have a group mean of {means.max():.2g}, which TRL would subtract: use a "
                "method with mean 0, such as vpo, grpo, or max_at_k with baseline='others'"
            )


class AdvantageReward:
    """The reward function that returns finished advantages, and makes the others' numbers on the way."""

    __name__ = "advantage"

    def __init__(self, adapter: TRLAdapter) -> None:
        self.adapter = adapter

    def __call__(
        self, *, completion_ids: list[list[int]], task: list[str], row: list[int], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        """The advantage of each response of this process; ``None`` where its scorer failed."""
        return _with_none(self.adapter.score(completion_ids, task, row, trainer_state.global_step).advantages)


class LoggedReward:
    """A reward function of weight 0 that returns a number about each response for the logs."""

    def __init__(self, adapter: TRLAdapter, name: str, column: int) -> None:
        self.__name__ = name
        self._adapter = adapter
        self._column = column

    def __call__(self, **_: Any) -> list[float | None]:
        """The number of each response that :class:`AdvantageReward` has scored just before."""
        assert self._adapter._last is not None
        return _with_none(self._adapter._last.logged[:, self._column])


class _Local(NamedTuple):
    """What one process knows about its responses."""

    rows: list[int]
    tasks: list[str]
    rewards: NDArray[np.float32]
    valid: NDArray[np.bool_]


class _Scored(NamedTuple):
    """What the reward functions return for the responses of this process; NaN where the scorer failed."""

    advantages: NDArray[np.float64]
    logged: NDArray[np.float64]
    """Score, objectives and diversity, (B, 2 + d)."""


def _with_none(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
