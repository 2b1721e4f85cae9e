"""Finishing begun responses: many rows at a time, each with its own beginning, the prompts computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from vpo_agent.policy.kv_cache import PreallocatedLayer, preallocated_cache
from vpo_agent.policy.language_model import LMPolicy, draw


class Continuer:
    """Samples the rest of responses to fixed prompts.

    What :meth:`LMPolicy.sample` does for whole responses, this does for begun ones. The keys and values of the prompts
    are computed once and kept, since a search asks for the same prompts hundreds of times.

    Args:
        policy: The model.
        prompts: P prompts as text.
        max_new_tokens: Longest response, in tokens, its beginning included.
        temperature: Divides the logits, > 0.
        most_rows: Rows in flight at one time.

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
        self._ids, self._mask = policy.encode_prompts(prompts)
        policy.check_length(self._ids.shape[1], max_new_tokens)
        self._rows: list[list[int]] = [row[mask].tolist() for row, mask in zip(self._ids, self._mask, strict=True)]
        self._prompt_cache = self._prefill()

    @torch.no_grad()
    def finish(
        self,
        prompts: Sequence[int],
        beginnings: Sequence[Sequence[int]],
        closings: Sequence[str],
        keys: Sequence[Sequence[int]],
    ) -> list[list[int]]:
        """Sample the rest of n responses.

        Args:
            prompts: Which prompt each row answers.
            beginnings: The tokens that each response begins with, fewer than ``max_new_tokens``.
            closings: The tag that ends each row; so do an end-of-sequence token and ``max_new_tokens``.
            keys: Numbers that key each row's random stream. A row with the same prompt, beginning and key gets the same
                random numbers whichever other rows are in flight.

        Returns:
            The new tokens of each row, at least one, with what ended it.
        """
        for row, beginning in enumerate(beginnings):
            if len(beginning) >= self.max_new_tokens:
                raise ValueError(
                    f"row {row} begins with {len(beginning)} tokens, which leaves none of max_new_tokens="
                    f"{self.max_new_tokens} to sample"
                )
        out: list[list[int]] = []
        for first in range(0, len(prompts), self.most_rows):
            part = slice(first, first + self.most_rows)
            out += self._finish(prompts[part], beginnings[part], closings[part], keys[part])
        return out

    def _prefill(self) -> DynamicCache | None:
        """Keys and values of every prompt but for its last token; ``None`` where the model's cache is a special one."""
        policy = self.policy
        cache = preallocated_cache(policy.model_config, 0)
        plain = all(type(layer) is PreallocatedLayer for layer in cache.layers)
        # A row that is all padding but for its last token would leave nothing to attend to.
        if not plain or int(self._mask.sum(1).min()) < 2:
            return None
        mask = self._mask[:, :-1]
        padded = not bool(mask.all())
        with torch.no_grad():
            policy.next_logits(self._ids[:, :-1], mask if padded else None, policy.positions(mask), cache)
        return cache

    def _finish(
        self,
        prompts: Sequence[int],
        beginnings: Sequence[Sequence[int]],
        closings: Sequence[str],
        keys: Sequence[Sequence[int]],
    ) -> list[list[int]]:
        policy, device = self.policy, self._ids.device
        n = len(prompts)
        which = torch.tensor(list(prompts), dtype=torch.long, device=device)
        limits = [self.max_new_tokens - len(beginning) for beginning in beginnings]
        longest = max(limits)
        uniforms = torch.from_numpy(
            np.stack([_uniforms(key, limit, longest) for key, limit in zip(keys, limits, strict=True)])
        ).to(device)

        if self._prompt_cache is not None:
            heads = [[self._rows[prompt][-1]] for prompt in prompts]
        else:
            heads = [self._rows[prompt] for prompt in prompts]
        ids, mask = self._padded([[*head, *begun] for head, begun in zip(heads, beginnings, strict=True)])
        if self._prompt_cache is not None:
            mask = torch.cat([self._mask[which, :-1], mask], dim=1)
        width = ids.shape[1]
        cache = preallocated_cache(policy.model_config, width + longest)
        if self._prompt_cache is not None:
            for layer, source in zip(cache.layers, self._prompt_cache.layers, strict=True):
                assert isinstance(source, PreallocatedLayer)
                assert isinstance(layer, PreallocatedLayer)
                layer.update(source.keys[which], source.values[which])
        positions = policy.positions(mask)[:, -width:]
        position = mask.sum(1)
        # Padding stands between prompt and beginning too, so the mask goes along unless there is none at all.
        seen = None if bool(mask.all()) else mask
        logits = policy.next_logits(ids, seen, positions, cache)

        new = torch.full((n, longest), policy._filler, dtype=torch.long, device=device)
        lengths = torch.tensor(limits, device=device)
        running = torch.arange(n, device=device)
        ended = torch.zeros(n, dtype=torch.bool, device=device)
        for t in range(longest):
            probs = torch.softmax(logits.float() / self.temperature, dim=-1)
            token = draw(probs, uniforms[running, t])
            new[running, t] = torch.where(ended, new[running, t], token)
            ends = self._ends(token, new, running, t, closings) & ~ended
            lengths[running[ends]] = t + 1
            ended = ended | ends | (lengths[running] <= t + 1)
            if bool(ended.all()):
                break
            # Shrinking the batch copies the cache, so it waits until a quarter of the rows have ended.
            if int(ended.sum()) * 4 >= len(ended):
                keep = (~ended).nonzero()[:, 0]
                cache.batch_select_indices(keep)
                running, token, position, ended = running[keep], token[keep], position[keep], ended[keep]
                seen = seen[keep] if seen is not None else None
            if seen is not None:
                seen = torch.cat([seen, seen.new_ones(len(seen), 1)], dim=1)
            logits = policy.next_logits(token[:, None], seen, position[:, None], cache)
            position = position + 1
        return [row[:length] for row, length in zip(new.tolist(), lengths.tolist(), strict=True)]

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Rows of tokens, padded on the left, (n, width), and their mask."""
        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), self.policy._filler, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, width - len(row) :] = torch.tensor(list(row), dtype=torch.long)
            mask[i, width - len(row) :] = True
        return ids.to(self._ids.device), mask.to(self._ids.device)

    def _ends(self, token: Tensor, new: Tensor, running: Tensor, t: int, closings: Sequence[str]) -> Tensor:
        """Which running rows end with ``token``: end of sequence, or the row's closing tag is complete."""
        policy = self.policy
        ends = torch.isin(token, policy._ending_ids)
        for i in policy._tokens_with(">")[token].nonzero()[:, 0].tolist():
            row = int(running[i])
            tail = new[row, max(0, t + 1 - len(closings[row])) : t + 1]
            if closings[row] in policy.tokenizer.decode(tail, skip_special_tokens=True):
                ends[i] = True
        return ends


def _uniforms(key: Sequence[int], count: int, width: int) -> np.ndarray:
    """``count`` uniform numbers of the stream ``key``, filled up to ``width``."""
    out = np.zeros(width, dtype=np.float32)
    out[:count] = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(key)))).random(count, np.float32)
    return out
