"""Size of the micro-batches: a fixed number of prompts, or as many as fit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

from vpo_agent.errors import OutOfMemory
from vpo_agent.policy.samples import Samples
from vpo_envs.common.wording import counted

CPU_TOKENS = 1024
"""Tokens of a micro-batch on a CPU. The update of 16 prompts × 8 rollouts, 6,000 tokens, of the bundled model on one
thread took 1.0 s and 60 to 210 MiB with 375 to 1,500 tokens at a time, and 1.4 s and 620 MiB with all of them."""

T = TypeVar("T")


class MicroBatches:
    """Splits the prompts of an optimizer step into micro-batches, one backward pass each.

    On a CPU, ``"auto"`` takes as many prompts as have :data:`CPU_TOKENS` tokens in total. This depends on the samples
    alone, so a resumed run computes the same numbers. On a GPU it starts with all prompts and halves their number until
    a micro-batch fits into memory; this was tested with raised errors, not with a GPU whose memory ran out. Another
    setting is the number of prompts. ``shorten`` names the options that make one prompt with its responses smaller.
    """

    def __init__(
        self,
        setting: int | Literal["auto"],
        device: torch.device,
        *,
        shorten: str = "--rollouts-per-prompt or --max-new-tokens",
    ) -> None:
        self.most_prompts: int | None = None if setting == "auto" else setting
        """``None``: unlimited."""
        self.most_tokens = CPU_TOKENS if setting == "auto" and device.type == "cpu" else None
        self._shorten = shorten
        self._announce = setting == "auto"
        self._too_many: int | None = None
        """Prompts of the first micro-batch that did not fit, until the user is told."""

    def run(
        self,
        compute: Callable[[list[int]], T],
        samples: Samples,
        used: Tensor,
        *,
        packs: bool,
        drop: Callable[[], None],
    ) -> T:
        """Call ``compute`` with the micro-batch sizes of the prompts ``used``, (n,), until it fits into memory."""
        lengths = samples.mask.sum(1).view(len(samples.prompt_ids), -1).cpu()
        # Tokens that a pass computes for each prompt and its rollouts; without packing that includes padding.
        tokens = samples.prompt_mask.sum(1).cpu() + lengths.sum(1)
        if not packs:
            tokens = lengths.shape[1] * (samples.prompt_mask.sum(1).cpu() + lengths.amax(1))
        while True:
            sizes = self.sizes(tokens[used].tolist())
            try:
                return compute(sizes)
            except torch.OutOfMemoryError:
                self.halve(max(sizes))
            # Outside the except clause, whose traceback keeps the tensors of the failed pass alive.
            drop()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def sizes(self, tokens: Sequence[int]) -> list[int]:
        """Return the number of prompts in each micro-batch, in order, given the tokens of each with its rollouts."""
        sizes: list[int] = []
        held = 0
        for count in tokens:
            full = not sizes or sizes[-1] == self.most_prompts
            if full or (self.most_tokens is not None and held + count > self.most_tokens):
                sizes.append(0)
                held = 0
            sizes[-1] += 1
            held += count
        return sizes

    def halve(self, prompts: int) -> None:
        """Halve the limit, after a micro-batch of ``prompts`` did not fit into memory."""
        if prompts == 1:
            raise OutOfMemory(
                f"out of memory in the update with one prompt per micro-batch: lower {self._shorten}, or give "
                "--gradient-checkpointing or --lora-rank"
            )
        self.most_prompts = prompts // 2
        if self._too_many is None:
            self._too_many = prompts

    def say(self) -> None:
        """Report once the size that ``"auto"`` or halving settled on; call it after a step that fitted into memory."""
        if self._announce:
            bounds = []
            if self.most_tokens is not None and self.most_prompts != 1:
                bounds.append(f"{self.most_tokens:,} tokens (or one prompt)")
            if self.most_prompts is not None:
                bounds.append(f"{counted(self.most_prompts, 'prompt')} (the most that fit)")
            found = f"at most {' and '.join(bounds)}" if bounds else "all prompts"
            tqdm.write(f"--microbatch-prompts auto: {found} at a time", file=sys.stderr)
        elif self._too_many is not None:
            tqdm.write(
                f"out of memory with {self._too_many} prompts per micro-batch: repeating the step, and continuing, "
                f"with --microbatch-prompts {self.most_prompts}",
                file=sys.stderr,
            )
        self._announce = False
        self._too_many = None
