"""The policy update: gradient steps on a batch of rollouts and their advantages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from vpo_agent.config import TrainConfig
from vpo_agent.estimators.losses import policy_loss, token_weights, truncated_importance
from vpo_agent.learning.microbatch import MicroBatches
from vpo_agent.learning.optimizer import MasterAdamW
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples

SHUFFLE_STREAM = 2
DIAGNOSTICS = ("loss", "kl", "clip_fraction", "approx_kl", "entropy", "grad_norm")

T = TypeVar("T")


class PolicyUpdate:
    """Updates the policy once per training step.

    When a micro-batch runs out of device memory, it is repeated, and later ones have half as many prompts. The
    reference is the initial model, for the KL penalty. It is ``None`` if there is no penalty, or if the policy has LoRA
    adapters: switching them off gives the initial model.
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

    def step(
        self, samples: Samples, advantages: Tensor, valid: Tensor, step: int, asked: Tensor | None = None
    ) -> tuple[bool, dict[str, Any]]:
        """Take the gradient steps of one batch, up to the first loss or gradient that is not finite.

        The diagnostics are means over the optimizer steps taken, NaN if none was (a loss and a gradient norm of 0 then
        are exact). ``log_prob_gap`` compares the log-probabilities of trainer and sampler at the weights that sampled:
        in the passes before the first optimizer step, or over all tokens if ``importance_cap`` recomputes them.

        Args:
            samples: P prompts, G rollouts of each.
            advantages: (P, G).
            valid: (P, G), False for rollouts to leave out.
            step: Training steps taken so far.
            asked: (P,), how many answers each prompt asks for; each number counts by its share of the prompts.

        Returns:
            Whether loss and gradients were finite, and the diagnostics.

        Raises:
            OutOfMemory: A single prompt with its rollouts, or the optimizer, does not fit into memory.
        """
        config = self.config
        samples = replace(samples, mask=samples.mask & valid.flatten().to(samples.mask.device)[:, None])
        gap = dict.fromkeys(("log_prob_gap", "log_prob_gap_max"), math.nan)
        rate = config.learning_rate * min(1.0, (step + 1) / (config.warmup_steps + 1))
        # A policy that is not finite earns no reward anywhere, which must not count as groups without a signal.
        if not samples.log_probs.isfinite().all():
            return False, {**dict.fromkeys(DIAGNOSTICS, math.nan), **gap, "learning_rate": rate}
        if config.importance_cap is not None:
            own = self._own_log_probs(samples)
            gap = _gap(own, samples)
            weights = truncated_importance(own, samples.log_probs, samples.mask, config.importance_cap)
            advantages = advantages[..., None] * weights.view(*advantages.shape[:2], -1).to(advantages)
            samples = replace(samples, log_probs=own)
        finite = True
        taken: list[dict[str, float]] = []
        for minibatch in self._minibatches(len(advantages), step):
            terms = self.gradient(samples, advantages, minibatch, asked)
            if terms is None:
                continue
            measured = {name: terms.pop(name) for name in gap}
            if config.importance_cap is None and not taken:
                gap = measured
            finite = math.isfinite(terms["loss"])
            norm = self.optimizer.step(rate, config.max_grad_norm) if finite else math.nan
            taken.append({**terms, "grad_norm": norm})
            finite = math.isfinite(norm)
            if not finite:
                break
        self.optimizer.zero_grad()
        means = {name: sum(row[name] for row in taken) / len(taken) if taken else math.nan for name in DIAGNOSTICS}
        if not taken:
            means["loss"] = means["grad_norm"] = 0.0
        return finite, {**means, **gap, "learning_rate": rate}

    def gradient(
        self, samples: Samples, advantages: Tensor, minibatch: Tensor, asked: Tensor | None = None
    ) -> dict[str, float] | None:
        """Accumulate the gradient of the loss over the prompts ``minibatch``, (n,), in the optimizer.

        Each number of answers that prompts are ``asked`` for, (P,), counts by its share of the batch's prompts.

        Returns:
            The loss and diagnostics; ``None`` if no group has an advantage and there is no KL penalty either.
        """
        config = self.config
        self.optimizer.zero_grad()
        lengths = samples.mask.sum(1).view(len(advantages), -1).cpu()
        counted = lengths.sum(1)
        if asked is not None:
            weights = token_weights(counted, asked)
            counted = counted * weights
            advantages = advantages * weights.view(-1, *[1] * (advantages.dim() - 1)).to(advantages)
        normalizer = float(counted[minibatch].sum())
        has_signal = (advantages[minibatch] != 0).flatten(1).any(1)
        used = minibatch if config.kl_coef else minibatch[has_signal]
        # Groups whose rollouts were all left out have no tokens.
        used = used[(lengths[used] > 0).any(1)]
        if not len(used):
            return None
        # Groups of similar length share a micro-batch, which saves padding.
        used = used[lengths.amax(1)[used].argsort(stable=True)]
        terms = self._within_memory(
            lambda sizes: self._accumulate(samples, advantages, used, sizes, normalizer), samples, used
        )
        self.microbatches.say()
        return terms

    def _own_log_probs(self, samples: Samples) -> Tensor:
        """Return the log-probabilities of the sampled tokens under the current weights, (B, T), 0 outside the mask."""
        group = samples.rollouts_per_prompt
        used = samples.mask.view(-1, group * samples.mask.shape[1]).any(1).nonzero()[:, 0].cpu()

        def compute(sizes: list[int]) -> Tensor:
            out = torch.zeros_like(samples.log_probs)
            groups = out.view(-1, group, out.shape[1])
            for part in used.split(sizes):
                found = self.policy.log_probs(samples.subset(part))[0]
                groups[part.to(out.device), :, : found.shape[1]] = found.view(len(part), group, -1)
            return out

        with torch.no_grad():
            return self._within_memory(compute, samples, used)

    def _within_memory(self, compute: Callable[[list[int]], T], samples: Samples, used: Tensor) -> T:
        """Call ``compute`` with the micro-batch sizes of the prompts ``used``, (n,), until it fits into memory."""
        return self.microbatches.run(compute, samples, used, packs=self.policy.packs, drop=self.optimizer.zero_grad)

    def _accumulate(
        self, samples: Samples, advantages: Tensor, used: Tensor, sizes: list[int], normalizer: float
    ) -> dict[str, float]:
        """Add the gradients of the prompts ``used``, (n,), in micro-batches of these sizes; return the diagnostics."""
        totals = dict.fromkeys(("loss", "kl", "clip_fraction", "approx_kl", "entropy", "log_prob_gap"), 0.0)
        gap_max = 0.0
        tokens_used = float(samples.mask.sum(1).view(len(advantages), -1).cpu()[used].sum())
        for part in used.split(sizes):
            batch = samples.subset(part)
            of_rows = advantages[part].flatten(0, 1)
            if of_rows.dim() == 2:
                of_rows = of_rows[:, : batch.ids.shape[1]]
            terms = self._backward(batch, of_rows, normalizer)
            share = terms.pop("tokens") / tokens_used
            gap_max = max(gap_max, terms.pop("log_prob_gap_max"))
            for name, value in terms.items():
                totals[name] += value if name in ("loss", "kl") else value * share
        return {**totals, "log_prob_gap_max": gap_max}

    def _backward(self, samples: Samples, advantages: Tensor, normalizer: float) -> dict[str, float]:
        """Add the gradient of one micro-batch; return its share of the loss, and diagnostics."""
        config = self.config
        log_probs, entropy = self.policy.log_probs(samples, entropy=True)
        assert entropy is not None
        reference = self._reference_log_probs(samples) if config.kl_coef else None
        terms = policy_loss(
            log_probs,
            samples.log_probs,
            advantages.to(log_probs.device),
            samples.mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            reference_log_probs=reference,
            kl_coef=config.kl_coef,
            normalizer=max(normalizer, 1.0),
        )
        if bool(torch.isfinite(terms.loss)):
            terms.loss.backward()
        return {
            **{name: float(getattr(terms, name).detach()) for name in ("loss", "kl", "clip_fraction", "approx_kl")},
            "entropy": float(entropy.mean()) if len(entropy) else 0.0,
            "tokens": float(terms.tokens),
            **_gap(log_probs.detach(), samples),
        }

    def _minibatches(self, prompts: int, step: int) -> Iterator[Tensor]:
        """Yield the prompt indices of each optimizer step, shuffled by (seed, step, epoch) if several."""
        size = self.config.minibatch_prompts or prompts
        for epoch in range(self.config.epochs):
            indices = torch.arange(prompts)
            if size < prompts:
                rng = np.random.default_rng([self.config.seed, SHUFFLE_STREAM, step, epoch])
                indices = torch.from_numpy(rng.permutation(prompts))
            yield from indices.split(size)

    @torch.no_grad()
    def _reference_log_probs(self, samples: Samples) -> Tensor:
        if self.reference is not None:
            return self.reference.log_probs(samples)[0]
        with self.policy.model.disable_adapter():
            return self.policy.log_probs(samples)[0]


def _gap(log_probs: Tensor, samples: Samples) -> dict[str, float]:
    """Return mean and maximum of the absolute difference to the sampler's log-probabilities over the mask."""
    difference = (log_probs - samples.log_probs).abs()[samples.mask]
    if not len(difference):
        return {"log_prob_gap": 0.0, "log_prob_gap_max": 0.0}
    return {"log_prob_gap": float(difference.mean()), "log_prob_gap_max": float(difference.max())}
