"""Log-probabilities from the states before the head, tile by tile, against plain autograd over whole logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vpo_agent.policy import head
from vpo_agent.policy.head import LogitTransform, token_log_probs

TOKENS, WIDTH, VOCABULARY = 23, 8, 31


def batch(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """States, weight, bias, chosen tokens, and how much each log-probability counts."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng).to(dtype).requires_grad_()

    chosen = torch.randint(VOCABULARY, (TOKENS,), generator=rng)
    return normal(TOKENS, WIDTH), normal(VOCABULARY, WIDTH), normal(VOCABULARY), chosen, torch.linspace(-1, 2, TOKENS)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, the last of which is not full."""
    monkeypatch.setattr(head, "TILE_TOKENS_CPU", 5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("finish", [None, lambda logits: torch.tanh(logits / 2) * 2], ids=["as they are", "capped"])
@pytest.mark.parametrize("has_bias", [False, True], ids=["no bias", "bias"])
def test_values_and_gradients_are_those_of_whole_logits(
    has_bias: bool, finish: LogitTransform | None, temperature: float
) -> None:
    states, weight, bias, chosen, counts = batch()
    inputs = [states, weight, bias] if has_bias else [states, weight]
    log_probs, _ = token_log_probs(
        states, weight, bias if has_bias else None, chosen, transform=finish, temperature=temperature
    )
    found = torch.autograd.grad((log_probs * counts).sum(), inputs)

    logits = states @ weight.T + (bias if has_bias else 0)
    logits = (logits if finish is None else finish(logits)) / temperature
    plain = torch.log_softmax(logits, dim=-1)[torch.arange(TOKENS), chosen]
    torch.testing.assert_close(log_probs, plain, rtol=0, atol=1e-5)
    for one, other in zip(found, torch.autograd.grad((plain * counts).sum(), inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_logits_may_be_given_in_place_of_states() -> None:
    logits, chosen, counts = torch.randn(TOKENS, VOCABULARY, requires_grad=True), *batch()[3:]
    log_probs, _ = token_log_probs(logits, None, None, chosen, temperature=2.0)
    plain = torch.log_softmax(logits / 2, dim=-1)[torch.arange(TOKENS), chosen]
    torch.testing.assert_close(log_probs, plain, rtol=0, atol=1e-5)
    found, expected = (torch.autograd.grad((values * counts).sum(), logits)[0] for values in (log_probs, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_frozen_head_gets_no_gradient_and_passes_that_of_the_states_on() -> None:
    states, weight, _, chosen, counts = batch()
    log_probs, _ = token_log_probs(states, weight.detach(), None, chosen)
    (log_probs * counts).sum().backward()
    assert weight.grad is None
    plain = torch.log_softmax(states @ weight.detach().T, dim=-1)[torch.arange(TOKENS), chosen]
    (expected,) = torch.autograd.grad((plain * counts).sum(), states)
    assert states.grad is not None
    torch.testing.assert_close(states.grad, expected, rtol=1e-4, atol=1e-5)


def test_entropy_is_measured_where_it_is_asked_for() -> None:
    states, weight, bias, chosen, _ = batch()
    _, entropy = token_log_probs(states, weight, bias, chosen, entropy=True)
    assert entropy is not None
    assert not entropy.requires_grad
    expected = torch.distributions.Categorical(logits=states @ weight.T + bias).entropy()
    torch.testing.assert_close(entropy, expected.detach(), rtol=0, atol=1e-5)
    assert token_log_probs(states, weight, bias, chosen)[1] is None


def test_half_precision_gives_float32_values_and_gradients_of_the_weights_own_format() -> None:
    states, weight, bias, chosen, counts = batch(torch.bfloat16)
    log_probs, _ = token_log_probs(states, weight, bias, chosen)
    assert log_probs.dtype == torch.float32
    found = torch.autograd.grad((log_probs * counts).sum(), [states, weight, bias])
    assert {gradient.dtype for gradient in found} == {torch.bfloat16}
    exact = [tensor.detach().float().requires_grad_() for tensor in (states, weight, bias)]
    plain = torch.log_softmax(exact[0] @ exact[1].T + exact[2], dim=-1)[torch.arange(TOKENS), chosen]
    torch.testing.assert_close(log_probs, plain, rtol=0, atol=0.1)
    for one, other in zip(found, torch.autograd.grad((plain * counts).sum(), exact), strict=True):
        assert float((one.float() - other).norm() / other.norm()) < 0.02


def test_many_tiles_in_half_precision_add_up() -> None:
    """Pulls of one sign: their sum grows, and in bfloat16 would soon be too large for what a tile adds."""
    rng = torch.Generator().manual_seed(1)
    states = (torch.randn(2_000, WIDTH, generator=rng) + 1).bfloat16()
    weight, chosen = batch(torch.bfloat16)[1], torch.randint(VOCABULARY // 4, (2_000,), generator=rng)
    (found,) = torch.autograd.grad(token_log_probs(states, weight, None, chosen)[0].sum(), weight)
    exact = weight.detach().float().requires_grad_()
    plain = torch.log_softmax(states.float() @ exact.T, dim=-1)[torch.arange(2_000), chosen]
    (expected,) = torch.autograd.grad(plain.sum(), exact)
    assert float((found.float() - expected).norm() / expected.norm()) < 0.005


def test_no_tokens_give_no_log_probs_and_a_gradient_of_zeros() -> None:
    states, weight, bias, chosen, _ = batch()
    log_probs, _ = token_log_probs(states[:0], weight, bias, chosen[:0])
    assert log_probs.shape == (0,)
    assert not torch.autograd.grad(log_probs.sum(), weight)[0].any()


@pytest.mark.parametrize("tokens", [100, 1000])
def test_what_is_kept_for_the_backward_pass_does_not_grow_with_the_vocabulary(tokens: int) -> None:
    states, chosen = torch.randn(tokens, WIDTH, requires_grad=True), torch.zeros(tokens, dtype=torch.long)
    weight = torch.randn(5_000, WIDTH, requires_grad=True)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        token_log_probs(states, weight, None, chosen)
    assert sorted(kept) == sorted([states.numel(), weight.numel(), chosen.numel()])
