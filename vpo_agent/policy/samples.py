"""Responses of a model, as text or as a policy's tensors with log-probabilities; and the interfaces of samplers.

To add an engine, subclass :class:`Sampler` and implement :meth:`Sampler.sample_batch`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from vpo_agent.errors import OutOfMemory
from vpo_agent.progress import progress_bar
from vpo_envs.common.thoughts import find_thoughts
from vpo_envs.common.wording import counted
from vpo_envs.contract.turns import Turns
from vpo_envs.text import Prompt, answer_tags, as_text, split_turns

MAX_RESPONSES = 1024
"""Most responses sampled at the same time where nothing else is said."""


class Responses(Protocol):
    """Responses to P prompts, G to each; responses to the same prompt are adjacent, B = P·G."""

    @property
    def texts(self) -> list[str]:
        """The B responses as text."""

    @property
    def tokens(self) -> NDArray[np.int32] | None:
        """Number of tokens that the model wrote in each response, (B,); ``None`` if unknown."""

    @property
    def origin(self) -> Mapping[str, Any]:
        """JSON values that describe where they come from, for :attr:`vpo_agent.Pool.source`."""


@dataclass(frozen=True)
class TextResponses:
    """Responses whose text alone is known, and perhaps their length; see :class:`Responses`."""

    texts: list[str]
    tokens: NDArray[np.int32] | None
    origin: Mapping[str, Any] = field(default_factory=dict)


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
    """True for the tokens that exist, False at padding, shape (B, T)."""
    trained: Tensor
    """True for the tokens that the policy sampled and learns from, a subset of ``mask``, shape (B, T).

    Other tokens, such as an environment's reply, are read by the model but left out of losses, means and counts.
    """
    log_probs: Tensor
    """Log-probability of each trained token as it was sampled, float32, shape (B, T); elsewhere any number."""
    texts: list[str]
    """The B responses as text."""
    truncated: Tensor
    """True where a response ran into the length limit, or ended inside its thoughts, shape (B,)."""
    temperature: float

    @classmethod
    def of(
        cls,
        prompts: tuple[Tensor, Tensor],
        tokens: Sequence[Sequence[int]],
        log_probs: Sequence[Sequence[float]],
        truncated: Sequence[bool],
        temperature: float,
        texts: Sequence[str],
        trained: Sequence[Sequence[bool]] | None = None,
    ) -> Samples:
        """Combine the tokens and log-probabilities of B responses, of at least one token each, and their prompts.

        By default the policy has sampled all the tokens. A response that ends inside its thoughts counts as truncated.
        """
        device = prompts[0].device
        rows = [torch.tensor(row) for row in tokens]
        ids = pad_sequence(rows, batch_first=True)
        mask = pad_sequence([torch.ones_like(row, dtype=torch.bool) for row in rows], batch_first=True).to(device)
        values = pad_sequence([torch.tensor(row) for row in log_probs], batch_first=True)
        # Thoughts are the model's own: of several turns the last one tells, and no reply.
        unclosed = [find_thoughts(split_turns(text)[-1][0]).unclosed for text in texts]
        cut = [short or open_end for short, open_end in zip(truncated, unclosed, strict=True)]
        ended = torch.tensor(cut, device=device)
        sampled = mask
        if trained is not None:
            sampled = pad_sequence([torch.tensor(row) for row in trained], batch_first=True).to(device)
        return cls(*prompts, ids.to(device), mask, sampled, values.to(device), list(texts), ended, temperature)

    @property
    def rollouts_per_prompt(self) -> int:
        """Number of responses to each prompt, G."""
        return len(self.ids) // len(self.prompt_ids)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """Number of tokens that the policy wrote in each response, (B,)."""
        return self.trained.sum(dim=1).cpu().numpy().astype(np.int32)

    @property
    def origin(self) -> Mapping[str, Any]:
        """An empty mapping, since the caller knows the policy."""
        return {}

    def without(self, left_out: Tensor) -> Samples:
        """Return a copy in which the responses marked True in ``left_out``, (P, G), have no tokens; their rows stay."""
        kept = ~left_out.flatten().to(self.mask.device)[:, None]
        return replace(self, mask=self.mask & kept, trained=self.trained & kept)

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
            trained=self.trained[rows_here, :length],
            log_probs=self.log_probs[rows_here, :length],
            texts=[self.texts[row] for row in rows.tolist()],
            truncated=self.truncated[rows_here],
            temperature=self.temperature,
        )


def concatenate_samples(parts: Sequence[Samples]) -> Samples:
    """Join batches with the same number of rollouts per prompt."""

    def join(name: str, *, left: bool = False) -> Tensor:
        """The tensors of this name, padded with 0 to the longest."""
        tensors: list[Tensor] = [getattr(part, name) for part in parts]
        longest = max(tensor.shape[1] for tensor in tensors)
        gaps = [longest - tensor.shape[1] for tensor in tensors]
        return torch.cat([pad(t, (gap, 0) if left else (0, gap)) for t, gap in zip(tensors, gaps, strict=True)])

    return Samples(
        prompt_ids=join("prompt_ids", left=True),
        prompt_mask=join("prompt_mask", left=True),
        ids=join("ids"),
        mask=join("mask"),
        trained=join("trained"),
        log_probs=join("log_probs"),
        texts=[text for part in parts for text in part.texts],
        truncated=torch.cat([part.truncated for part in parts]),
        temperature=parts[0].temperature,
    )


@dataclass(frozen=True)
class SampleRequest:
    """What an engine samples in one call: ``rollouts`` responses to each of P prompts."""

    prompts: Sequence[Prompt]
    closing_tags: Sequence[str]
    """The tag that ends a response to each prompt, the closing tag of its last answer, (P,)."""
    places: Sequence[int]
    """Place of each prompt in the random stream, (P,), so that a batch sampled in parts has the same numbers."""
    rollouts: int
    max_new_tokens: int
    temperature: float
    seed: Sequence[int]
    turns: Sequence[Turns] | None = None
    """How the environment replies in the responses to each prompt, (P,); ``None`` if it does not."""
    on_tokens: Callable[[int], None] | None = None
    """Called now and then with the tokens that the responses under way have."""


class TextSampler(ABC):
    """Samples responses as text: a local policy, or a model behind an endpoint."""

    @abstractmethod
    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        rollouts: int,
        num_answers: int | Sequence[int],
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: Sequence[int] = (0,),
        sample_batch: int = MAX_RESPONSES,
        turns: Sequence[Turns] | None = None,
        label: str | None = None,
    ) -> Responses:
        """Sample ``rollouts`` responses to each prompt.

        A response ends at the closing tag of the last answer, at an end-of-sequence token or at ``max_new_tokens``.
        Where the environment replies to calls, the model writes on after a reply; its text then holds the replies, see
        :func:`~vpo_envs.text.with_reply`, and ``max_new_tokens`` counts what the model writes.

        Args:
            prompts: P prompts, each a text or the messages of a chat.
            rollouts: G, responses to each; the rows of a prompt are adjacent.
            num_answers: m, which names the tag that ends a response; or one number for each prompt, (P,).
            max_new_tokens: Longest response, in tokens.
            temperature: Divides the logits, > 0; the recorded log-probabilities are those of the tempered distribution.
            seed: Numbers that key the random stream; the same numbers give the same samples.
            sample_batch: Most responses in the local memory at a time, but at least all responses to one prompt. Every
                response has its own random numbers, so the split does not change it.
            turns: How the environment replies in the responses to each prompt, (P,); by default it does not.
            label: Name of a progress bar on standard error; there is none without.

        Raises:
            ValueError: Prompt and response do not fit into the model's context.
            BackendFailed: The engine gave up.
            OutOfMemory: The responses to one prompt do not fit into the device's memory.
        """


class Sampler(TextSampler):
    """Samples responses from the current weights of a policy."""

    max_responses: int | None = None
    """Most responses that fit into memory at the same time; ``None`` until memory has run out."""

    @abstractmethod
    def sample_batch(self, request: SampleRequest) -> Samples:
        """Sample all that ``request`` asks for at the same time; OutOfMemoryError of torch where memory runs out."""

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        rollouts: int,
        num_answers: int | Sequence[int],
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: Sequence[int] = (0,),
        sample_batch: int = MAX_RESPONSES,
        turns: Sequence[Turns] | None = None,
        label: str | None = None,
    ) -> Samples:
        """Sample ``rollouts`` responses to each prompt, see :meth:`TextSampler.sample`.

        Where memory does not hold ``sample_batch`` responses, fewer are sampled at a time, then and in later calls.
        This was tested with raised errors, not with a GPU whose memory ran out.
        """
        counts = [num_answers] * len(prompts) if isinstance(num_answers, int) else list(num_answers)
        allowed = min(sample_batch, self.max_responses or sample_batch)
        size = wanted = min(len(prompts), max(1, allowed // rollouts))
        order = list(range(len(prompts)))

        def by_length(prompt: int) -> tuple[int, int]:
            """Prompts of like length are sampled together, which saves padding, and so are responses."""
            return counts[prompt], len(as_text(prompts[prompt]))

        if len(order) > size:
            order.sort(key=by_length)
        parts: list[Samples] = []
        done = 0
        total = len(order) * rollouts
        bar: Any
        with progress_bar(label, total, unit="response", leave=False) if label else nullcontext() as bar:

            def show(tokens: int) -> None:
                """Count the responses under way by the share of their longest length."""
                under_way = min(size, len(order) - done) * tokens / max_new_tokens
                bar.update(int((done + under_way) * rollouts) - bar.n)

            while done < len(order):
                chosen = order[done : done + size]
                part = None
                with suppress(torch.OutOfMemoryError):
                    part = self.sample_batch(
                        SampleRequest(
                            prompts=[prompts[prompt] for prompt in chosen],
                            closing_tags=[answer_tags(counts[prompt])[-1][1] for prompt in chosen],
                            places=chosen,
                            rollouts=rollouts,
                            max_new_tokens=max_new_tokens,
                            temperature=temperature,
                            seed=seed,
                            turns=turns and [turns[prompt] for prompt in chosen],
                            on_tokens=show if label else None,
                        )
                    )
                if part is not None:
                    parts.append(part)
                    done += len(chosen)
                    if label:
                        show(0)
                    continue
                # What the failed attempt held is free only here, where its error is gone.
                if len(chosen) == 1:
                    raise OutOfMemory(
                        f"out of memory for sampling {counted(rollouts, 'response')} at a time: lower --max-new-tokens "
                        "or the number of responses per prompt"
                    )
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                size = len(chosen) // 2
                if not parts:
                    order.sort(key=by_length)
        if size < wanted:
            tqdm.write(
                f"out of memory for sampling {counted(wanted * rollouts, 'response')} at a time: the "
                f"batch is repeated, and the run goes on, with --sample-batch {size * rollouts}",
                file=sys.stderr,
            )
            self.max_responses = size * rollouts
        if len(parts) == 1:
            return parts[0]
        return concatenate_samples(parts).subset(torch.tensor(order).argsort())
