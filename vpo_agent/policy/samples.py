"""Responses of a model, as text or as a policy's tensors with log-probabilities; and the interfaces of samplers."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from vpo_agent.errors import OutOfMemory
from vpo_agent.progress import progress_bar
from vpo_envs.common.wording import counted
from vpo_envs.text import answer_tags


@dataclass(frozen=True)
class Responses:
    """Responses to P prompts as text, G to each; those to a prompt are adjacent, B = P·G."""

    texts: list[str]
    tokens: NDArray[np.int32] | None
    """Number of generated tokens of each response, (B,); ``None`` if unknown."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that describe where they come from, for :attr:`vpo_agent.Pool.source`."""


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

    def join(name: str, *, left: bool = False) -> Tensor:
        """The tensors of this name, padded with 0 to the longest."""
        tensors: list[Tensor] = [getattr(part, name) for part in parts]
        gaps = [max(tensor.shape[1] for tensor in tensors) - tensor.shape[1] for tensor in tensors]
        return torch.cat([pad(t, (gap, 0) if left else (0, gap)) for t, gap in zip(tensors, gaps, strict=True)])

    return Samples(
        prompt_ids=join("prompt_ids", left=True),
        prompt_mask=join("prompt_mask", left=True),
        ids=join("ids"),
        mask=join("mask"),
        log_probs=join("log_probs"),
        texts=[text for part in parts for text in part.texts],
        truncated=torch.cat([part.truncated for part in parts]),
        temperature=parts[0].temperature,
    )


@dataclass(frozen=True)
class SampleRequest:
    """What a sampler is asked for; the fields are explained at :meth:`Sampler.sample`."""

    prompts: Sequence[str]
    rollouts: int
    num_answers: int | Sequence[int]
    max_new_tokens: int
    temperature: float
    seed: Sequence[int]
    places: Sequence[int]
    label: str | None = None
    """Name of a progress bar on standard error; there is none without."""

    def answers(self, prompt: int) -> int:
        """Return the number of answers that a prompt asks for."""
        return self.num_answers if isinstance(self.num_answers, int) else self.num_answers[prompt]

    def closing_tag(self, prompt: int) -> str:
        """Return the tag that ends a response to a prompt: that of its last answer."""
        return answer_tags(self.answers(prompt))[-1][1]


class TextSampler(ABC):
    """Samples responses as text: a local policy, or a model behind an endpoint."""

    @abstractmethod
    def sample_texts(self, request: SampleRequest, sample_batch: int) -> Responses:
        """Sample what ``request`` asks for, with at most ``sample_batch`` responses in the local memory at a time."""


def _no_tick(tokens: int) -> None:
    """Say nothing."""


class Sampler(TextSampler):
    """Samples responses from the current weights of a policy."""

    _tick: Callable[[int], None] = staticmethod(_no_tick)
    """Told how long the responses under way are."""
    most_responses: int | None = None
    """Most responses that fit into memory at the same time; ``None`` until memory has run out."""

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[str],
        *,
        rollouts: int,
        num_answers: int | Sequence[int],
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
            num_answers: m, which names the tag that ends a response; or that of each prompt, (P,).
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

    def sample_texts(self, request: SampleRequest, sample_batch: int) -> Responses:
        """Sample what ``request`` asks for, as :meth:`sample_in_parts`."""
        samples = self.sample_in_parts(request, sample_batch)
        return Responses(samples.texts, samples.mask.sum(dim=1).cpu().numpy().astype(np.int32))

    def sample_in_parts(self, request: SampleRequest, sample_batch: int) -> Samples:
        """Sample at most ``sample_batch`` responses at a time, and fewer where memory does not hold them.

        The responses to one prompt stay together. What did not fit is remembered for later calls. This was tested with
        raised errors, not with a GPU whose memory ran out.
        """
        rollouts = request.rollouts
        size = most = max(1, min(sample_batch, self.most_responses or sample_batch) // rollouts)
        order = list(range(len(request.prompts)))
        names = ("rollouts", "max_new_tokens", "temperature", "seed")
        same = {name: getattr(request, name) for name in names}
        parts: list[Samples] = []
        done = 0
        total = len(order) * rollouts
        with progress_bar(request.label or "", total, unit="response", leave=False, disable=not request.label) as bar:

            def tick(tokens: int) -> None:
                """Count the responses under way by the share of their longest length."""
                under_way = len(chosen) * tokens / request.max_new_tokens
                bar.update(int((done + under_way) * rollouts) - bar.n)

            self._tick = tick if request.label else _no_tick
            while done < len(order):
                if len(order) > size and not parts:
                    # Prompts of like length are sampled together, which saves padding, and so are responses.
                    order.sort(key=lambda place: (request.answers(place), len(request.prompts[place])))
                chosen = order[done : done + size]
                with suppress(torch.OutOfMemoryError):
                    prompts, places = zip(*((request.prompts[one], request.places[one]) for one in chosen), strict=True)
                    m = request.num_answers
                    m = m if isinstance(m, int) else [m[place] for place in chosen]
                    parts.append(self.sample(prompts, num_answers=m, places=places, **same))
                    done += len(chosen)
                    bar.update(done * rollouts - bar.n)
                    continue
                # What the failed attempt held is free only here, where its error is gone.
                if len(chosen) == 1:
                    raise OutOfMemory(
                        f"out of memory for sampling {counted(rollouts, 'response')} at a time: lower --max-new-tokens "
                        "or the rollouts"
                    )
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                size = len(chosen) // 2
        if size < most:
            tqdm.write(
                f"out of memory for sampling {counted(min(most, len(order)) * rollouts, 'response')} at a time: the "
                f"batch is repeated, and the run goes on, with --sample-batch {size * rollouts}",
                file=sys.stderr,
            )
            self.most_responses = size * rollouts
        samples = concatenate_samples(parts)
        return samples.subset(torch.tensor(order).argsort()) if len(parts) > 1 else samples
