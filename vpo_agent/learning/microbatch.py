"""How many prompts a backward pass takes: a number, or as many as are found to be good."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

import torch
from tqdm import tqdm

from vpo_agent.errors import OutOfMemory

CPU_TOKENS = 1024
"""Tokens of a micro-batch on a CPU. The update of 16 prompts × 8 rollouts, 6,000 tokens, of the bundled model on one
thread took 1.0 s and 60 to 210 MiB with 375 to 1,500 tokens at a time, and 1.4 s and 620 MiB with all of them."""


class MicroBatches:
    """Cuts the prompts of an optimizer step into micro-batches, each for one backward pass.

    ``"auto"`` is on a CPU as many prompts as have :data:`CPU_TOKENS` tokens together: a function of the samples alone,
    so a run gives the same numbers wherever and however often it is resumed. On a GPU it is all of them, halved until
    its memory holds one: the most that fits, among halves. A failure costs less than one pass, and comes once.

    Args:
        setting: Prompts of a micro-batch, or ``"auto"``.
        device: Where the passes run.
    """

    def __init__(self, setting: int | Literal["auto"], device: torch.device) -> None:
        self.most_prompts: int | None = None if setting == "auto" else setting
        """``None`` while no number bounds them."""
        self.most_tokens = CPU_TOKENS if setting == "auto" and device.type == "cpu" else None
        self._unsaid = setting == "auto"
        self._too_many: int | None = None
        """Prompts of the first micro-batch that the memory did not hold, until that is said."""

    def sizes(self, tokens: Sequence[int]) -> list[int]:
        """How many prompts each micro-batch takes, in order; at least one.

        Args:
            tokens: Of each prompt with its rollouts, (n,).
        """
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
        """Take half as many prompts from now on, since the memory does not hold a micro-batch of ``prompts``.

        Raises:
            OutOfMemory: It is one prompt.
        """
        if prompts == 1:
            raise OutOfMemory(
                "out of memory in the update, with one prompt a micro-batch: lower --rollouts-per-prompt or "
                "--max-new-tokens, or give --gradient-checkpointing or --lora-rank"
            )
        self.most_prompts = prompts // 2
        if self._too_many is None:
            self._too_many = prompts

    def say(self) -> None:
        """Say once what ``"auto"``, or halving, came to, after an optimizer step that fitted."""
        if self._unsaid:
            bounds = []
            if self.most_tokens is not None and self.most_prompts != 1:
                bounds.append(f"{self.most_tokens:,} tokens (or one prompt)")
            if self.most_prompts is not None:
                bounds.append(f"{self.most_prompts} prompt{'s' * (self.most_prompts > 1)} (what the memory holds)")
            found = f"at most {' and '.join(bounds)}" if bounds else "all prompts"
            tqdm.write(f"--microbatch-prompts auto: {found} at a time", file=sys.stderr)
        elif self._too_many is not None:
            tqdm.write(
                f"out of memory with {self._too_many} prompts a micro-batch: the step is repeated, and the run goes "
                f"on, with --microbatch-prompts {self.most_prompts}",
                file=sys.stderr,
            )
        self._unsaid = False
        self._too_many = None
