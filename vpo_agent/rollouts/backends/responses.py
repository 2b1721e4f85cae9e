"""Converts what engines return, tokens and log-probabilities, to samples that end where native ones end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from vpo_agent.policy.decoding import ClosingTag
from vpo_agent.policy.generators import generator_states, restore_generators
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Sampler, SampleRequest, Samples
from vpo_envs.text import answer_tags


class EngineSampler(Sampler):
    """Samples from a policy by an engine with a loop of its own."""

    def __init__(self, policy: LMPolicy) -> None:
        self.policy = policy

    def _sample(self, request: SampleRequest) -> Samples:
        ids, mask = self.policy.encode_prompts(request.prompts)
        self.policy.check_length(ids.shape[1], request.max_new_tokens)
        rows = [row[seen].tolist() for row, seen in zip(ids.cpu(), mask.cpu(), strict=True)]
        with generators_kept():
            tokens, log_probs = self._generate(rows, request)
        return to_samples(self.policy, (ids, mask), tokens, log_probs, request)

    @abstractmethod
    def _generate(
        self, prompts: list[list[int]], request: SampleRequest
    ) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[float]]]:
        """The tokens of all responses, those to a prompt adjacent, and the log-probabilities of these tokens."""


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
