"""Estimators as an algorithm of prime-rl, on rollouts of the tasksets that ``vpo export verifiers`` writes.

prime-rl scores a whole group of rollouts in its orchestrator, and takes an advantage for each token; so every estimator
that needs no more than the rewards of a group fits, also the ones that give credit to single answers. prime-rl has no
setting that names user code. Start its orchestrator from a script that registers the algorithm in place of ``grpo``:

    from prime_rl.entrypoints.orchestrator import main
    from vpo_agent.adapters.prime_rl import register

    register("vpo_credit")
    main()
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import AutoTokenizer

from vpo_agent.estimators import estimator
from vpo_agent.learning.bound_estimator import BoundEstimator
from vpo_agent.rollouts.spans import token_credit

if find_spec("prime_rl") is None:
    raise ValueError("training with prime-rl needs prime-rl, which is not on PyPI: install it from its repository")

try:
    from prime_rl.orchestrator.algo import ALGORITHM_CLASSES, Algorithm, assign_advantages
    from prime_rl.orchestrator.algo.base import iter_trainable_traces
except ImportError as error:
    raise ValueError(
        f"training with prime-rl needs its version 0.8.0, and another or a part of it is installed ({error}): install "
        "it from its repository"
    ) from error

import verifiers.v1 as vf

from vpo_envs.adapters.verifiers import text_env


class VectorAlgorithm(Algorithm):
    """Gives a group the advantages of an estimator, and its answers their credit; :func:`register` fills it in.

    The weights of a prompt are a function of (seed, prompt), since rollouts of one group may start at different steps.
    A rollout whose scorer failed is not in its group.
    """

    action_loss_type = "rl"
    method: ClassVar[str]
    method_options: ClassVar[Mapping[str, Any]]
    settings: ClassVar[Mapping[str, Any]]

    def __init__(self, config: Any, policy_pool: Any) -> None:
        super().__init__(config, policy_pool)
        if getattr(config, "length_penalty", None) is not None:
            raise ValueError(f"{self.method} has no length_penalty: remove it from the algorithm's settings")
        self.tokenizer: Any = None

    async def setup(self) -> None:
        """Load the tokenizer of the policy, which maps answers to tokens."""
        self.tokenizer = AutoTokenizer.from_pretrained(self.policy_pool.model_name)

    async def score_group(self, episodes: list[vf.Episode]) -> None:
        """Assign advantages to the sampled tokens of the rollouts to one prompt.

        Raises:
            ValueError: A rollout has no reward matrix, or the estimator does not fit the environment.
        """
        traces = [trace for _, trace in iter_trainable_traces(episodes)]
        if not traces:
            return
        if any("reward_matrix" not in trace.info for trace in traces):
            raise ValueError(
                f"a rollout of {traces[0].task.type} has no reward_matrix: write the taskset with vpo export verifiers"
            )
        data = traces[0].task.data
        env = text_env(data)
        task = env.task_type.model_validate(data.instance)
        bound = BoundEstimator(env, self.method, self.method_options, **self.settings)
        rewards = np.array([trace.info["reward_matrix"] for trace in traces], dtype=np.float32)[None]
        valid = np.ones((1, len(traces)), dtype=bool)
        result = bound.estimate(rewards, valid, [task], bound.weights([task], 0))
        for place, trace in enumerate(traces):
            advantage = float(result.advantages[0, place])
            if result.credit is None:
                assign_advantages(trace, advantage)
                continue
            tokens = torch.tensor([[token for node in trace.nodes for token in sampled_tokens(node)]])
            credit = token_credit(self.tokenizer, tokens, torch.ones_like(tokens), result.credit[:1, place])
            assign_advantages(trace, (advantage + credit[0]).tolist())


def sampled_tokens(node: vf.MessageNode) -> list[int]:
    """Return the tokens of a node that the policy sampled."""
    return [token for token, sampled in zip(node.token_ids, node.mask, strict=True) if sampled]


def register(
    method: str = "vpo", method_options: Mapping[str, Any] | None = None, *, replaces: str = "grpo", **settings: Any
) -> type[VectorAlgorithm]:
    """Make prime-rl run an estimator where its configuration names the algorithm ``replaces``.

    Args:
        method: A registered estimator that needs only the rewards of a group, such as "vpo" or "vpo_credit".
        method_options: Options of the estimator.
        replaces: An algorithm of prime-rl whose loss is ``rl``.
        **settings: Other fields of :class:`~vpo_agent.learning.bound_estimator.BoundEstimator`.

    Returns:
        The algorithm.

    Raises:
        ValueError: An unknown estimator, or one that needs values of unfinished answers or weights in the prompt; or an
            algorithm that prime-rl does not have, or whose loss is another.
    """
    if estimator(method).needs_potentials or estimator(method).in_prompt:
        needed = "values of unfinished answers" if estimator(method).needs_potentials else "weights in the prompt"
        raise ValueError(f"{method} needs {needed}, which prime-rl has no place for: use the built-in trainer")
    fitting = [name for name, one in ALGORITHM_CLASSES.items() if one.action_loss_type == "rl"]
    if replaces not in fitting:
        raise ValueError(f"{replaces} is no algorithm of prime-rl with the loss rl: choose one of {', '.join(fitting)}")
    members = {"method": method, "method_options": dict(method_options or {}), "settings": settings}
    algorithm = type("VectorAlgorithm", (VectorAlgorithm,), {"__doc__": f"{method} as an algorithm.", **members})
    ALGORITHM_CLASSES[replaces] = algorithm
    return algorithm
