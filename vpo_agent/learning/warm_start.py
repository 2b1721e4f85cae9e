"""Supervised warm start: a model learns an environment's answer format from its demonstrations, before any RL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from vpo_agent.learning.optimizer import MasterAdamW
from vpo_agent.learning.update import MicroBatches
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples
from vpo_agent.policy.turns import response_tokens
from vpo_agent.rollouts.prompts import check_longest
from vpo_envs.core import AnyEnv

WARM_UP_STEPS = 100
"""Most steps over which the learning rate rises."""


class WarmStart:
    """Next-token prediction on demonstrated responses, step by step, with the same prompts as in rollouts.

    The rate of AdamW rises over the first fifth of the steps, at most :data:`WARM_UP_STEPS`, and falls to zero over the
    last fifth.
    Each step depends on the weights, the optimizer's state and its number alone, so a run can be continued.
    """

    def __init__(
        self,
        policy: LMPolicy,
        env: AnyEnv,
        *,
        steps: int,
        batch: int,
        learning_rate: float,
        responses: int = 1,
        answers: Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        self.policy, self.env, self.steps, self.seed = policy, env, steps, seed
        self.num_tasks, self.responses = batch // responses, responses
        self.answers = list(answers or [env.num_answers])
        self.learning_rate = learning_rate
        self.optimizer = MasterAdamW(
            policy.model.named_parameters(), learning_rate=learning_rate, beta2=0.98, weight_decay=0.01
        )
        self.microbatches = MicroBatches("auto", policy.device, packs=policy.packs, option=None, shorten="--responses")
        self.done = 0
        """Steps taken."""

    def samples(self) -> Samples:
        """Return the demonstrated responses of the next step."""
        indices = range(self.done * self.num_tasks, (self.done + 1) * self.num_tasks)
        rng = np.random.default_rng([self.seed, self.done])
        return demonstrated(self.policy, self.env, indices, rng, self.answers, self.responses)

    def learn(self, samples: Samples) -> float:
        """Take the step on these responses; return the loss, in nats per token."""
        loss = self._gradient(samples)
        rise = (self.done + 1) / min(WARM_UP_STEPS, self.steps / 5)
        fall = 5 * (self.steps - self.done) / self.steps
        self.optimizer.step(self.learning_rate * min(1.0, rise, fall), max_norm=1.0)
        self.done += 1
        return loss

    def _gradient(self, samples: Samples) -> float:
        """Accumulate the gradient of the loss in the optimizer; return the loss."""
        tokens = samples.trained.sum()
        while True:
            self.optimizer.zero_grad()
            with self.microbatches.halved_if_out_of_memory():
                total = 0.0
                for prompts in self.microbatches.split(samples, torch.arange(self.num_tasks)):
                    loss = -self.policy.log_probs(samples.subset(prompts))[0].sum() / tokens
                    loss.backward()
                    total += float(loss.detach())
                return total


def demonstrated(
    policy: LMPolicy,
    env: AnyEnv,
    indices: Sequence[int],
    rng: np.random.Generator,
    answers: Sequence[int],
    each: int = 1,
) -> Samples:
    """Return ``each`` demonstrated responses to each task, as samples that end with the end of sequence."""
    prompts, texts = [], []
    for task in map(env.task, indices):
        m = int(rng.choice(list(answers)))
        prompts.append(env.chat_prompt(task, m))
        texts += [policy.chat.closed + env.demonstrated(task, rng, m) for _ in range(each)]
    encoded = policy.encode_prompts(prompts)
    end = policy.chat.end_ids
    tokens, own = response_tokens(policy.chat, texts)
    rows = [[*row, *end] for row in tokens]
    trained = [[*row, *[True] * len(end)] for row in own]
    policy.cached_model.check_tokens(rows)
    lengths = encoded[1].sum(1)
    check_longest(policy, env, indices[int(lengths.argmax())], int(lengths.max()), max(map(len, rows)))
    zeros = [[0.0] * len(row) for row in rows]
    return Samples.of(encoded, rows, zeros, [False] * len(rows), 1.0, texts, trained)


def demonstrated_tokens(policy: LMPolicy, env: AnyEnv, num_tasks: int) -> int:
    """Return the tokens of the longest demonstration of the first ``num_tasks`` tasks, the end token included."""
    rng, m = np.random.default_rng(0), env.num_answers
    texts = [policy.chat.closed + env.demonstrated(task, rng, m) for task in map(env.task, range(num_tasks))]
    return 1 + max(map(sum, response_tokens(policy.chat, texts)[1]))
