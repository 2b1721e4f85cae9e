"""Size of the micro-batches: a fixed number of prompts, or as many as fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor
from tqdm import tqdm

from vpo_agent.errors import OutOfMemory
from vpo_agent.policy.samples import Samples
from vpo_envs.common.wording import counted

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
