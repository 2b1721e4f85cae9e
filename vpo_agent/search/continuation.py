"""Sampling the rest of responses from given beginnings, many at a time; prompts are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import torch

from vpo_agent.errors import OutOfMemory, memory_for
from vpo_agent.policy.decoding import Row, uniform_numbers
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.search.settings import Settings
from vpo_envs.common.wording import counted
from vpo_envs.text import Prompt

MOST_ROWS = 512
"""Responses that are sampled at the same time, or fewer once memory has run out."""


class Continuer:
    """Samples the rest of responses to fixed prompts, which are computed once: a search uses them hundreds of times.

    A response has up to ``settings.max_new_tokens`` tokens, its beginning included.
    """

    def __init__(self, policy: LMPolicy, prompts: Sequence[Prompt], settings: Settings) -> None:
        self.policy, self.most_rows = policy, MOST_ROWS
        self.max_new_tokens, self.temperature = settings.max_new_tokens, settings.temperature
        ids, mask = policy.encode_prompts(prompts)
        policy.check_length(ids.shape[1], settings.max_new_tokens)
        self._lengths = mask.sum(1).tolist()
        with torch.no_grad(), memory_for(counted(len(prompts), "prompt"), "search fewer --eval-prompts"):
            self._prompts = policy.cached_model.read(ids, mask)

    def has_room(self, prompt: int, told: int) -> bool:
        """Return whether a response fits after a prompt with ``told`` more tokens."""
        most = self.policy.cached_model.max_positions
        return most is None or self._lengths[prompt] + told + self.max_new_tokens <= most

    @torch.no_grad()
    def finish(
        self,
        prompts: Sequence[int],
        beginnings: Sequence[Sequence[int]],
        closings: Sequence[str],
        keys: Sequence[Sequence[int]],
        told: Sequence[bool] | None = None,
    ) -> list[list[int]]:
        """Sample the rest of n responses and return the new tokens of each, at least one.

        Each row has the index of its prompt, its first tokens, the tag that ends it, and numbers that key its random
        stream, whatever other rows are sampled. If a row is ``told`` its first tokens, they belong to the prompt.
        """
        told = told or [False] * len(beginnings)
        limits = [
            self.max_new_tokens - (0 if is_told else len(beginning))
            for beginning, is_told in zip(beginnings, told, strict=True)
        ]
        finished: list[list[int]] = []
        while len(finished) < len(limits):
            part = slice(len(finished), len(finished) + self.most_rows)
            with suppress(torch.OutOfMemoryError):
                finished += self._finish(prompts[part], beginnings[part], closings[part], keys[part], limits[part])
                continue
            # What the failed attempt held is free only here, where its error is gone.
            if len(limits[part]) == 1:
                raise OutOfMemory("out of memory for sampling one response at a time: lower --max-new-tokens")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.most_rows = len(limits[part]) // 2
        return finished

    def _finish(
        self,
        prompts: Sequence[int],
        beginnings: Sequence[Sequence[int]],
        closings: Sequence[str],
        keys: Sequence[Sequence[int]],
        limits: Sequence[int],
    ) -> list[list[int]]:
        """See :meth:`finish`; all rows at the same time, row i with up to ``limits[i]`` new tokens."""
        # Each row is counted with a prompt of its own.
        count, share = len(prompts), not any(beginnings)
        longest = max(self._lengths[prompt] for prompt in prompts)
        self.policy.check_memory(
            prompts=count, prompt_tokens=longest, rows=count, new_tokens=max(limits), share_prompts=share
        )
        rows = []
        for beginning, limit, key, closing in zip(beginnings, limits, keys, closings, strict=True):
            numbers = uniform_numbers(np.random.SeedSequence(list(key)))
            stop = partial(self.policy.closing_tag(closing), beginning=beginning)
            rows.append(Row(limit, numbers, self.temperature, stop=stop))
        if share:
            decoder = self.policy.decoder(share_prompts=True)
            decoder.join(self._prompts, prompts, rows)
        else:
            # Equal beginnings of responses to the same prompt are computed once.
            starts = [(prompt, tuple(begun)) for prompt, begun in zip(prompts, beginnings, strict=True)]
            number_of = {start: number for number, start in enumerate(dict.fromkeys(starts))}
            distinct_prompts, distinct_beginnings = zip(*number_of, strict=True)
            extended = self.policy.cached_model.extend(self._prompts, distinct_prompts, distinct_beginnings)
            decoder = self.policy.decoder(share_prompts=False)
            decoder.join(extended, [number_of[start] for start in starts], rows)
        decoder.run()
        return [row.tokens for row in rows]
