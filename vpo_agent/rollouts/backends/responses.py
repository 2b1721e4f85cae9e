"""Converts what engines return, tokens and log-probabilities, to samples that end where native ones end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from vpo_agent.policy.generators import generator_states, restore_generators
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import SampleRequest, Samples
from vpo_envs.text import answer_tags


def to_samples(
    policy: LMPolicy,
    prompts: tuple[Tensor, Tensor],
    tokens: Sequence[Sequence[int]],
    log_probs: Sequence[Sequence[float]],
    request: SampleRequest,
) -> Samples:
    """Cut responses at their end and combine them.

    A response ends with the token that completes the closing tag of the last answer, or with an end-of-sequence token;
    one with neither is truncated.

    Args:
        policy: Its tokenizer decodes.
        prompts: Prompt tokens and their mask from :meth:`LMPolicy.encode_prompts`.
        tokens: B responses of at least one token each, in the order of their prompts.
        log_probs: The log-probability of each of those tokens.
        request: The request that they answer.
    """
    closing = answer_tags(request.num_answers)[-1][1]
    ends = [_end(row, closing, policy) for row in tokens]
    return Samples.of(
        prompts,
        [row[:end] for row, end in zip(tokens, ends, strict=True)],
        [row[:end] for row, end in zip(log_probs, ends, strict=True)],
        [end is None for end in ends],
        request.temperature,
        policy.tokenizer,
    )


def prompt_rows(prompt_ids: Tensor, prompt_mask: Tensor) -> list[list[int]]:
    """The tokens of each prompt without padding."""
    return [ids[mask].tolist() for ids, mask in zip(prompt_ids.cpu(), prompt_mask.cpu(), strict=True)]


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the global random generators after an engine has used them."""
    states = generator_states()
    try:
        yield
    finally:
        restore_generators(*states)


def _end(tokens: Sequence[int], closing: str, policy: LMPolicy) -> int | None:
    """Tokens up to the end of a response; ``None`` without an end."""
    ending = set(policy.ending_ids)
    stop = next((place + 1 for place, token in enumerate(tokens) if token in ending), None)

    def closed(count: int) -> bool:
        return closing in policy.tokenizer.decode(list(tokens[:count]), skip_special_tokens=True)

    if not closed(len(tokens)):
        return stop
    tag = 1 + bisect_left(range(1, len(tokens) + 1), True, key=closed)
    return tag if stop is None else min(tag, stop)
