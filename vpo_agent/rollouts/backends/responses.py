"""Converts what engines return, tokens and log-probabilities, to samples that end where native ones end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from vpo_agent.policy.decoding import ClosingTag
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
    stop = policy.closing_tag(answer_tags(request.num_answers)[-1][1])
    ends = [_end(row, policy.ending_ids, stop) for row in tokens]
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


def _end(tokens: Sequence[int], ending: Sequence[int], stop: ClosingTag) -> int | None:
    """Tokens up to the end of a response; ``None`` without an end."""
    for count, token in enumerate(tokens, 1):
        if token in ending or stop(tokens[max(0, count - stop.most_tokens) : count]):
            return count
    return None
