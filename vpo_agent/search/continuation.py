"""Finishes responses from given beginnings, many at a time; prompts are computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from vpo_agent.policy.decoding import Row, uniform_numbers
from vpo_agent.policy.language_model import LMPolicy


class Continuer:
    """Samples the rest of responses to fixed prompts, which are computed once: a search uses them hundreds of times.

    A response has up to ``max_new_tokens`` tokens, its beginning included; ``most_rows`` are sampled at the same time.

    Raises:
        ValueError: Prompt and response do not fit into the model's context.
    """

    def __init__(
        self,
        policy: LMPolicy,
        prompts: Sequence[str],
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        most_rows: int = 512,
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.policy = policy
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        self.most_rows = most_rows
        ids, mask = policy.encode_prompts(prompts)
        policy.check_length(ids.shape[1], max_new_tokens)
        with torch.no_grad():
            self._prompts = policy.cached_model.read(ids, mask)

    @torch.no_grad()
    def finish(
        self,
        prompts: Sequence[int],
        beginnings: Sequence[Sequence[int]],
        closings: Sequence[str],
        keys: Sequence[Sequence[int]],
        most: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Sample the rest of n responses and return the new tokens of each, at least one.

        Each row has the index of its prompt, its first tokens, the tag that ends it, and numbers that key its random
        stream, whatever other rows are sampled. With ``most`` it ends early, after that many new tokens.

        Raises:
            ValueError: A beginning leaves no token to sample.
        """
        rows = []
        for i, (beginning, closing, key) in enumerate(zip(beginnings, closings, keys, strict=True)):
            limit = self.max_new_tokens - len(beginning)
            if limit < 1:
                raise ValueError(
                    f"row {i} begins with {len(beginning)} tokens, which leaves none of max_new_tokens="
                    f"{self.max_new_tokens} to sample"
                )
            uniforms = uniform_numbers(np.random.SeedSequence(list(key)))
            limit = limit if most is None else min(limit, most[i])
            rows.append(Row(limit, uniforms, self.temperature, stop=self.policy.closing_tag(closing)))
        for first in range(0, len(rows), self.most_rows):
            part = slice(first, first + self.most_rows)
            which, source = prompts[part], self._prompts
            begun = any(beginnings[part])
            decoder = self.policy.decoder(share_prompts=not begun)
            if begun:
                places = [(i, tuple(start)) for i, start in zip(which, beginnings[part], strict=True)]
                distinct = {place: number for number, place in enumerate(dict.fromkeys(places))}
                source = self.policy.cached_model.extend(source, *zip(*distinct, strict=True))
                which = [distinct[place] for place in places]
            decoder.join(source, which, rows[part])
            decoder.run()
        return [row.tokens for row in rows]
