"""What a policy has sampled: prompts, responses and their log-probabilities, as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Samples:
    """Responses to P prompts, G of each; the rows of a prompt are adjacent, B = P·G."""

    prompt_ids: Tensor
    """Prompt tokens, padded on the left, shape (P, Lp)."""
    prompt_mask: Tensor
    """True where a prompt token stands, shape (P, Lp)."""
    ids: Tensor
    """Response tokens, padded on the right, shape (B, T)."""
    mask: Tensor
    """True where a response token stands, shape (B, T)."""
    log_probs: Tensor
    """Log-probability of each response token as it was sampled, float32, shape (B, T)."""
    texts: list[str]
    """The responses as text, B of them."""
    truncated: Tensor
    """True where a response ran into the length limit, shape (B,)."""
    temperature: float

    @property
    def rollouts_per_prompt(self) -> int:
        """G."""
        return len(self.ids) // len(self.prompt_ids)

    def subset(self, prompts: Tensor) -> Samples:
        """The samples of the prompts with these indices, (n,), cut to their longest response."""
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
    """The samples of several batches with the same number of rollouts per prompt, as those of one batch."""
    if len(parts) == 1:
        return parts[0]
    prompt_length = max(part.prompt_ids.shape[1] for part in parts)
    length = max(part.ids.shape[1] for part in parts)

    def left(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([pad(tensor, (prompt_length - tensor.shape[1], 0)) for tensor in tensors])

    def right(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([pad(tensor, (0, length - tensor.shape[1])) for tensor in tensors])

    # Token 0 fills up what the masks hide.
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
