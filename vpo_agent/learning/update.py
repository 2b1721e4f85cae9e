"""The policy update: gradient steps on a batch of rollouts and their advantages, in micro-batches that fit."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vpo_agent.config import TrainConfig
from vpo_agent.errors import OutOfMemory
from vpo_agent.estimators.losses import policy_loss, token_weights, truncated_importance
from vpo_agent.learning.optimizer import MasterAdamW, learning_rate
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples
from vpo_envs.common.wording import counted

SHUFFLE_STREAM = 2
DIAGNOSTICS = ("loss", "kl", "clip_fraction", "approx_kl", "entropy", "grad_norm")
GAP = ("log_prob_gap", "log_prob_gap_max")
"""Mean and maximum of the absolute difference between the log-probabilities of trainer and sampler."""


CPU_TOKENS = 1024
"""Tokens of a micro-batch on a CPU. The update of 16 prompts × 8 rollouts, 6,000 tokens, of the bundled model on one
thread took 1.0 s and 60 to 210 MiB with 375 to 1,500 tokens at a time, and 1.4 s and 620 MiB with all of them."""


class MicroBatches:
    """Splits the prompts of an optimizer step into micro-batches, one backward pass each.

    On a CPU, ``"auto"`` takes as many prompts as have :data:`CPU_TOKENS` tokens in total. This depends on the samples
    alone, so a resumed run computes the same numbers. On a GPU it starts with all prompts and halves their number until
    a micro-batch fits into memory; this was tested with raised errors, not with a GPU whose memory ran out. A number
    sets the prompts of a micro-batch.

    Usage::

        while True:
            optimizer.zero_grad()
            with micro_batches.halved_if_out_of_memory():
                for prompts in micro_batches.split(samples, all_prompts):
                    ...  # accumulate the gradient of these prompts
                break

    Args:
        setting: Prompts at a time, or ``"auto"``.
        device: Where the model is.
        packs: Whether the model computes prompts once and no padding, see `vpo_agent.policy.packing`.
        option: Name of the setting, for what is reported about it; nothing is reported without.
        shorten: Names the options that make one prompt with its responses smaller.
    """

    def __init__(
        self,
        setting: int | Literal["auto"],
        device: torch.device,
        *,
        packs: bool = True,
        option: str | None = "--microbatch-prompts",
        shorten: str = "--rollouts-per-prompt or --max-new-tokens",
    ) -> None:
        self.max_prompts: int | None = None if setting == "auto" else setting
        """``None``: unlimited."""
        self.max_tokens = CPU_TOKENS if setting == "auto" and device.type == "cpu" else None
        self._packs = packs
        self._option = option
        self._shorten = shorten
        self._announce = setting == "auto"
        self._largest = 0
        """Prompts of the largest micro-batch of the last split."""
        self._too_many: int | None = None
        """Prompts of the first micro-batch that did not fit, until the user is told."""

    def split(self, samples: Samples, prompts: Tensor) -> list[Tensor]:
        """Split the indices of prompts, (n,), into micro-batches, in order."""
        lengths = samples.mask.sum(1).view(len(samples.prompt_ids), -1).cpu()
        # Tokens that a pass computes for each prompt and its rollouts; without packing that includes padding.
        tokens = samples.prompt_mask.sum(1).cpu() + lengths.sum(1)
        if not self._packs:
            tokens = lengths.shape[1] * (samples.prompt_mask.sum(1).cpu() + lengths.amax(1))
        sizes: list[int] = []
        held = 0
        for count in tokens[prompts].tolist():
            full = not sizes or sizes[-1] == self.max_prompts
            if full or (self.max_tokens is not None and held + count > self.max_tokens):
                sizes.append(0)
                held = 0
            sizes[-1] += 1
            held += count
        self._largest = max(sizes)
        return list(prompts.split(sizes))

    @contextmanager
    def halved_if_out_of_memory(self) -> Iterator[None]:
        """Halve the size where the block runs out of memory; the caller then repeats it.

        Raises:
            OutOfMemory: The block ran out of memory with one prompt at a time.
        """
        if self._too_many is not None and torch.cuda.is_available():
            # Only now, when the error of the failed attempt no longer keeps its tensors alive.
            torch.cuda.empty_cache()
        try:
            yield
        except torch.OutOfMemoryError:
            if self._largest <= 1:
                raise OutOfMemory(
                    f"out of memory in the update with one prompt per micro-batch: lower {self._shorten}, or give "
                    "--gradient-checkpointing or --lora-rank"
                ) from None
            self.max_prompts = self._largest // 2
            if self._too_many is None:
                self._too_many = self._largest
        else:
            if self._option is not None and (self._announce or self._too_many is not None):
                self._report(self._option)
            self._announce, self._too_many = False, None

    def _report(self, option: str) -> None:
        """Print which size ``"auto"`` or halving settled on."""
        if self._announce:
            bounds = []
            if self.max_tokens is not None and self.max_prompts != 1:
                bounds.append(f"{self.max_tokens:,} tokens (or one prompt)")
            if self.max_prompts is not None:
                bounds.append(f"{counted(self.max_prompts, 'prompt')} (the most that fit)")
            size = f"at most {' and '.join(bounds)}" if bounds else "all prompts"
            tqdm.write(f"{option} auto: {size} at a time", file=sys.stderr)
        else:
            tqdm.write(
                f"out of memory with {self._too_many} prompts per micro-batch: repeating the step, and continuing, "
                f"with {option} {self.max_prompts}",
                file=sys.stderr,
            )


class PolicyUpdate:
    """Updates the policy once per training step.

    When a micro-batch runs out of device memory, its mini-batch starts again in micro-batches of half as many prompts,
    and later ones are as small. The reference is the base, for the KL penalty. It is ``None`` if there is no penalty,
    or if the policy has LoRA adapters: the policy without its adapters is the base.
    """

    def __init__(self, config: TrainConfig, policy: LMPolicy, reference: LMPolicy | None) -> None:
        self.config = config
        self.policy = policy
        self.reference = reference
        self.microbatches = MicroBatches(config.microbatch_prompts, policy.device, packs=policy.packs)
        self.optimizer = MasterAdamW(
            policy.model.named_parameters(),
            learning_rate=config.learning_rate,
            beta2=config.adam_beta2,
            weight_decay=config.weight_decay,
        )

    def step(
        self, samples: Samples, advantages: Tensor, *, valid: Tensor, step: int, num_answers: Tensor | None = None
    ) -> tuple[bool, dict[str, Any]]:
        """Take the gradient steps of one batch: one for each mini-batch.

        If a loss or a gradient is not finite, or an error ends the step, weights and optimizer are left as they were.
        Where a step has several mini-batches, a snapshot restores them.

        The diagnostics are means over the optimizer steps taken. If none was taken, loss and gradient norm are 0 and
        the others NaN. ``kl`` is NaN without a penalty, which alone measures it. ``log_prob_gap`` compares the
        log-probabilities of trainer and sampler at the weights that sampled: in the passes before the first optimizer
        step, or over all tokens if ``importance_cap`` recomputes them.

        Args:
            samples: P prompts, G rollouts of each.
            advantages: (P, G); ``importance_cap`` turns them into one advantage per token, (P, G, T).
            valid: (P, G), False for rollouts to leave out.
            step: Training steps taken so far.
            num_answers: (P,), answers that each prompt asks for; each number counts by its share of the prompts. By
                default all ask for the same number.

        Returns:
            Whether loss and gradients were finite, and the diagnostics.

        Raises:
            OutOfMemory: A single prompt with its rollouts, or the optimizer, does not fit into memory.
        """
        config = self.config
        if not valid.all():
            samples = samples.without(~valid)
        rate = learning_rate(
            step,
            peak=config.learning_rate,
            warmup_steps=config.warmup_steps,
            schedule=config.schedule,
            steps=config.steps,
        )
        gap = dict.fromkeys(GAP, math.nan)
        # Log-probabilities that are not finite mean a broken model. Its responses all score 0, so without this check
        # the step would pass as one without a signal.
        if not samples.log_probs[samples.trained].isfinite().all():
            return False, {**dict.fromkeys(DIAGNOSTICS, math.nan), **gap, "learning_rate": rate}
        if config.importance_cap is not None:
            trainer_log_probs = self._trainer_log_probs(samples)
            gap = log_prob_gap(trainer_log_probs, samples)
            importance = truncated_importance(
                trainer_log_probs, samples.log_probs, samples.trained, config.importance_cap
            )
            advantages = advantages[..., None] * importance.view(*advantages.shape[:2], -1).to(advantages)
            samples = replace(samples, log_probs=trainer_log_probs)
        minibatches = list(self._minibatches(len(advantages), step))
        before = self.optimizer.snapshot() if len(minibatches) > 1 else None
        finite, complete = True, False
        taken: list[dict[str, float]] = []
        try:
            for prompts in minibatches:
                terms = self.gradient(samples, advantages, prompts, num_answers)
                if terms is None:
                    continue
                gap_before_step = {name: terms.pop(name) for name in GAP}
                if config.importance_cap is None and not taken:
                    gap = gap_before_step
                norm = math.nan
                if math.isfinite(terms["loss"]):
                    norm = self.optimizer.step(rate, config.max_grad_norm)
                taken.append({**terms, "grad_norm": norm})
                finite = math.isfinite(norm)
                if not finite:
                    break
            else:
                complete = True
        finally:
            if not complete and before is not None:
                self.optimizer.restore(before)
            self.optimizer.zero_grad()
        means = {name: sum(terms[name] for terms in taken) / len(taken) if taken else math.nan for name in DIAGNOSTICS}
        if not taken:
            means["loss"] = means["grad_norm"] = 0.0
        return finite, {**means, **gap, "learning_rate": rate}

    def gradient(
        self, samples: Samples, advantages: Tensor, minibatch: Tensor, num_answers: Tensor | None = None
    ) -> dict[str, float] | None:
        """Accumulate the gradient of the loss over the prompts ``minibatch``, (n,), in the optimizer.

        Returns:
            The loss and diagnostics; ``None`` if no group has an advantage and there is no KL penalty either.
        """
        self.optimizer.zero_grad()
        lengths = samples.trained.sum(1).view(len(advantages), -1).cpu()
        tokens = lengths.sum(1)
        counted_tokens = tokens
        if num_answers is not None:
            weights = token_weights(tokens, num_answers)
            counted_tokens = tokens * weights
            advantages = advantages * weights.view(-1, *[1] * (advantages.dim() - 1)).to(advantages)
        normalizer = float(counted_tokens[minibatch].sum())
        has_signal = (advantages[minibatch] != 0).flatten(1).any(1)
        used = minibatch if self.config.kl_coef else minibatch[has_signal]
        # Groups whose rollouts were all left out have no tokens.
        used = used[tokens[used] > 0]
        if not len(used):
            return None
        # Groups of similar length share a micro-batch, which saves padding.
        used = used[samples.mask.sum(1).view(len(advantages), -1).amax(1).cpu()[used].argsort(stable=True)]
        while True:
            self.optimizer.zero_grad()
            with self.microbatches.halved_if_out_of_memory():
                return self._accumulate(samples, advantages, used, normalizer)

    def _accumulate(self, samples: Samples, advantages: Tensor, used: Tensor, normalizer: float) -> dict[str, float]:
        """Add the gradients of the prompts ``used``, (n,), micro-batch by micro-batch; return the diagnostics."""
        config = self.config
        totals = dict.fromkeys(("loss", "kl", "clip_fraction", "approx_kl", "entropy", "log_prob_gap"), 0.0)
        gap_max = 0.0
        tokens = samples.trained.sum(1).view(len(advantages), -1).sum(1).cpu()
        for prompts in self.microbatches.split(samples, used):
            batch = samples.subset(prompts)
            advantages_of_rows = advantages[prompts].flatten(0, 1)
            if advantages_of_rows.dim() == 2:
                advantages_of_rows = advantages_of_rows[:, : batch.ids.shape[1]]
            log_probs, entropy = self.policy.log_probs(batch, entropy=True)
            assert entropy is not None
            terms = policy_loss(
                log_probs,
                batch.log_probs,
                advantages_of_rows.to(log_probs.device),
                batch.trained,
                clip_low=config.clip_low,
                clip_high=config.clip_high,
                reference_log_probs=self._reference_log_probs(batch) if config.kl_coef else None,
                kl_coef=config.kl_coef,
                normalizer=max(normalizer, 1.0),
            )
            if bool(torch.isfinite(terms.loss)):
                terms.loss.backward()
            gap = log_prob_gap(log_probs.detach(), batch)
            gap_max = max(gap_max, gap["log_prob_gap_max"])
            share = float(terms.tokens) / float(tokens[used].sum())
            totals["loss"] += float(terms.loss.detach())
            totals["kl"] += float(terms.kl) if config.kl_coef else math.nan
            totals["clip_fraction"] += float(terms.clip_fraction) * share
            totals["approx_kl"] += float(terms.approx_kl) * share
            totals["entropy"] += (float(entropy.mean()) if len(entropy) else 0.0) * share
            totals["log_prob_gap"] += gap["log_prob_gap"] * share
        return {**totals, "log_prob_gap_max": gap_max}

    @torch.no_grad()
    def _trainer_log_probs(self, samples: Samples) -> Tensor:
        """Return the log-probabilities of the trained tokens under the current weights, (B, T), 0 elsewhere."""
        num_prompts, rollouts = len(samples.prompt_ids), samples.rollouts_per_prompt
        tokens = samples.trained.sum(1).view(num_prompts, rollouts).sum(1)
        used = tokens.nonzero()[:, 0].cpu()
        if not len(used):
            return torch.zeros_like(samples.log_probs)
        while True:
            with self.microbatches.halved_if_out_of_memory():
                out = torch.zeros_like(samples.log_probs)
                by_prompt = out.view(num_prompts, rollouts, out.shape[1])
                for prompts in self.microbatches.split(samples, used):
                    log_probs = self.policy.log_probs(samples.subset(prompts))[0]
                    width = log_probs.shape[1]
                    by_prompt[prompts.to(out.device), :, :width] = log_probs.view(len(prompts), rollouts, width)
                return out

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


def log_prob_gap(log_probs: Tensor, samples: Samples) -> dict[str, float]:
    """Return mean and maximum of the absolute difference to the sampler's log-probabilities over the trained tokens."""
    difference = (log_probs - samples.log_probs).abs()[samples.trained]
    if not len(difference):
        return dict.fromkeys(GAP, 0.0)
    return {"log_prob_gap": float(difference.mean()), "log_prob_gap_max": float(difference.max())}
