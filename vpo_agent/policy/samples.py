"""Samples of a policy as tensors: prompts, responses and their log-probabilities; and the interface of samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True)
class Samples:
    """Responses to P prompts, G of each; the rows of a prompt are adjacent, B = P·G."""

    prompt_ids: Tensor
    """Prompt tokens, padded on the left, shape (P, Lp)."""
    prompt_mask: Tensor
    """False at padding, shape (P, Lp)."""
    ids: Tensor
    """Response tokens, padded on the right, shape (B, T)."""
    mask: Tensor
    """False at padding, shape (B, T)."""
    log_probs: Tensor
    """Log-probability of each response token as it was sampled, float32, shape (B, T)."""
    texts: list[str]
    """The B responses as text."""
    truncated: Tensor
    """True where a response ran into the length limit, shape (B,)."""
    temperature: float

    @classmethod
    def of(
        cls,
        prompts: tuple[Tensor, Tensor],
        tokens: Sequence[Sequence[int]],
        log_probs: Sequence[Sequence[float]],
        truncated: Sequence[bool],
        temperature: float,
        tokenizer: Any,
    ) -> Samples:
        """Combine the tokens and log-probabilities of B responses, of at least one token each, and their prompts."""
        device = prompts[0].device
        rows = [torch.tensor(row) for row in tokens]
        ids = pad_sequence(rows, batch_first=True)
        mask = pad_sequence([torch.ones_like(row, dtype=torch.bool) for row in rows], batch_first=True)
        values = pad_sequence([torch.tensor(row) for row in log_probs], batch_first=True)
        texts = tokenizer.batch_decode([list(row) for row in tokens], skip_special_tokens=True)
        ended = torch.tensor(truncated, device=device)
        return cls(*prompts, ids.to(device), mask.to(device), values.to(device), texts, ended, temperature)

    @property
    def rollouts_per_prompt(self) -> int:
        """G."""
        return len(self.ids) // len(self.prompt_ids)

    def subset(self, prompts: Tensor) -> Samples:
        """Return the samples of the prompts with these indices, (n,), cut to their longest response."""
        rows = (prompts[:, None] * self.rollouts_per_prompt + torch.arange(self.rollouts_per_prompt)).flatten()
        rows_here, prompts_here = rows.to(self.ids.device), prompts.to(self.ids.device)
        mask = self.mask[rows_here]
        length = max(1, int(mask.sum(1).max()))
        return Samples(
            prompt_ids=self.prompt_ids[prompts_here],
            prompt_mask=self.prompt_mask[prompts_here],
            ids=self.ids[rows_here, :length],
            mask=mask[:, :length],
            log_probs=self.log_probs[rows_here, :length],
            texts=[self.texts[i] for i in rows.tolist()],
            truncated=self.truncated[rows_here],
            temperature=self.temperature,
        )


def concatenate_samples(parts: Sequence[Samples]) -> Samples:
    """Join batches with the same number of rollouts per prompt."""
    if len(parts) == 1:
        return parts[0]
    prompt_length = max(part.prompt_ids.shape[1] for part in parts)
    length = max(part.ids.shape[1] for part in parts)

    def left(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([pad(tensor, (prompt_length - tensor.shape[1], 0)) for tensor in tensors])

    def right(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([pad(tensor, (0, length - tensor.shape[1])) for tensor in tensors])

    # Token 0 is the padding.
    return Samples(
        prompt_ids=left([part.prompt_ids for part in parts]),
        prompt_mask=left([part.prompt_mask for part in parts]),
        ids=right([part.ids for part in parts]),
        mask=right([part.mask for part in parts]),
        log_probs=right([part.log_probs for part in parts]),
        texts=[text for part in parts for text in part.texts],
        truncated=torch.cat([part.truncated for part in parts]),
        temperature=parts[0].temperature,
    )


@dataclass(frozen=True)
class SampleRequest:
    """What :meth:`Sampler.sample` was asked for."""

    prompts: Sequence[str]
    rollouts: int
    num_answers: int
    max_new_tokens: int
    temperature: float
    seed: Sequence[int]
    places: Sequence[int]


class Sampler(ABC):
    """Samples responses from the current weights of a policy."""

    most_responses: int | None = None
    """Most responses that fit into memory at the same time; ``None`` until memory has run out."""

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[str],
        *,
        rollouts: int,
        num_answers: int,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: Sequence[int] = (0,),
        places: Sequence[int] | None = None,
    ) -> Samples:
        """Sample ``rollouts`` responses to each prompt.

        A response ends at the closing tag of the last answer, at an end-of-sequence token or at ``max_new_tokens``.

        Args:
            prompts: P prompts as text.
            rollouts: G, responses to each; the rows of a prompt are adjacent.
            num_answers: m, which names the tag that ends a response.
            max_new_tokens: Longest response, in tokens.
            temperature: Divides the logits, > 0; the recorded log-probabilities are those of the tempered distribution.
            seed: Numbers that key the random stream; the same numbers give the same samples.
            places: Place of each prompt in that stream, (P,), where a batch is sampled in parts; in order by default.

        Raises:
            ValueError: Prompt and response do not fit into the model's context.
            BackendFailed: The engine gave up.
        """
        where = range(len(prompts)) if places is None else places
        return self._sample(SampleRequest(prompts, rollouts, num_answers, max_new_tokens, temperature, seed, where))

    @abstractmethod
    def _sample(self, request: SampleRequest) -> Samples:
        """Sample what ``request`` asks for."""
