"""The update of one step: gradient steps on a batch of rollouts and their advantages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vpo_agent.config import TrainConfig
from vpo_agent.losses import policy_loss
from vpo_agent.microbatch import MicroBatches
from vpo_agent.optimizer import MasterAdamW
from vpo_agent.policy import LMPolicy
from vpo_agent.samples import Samples

SHUFFLE_STREAM = 2


class PolicyUpdate:
    """Takes the policy from one step to the next.

    Where the device's memory does not hold a micro-batch, micro-batches have half as many prompts from then on.

    Args:
        config: The settings.
        policy: What is trained.
        reference: The initial model, for the KL penalty; ``None`` where there is no penalty, or where the policy has
            LoRA adapters, which are switched off for it.
    """

    def __init__(self, config: TrainConfig, policy: LMPolicy, reference: LMPolicy | None) -> None:
        self.config = config
        self.policy = policy
        self.reference = reference
        self.microbatches = MicroBatches(config.microbatch_prompts, policy.device)
        self.optimizer = MasterAdamW(
            policy.model.named_parameters(),
            learning_rate=config.learning_rate,
            beta2=config.adam_beta2,
            weight_decay=config.weight_decay,
        )

    def step(self, samples: Samples, advantages: Tensor, valid: Tensor, step: int) -> tuple[bool, dict[str, Any]]:
        """Take the gradient steps of one batch; a loss or gradient that is not finite ends it.

        Args:
            samples: P prompts, G rollouts of each.
            advantages: (P, G), or (P, G, T) where the tokens of a rollout have advantages of their own.
            valid: (P, G), False for rollouts to leave out.
            step: Steps taken before this one.

        Returns:
            Whether all was finite, and what to log.

        Raises:
            OutOfMemory: The memory does not hold a single prompt with its rollouts.
        """
        config = self.config
        samples = replace(samples, mask=samples.mask & valid.flatten().to(samples.mask.device)[:, None])
        totals: dict[str, float] = dict.fromkeys(
            ("loss", "kl", "clip_fraction", "approx_kl", "entropy", "grad_norm"), 0.0
        )
        rate = config.learning_rate * min(1.0, (step + 1) / (config.warmup_steps + 1))
        optimizer_steps = 0
        # A policy that is not finite earns nothing anywhere, which must not pass for groups without signal.
        finite = bool(samples.log_probs.isfinite().all())
        if not finite:
            return False, {**dict.fromkeys(totals, math.nan), "learning_rate": rate}
        for minibatch in self._minibatches(len(advantages), step):
            terms = self.gradient(samples, advantages, minibatch)
            optimizer_steps += 1
            if terms is None:
                continue
            finite = math.isfinite(terms["loss"])
            norm = self.optimizer.step(rate, config.max_grad_norm) if finite else math.nan
            for name, value in {**terms, "grad_norm": norm}.items():
                totals[name] += value
            finite = math.isfinite(norm)
            if not finite:
                break
        self.optimizer.zero_grad()
        return finite, {**{name: value / optimizer_steps for name, value in totals.items()}, "learning_rate": rate}

    def gradient(self, samples: Samples, advantages: Tensor, minibatch: Tensor) -> dict[str, float] | None:
        """Put the gradient of the loss over the prompts ``minibatch``, (n,), into the optimizer.

        Returns:
            The loss and diagnostics; ``None`` where no group has an advantage and nothing else pulls.
        """
        config = self.config
        self.optimizer.zero_grad()
        lengths = samples.mask.sum(1).view(len(advantages), -1).cpu()
        tokens = float(lengths[minibatch].sum())
        sequences = float((lengths[minibatch] > 0).sum())
        normalizer = {"token_mean": tokens, "sequence_mean": sequences}.get(
            config.aggregation, sequences * config.max_new_tokens
        )
        has_signal = (advantages[minibatch] != 0).flatten(1).any(1)
        used = minibatch if config.kl_coef else minibatch[has_signal]
        # A group whose rollouts were all left out has nothing to say.
        used = used[(lengths[used] > 0).any(1)]
        if not len(used):
            return None
        # Groups of like length share a micro-batch, which saves padding.
        used = used[lengths.amax(1)[used].argsort(stable=True)]
        tokens_each = self._tokens_computed(samples, lengths)[used].tolist()
        while True:
            sizes = self.microbatches.sizes(tokens_each)
            try:
                terms = self._accumulate(samples, advantages, used, sizes, normalizer)
                self.microbatches.say()
                return terms
            except torch.OutOfMemoryError:
                self.microbatches.halve(max(sizes))
            # Only here, where the error no longer holds the tensors of the failed pass.
            self.optimizer.zero_grad()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _tokens_computed(self, samples: Samples, lengths: Tensor) -> Tensor:
        """Tokens that a pass computes for each prompt with its rollouts, whose lengths are (P, G): (P,)."""
        prompts = samples.prompt_mask.sum(1).cpu()
        if self.policy.packs:
            return prompts + lengths.sum(1)
        return lengths.shape[1] * (prompts + lengths.amax(1))

    def _accumulate(
        self, samples: Samples, advantages: Tensor, used: Tensor, sizes: list[int], normalizer: float
    ) -> dict[str, float]:
        """Add the gradients of the prompts ``used``, (n,), in micro-batches of these sizes; what to log."""
        totals = dict.fromkeys(("loss", "kl", "clip_fraction", "approx_kl", "entropy"), 0.0)
        tokens_used = float(samples.mask.sum(1).view(len(advantages), -1).cpu()[used].sum())
        for part in used.split(sizes):
            batch = samples.subset(part)
            pulls = (
                advantages[part].flatten(0, 1)[..., : batch.ids.shape[1]]
                if advantages.dim() == 3
                else advantages[part].flatten()
            )
            terms = self._backward(batch, pulls, normalizer)
            share = terms.pop("tokens") / tokens_used
            for name, value in terms.items():
                totals[name] += value if name in ("loss", "kl") else value * share
        return totals

    def _backward(self, samples: Samples, advantages: Tensor, normalizer: float) -> dict[str, float]:
        """Add the gradient of one micro-batch; its share of the loss and what to log."""
        config = self.config
        log_probs, entropy = self.policy.log_probs(samples, entropy=True)
        assert entropy is not None
        reference = None
        if config.kl_coef:
            with torch.no_grad():
                reference = self._reference_log_probs(samples)
        terms = policy_loss(
            log_probs,
            samples.log_probs,
            advantages.to(log_probs.device),
            samples.mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            reference_log_probs=reference,
            kl_coef=config.kl_coef,
            kl_estimator=config.kl_estimator,
            aggregation=config.aggregation,
            normalizer=max(normalizer, 1.0),
        )
        if bool(torch.isfinite(terms.loss)):
            terms.loss.backward()
        return {
            "loss": float(terms.loss.detach()),
            "kl": float(terms.kl),
            "clip_fraction": float(terms.clip_fraction),
            "approx_kl": float(terms.approx_kl),
            "entropy": float(entropy.mean()) if len(entropy) else 0.0,
            "tokens": float(terms.tokens),
        }

    def _minibatches(self, prompts: int, step: int) -> Iterator[Tensor]:
        """Indices of the prompts of each optimizer step, shuffled by (seed, step) where there are several."""
        size = self.config.minibatch_prompts or prompts
        for epoch in range(self.config.epochs):
            indices = torch.arange(prompts)
            if size < prompts:
                rng = np.random.default_rng([self.config.seed, SHUFFLE_STREAM, step, epoch])
                indices = torch.from_numpy(rng.permutation(prompts))
            yield from indices.split(size)

    def _reference_log_probs(self, samples: Samples) -> Tensor:
        if self.reference is not None:
            return self.reference.log_probs(samples)[0]
        with self.policy.model.disable_adapter():
            return self.policy.log_probs(samples)[0]
