"""Tokens that exist but are not trained, such as what an environment replies: only the model reads them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import toys
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vpo_agent.config import make_config
from vpo_agent.estimators.losses import policy_loss
from vpo_agent.learning.update import PolicyUpdate
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples, concatenate_samples

PROMPTS = ["a", "the maze and the answer to the maze", "an answer?"]
ROLLOUTS = 3
FAMILIES = ("qwen3", "gpt2", "gemma2")
"""With packed rows, and (the last one) without."""


@cache
def sampled(family: str) -> tuple[LMPolicy, Samples]:
    policy = toys.make_policy(family)
    return policy, policy.sample(PROMPTS, rollouts=ROLLOUTS, num_answers=1, max_new_tokens=10, temperature=0.8)


def with_holes(samples: Samples, holes: list[bool]) -> Samples:
    """The same samples; tokens are trained where the list, repeated, says so."""
    pattern = torch.tensor(holes).repeat(samples.mask.numel() // len(holes) + 1)[: samples.mask.numel()]
    trained = samples.mask & pattern.view(samples.mask.shape)
    # What a sampler records for tokens that it did not sample is of no consequence.
    return replace(samples, trained=trained, log_probs=samples.log_probs.masked_fill(~trained, -7.0))


def plain(policy: LMPolicy, samples: Samples) -> Tensor:
    """Log-probabilities by plain forward passes, (B, T), 0 at padding."""
    out = torch.zeros(samples.mask.shape)
    return out.masked_scatter(samples.mask, torch.cat(toys.plain_log_probs(policy, samples)))


HOLES = st.lists(st.booleans(), min_size=3, max_size=17).filter(any)


@pytest.mark.parametrize("family", FAMILIES)
@given(holes=HOLES)
@settings(max_examples=15, deadline=None)
def test_log_probs_of_trained_tokens_are_those_of_a_plain_forward_pass(family: str, holes: list[bool]) -> None:
    policy, whole = sampled(family)
    samples = with_holes(whole, holes)
    with torch.no_grad():
        found, entropy = policy.log_probs(samples, entropy=True)
        expected = plain(policy, whole)
    torch.testing.assert_close(found, torch.where(samples.trained, expected, 0.0), rtol=0, atol=1e-5)
    assert entropy is not None
    assert len(entropy) == int(samples.trained.sum()) == samples.tokens.sum()


@pytest.mark.parametrize("family", FAMILIES)
@given(holes=HOLES, prompts=st.permutations(range(3)).map(lambda order: order[:2]))
@settings(max_examples=10, deadline=None)
def test_subsets_and_joined_parts_keep_what_stands_behind_a_hole(
    family: str, holes: list[bool], prompts: list[int]
) -> None:
    policy, whole = sampled(family)
    samples = with_holes(whole, holes)
    subset = samples.subset(torch.tensor(prompts))
    with torch.no_grad():
        expected, _ = policy.log_probs(samples)
        found, _ = policy.log_probs(subset)
    rows = [prompt * ROLLOUTS + rollout for prompt in prompts for rollout in range(ROLLOUTS)]
    torch.testing.assert_close(found, expected[rows][:, : found.shape[1]], rtol=0, atol=1e-5)
    assert torch.equal(subset.mask.sum(1), samples.mask[rows].sum(1))
    joined = concatenate_samples([samples.subset(torch.tensor([prompt])) for prompt in range(3)])
    assert torch.equal(joined.trained, samples.trained[:, : joined.trained.shape[1]])


@given(holes=HOLES, cap=st.sampled_from([None, 1.5]))
@settings(max_examples=10, deadline=None)
def test_loss_gradient_and_diagnostics_of_an_update_are_over_trained_tokens(
    holes: list[bool], cap: float | None
) -> None:
    policy, whole = sampled("qwen3")
    samples = with_holes(whole, holes)
    reference = toys.make_policy("qwen3", seed=2)
    changes: dict[str, Any] = {"prompts_per_step": 3, "rollouts_per_prompt": ROLLOUTS, "kl_coef": 0.1}
    update = PolicyUpdate(make_config({**changes, "microbatch_prompts": 2}), policy, reference)
    advantages = torch.randn(3, ROLLOUTS, generator=torch.Generator().manual_seed(0))
    terms = update.gradient(samples, advantages, torch.arange(3))
    assert terms is not None
    gradient = {name: parameter.grad.clone() for name, parameter in policy.model.named_parameters()}
    policy.model.zero_grad()
    log_probs = plain(policy, whole)
    with torch.no_grad():
        reference_log_probs = plain(reference, whole)
    expected = policy_loss(
        log_probs,
        samples.log_probs,
        advantages.flatten(),
        samples.trained,
        reference_log_probs=reference_log_probs,
        kl_coef=0.1,
    )
    expected.loss.backward()
    assert terms["loss"] == pytest.approx(float(expected.loss.detach()), abs=1e-5)
    assert terms["kl"] == pytest.approx(float(expected.kl), abs=1e-5)
    gap = (log_probs.detach() - samples.log_probs).abs()[samples.trained]
    assert terms["log_prob_gap"] == pytest.approx(float(gap.mean()), abs=1e-5)
    largest = max(float(value.norm()) for value in gradient.values())
    for name, parameter in policy.model.named_parameters():
        assert float((parameter.grad - gradient[name]).norm()) <= 1e-4 * largest, name
    policy.model.zero_grad()
