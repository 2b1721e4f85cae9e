"""AdamW on float32 copies: against plain AdamW, and where plain AdamW in bfloat16 stands still."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vpo_agent.learning.optimizer import MasterAdamW


def make(
    dtype: torch.dtype, size: int = 6, rate: float = 1e-3, start: Tensor | None = None, fused: bool | None = None
) -> tuple[Tensor, MasterAdamW]:
    values = 1 + torch.rand(size, generator=torch.Generator().manual_seed(0)) if start is None else start
    weight = values.to(dtype, copy=True).requires_grad_()
    frozen = torch.ones(3)
    return weight, MasterAdamW(
        [("weight", weight), ("frozen", frozen)], learning_rate=rate, beta2=0.999, weight_decay=0.01, fused=fused
    )


def push(weight: Tensor, factor: float = 1.0) -> None:
    (weight * torch.arange(1, len(weight) + 1).to(weight) * factor).sum().backward()


def trained(dtype: torch.dtype) -> tuple[Tensor, MasterAdamW]:
    """After three steps."""
    weight, optimizer = make(dtype)
    for _ in range(3):
        push_and_step(weight, optimizer)
    return weight, optimizer


def push_and_step(weight: Tensor, optimizer: MasterAdamW) -> None:
    optimizer.zero_grad()
    push(weight)
    optimizer.step(1e-3, 1.0)


def resumed(weight: Tensor, optimizer: MasterAdamW, dtype: torch.dtype) -> tuple[Tensor, MasterAdamW]:
    """The weight as a checkpoint of ``dtype`` holds it, and an optimizer of it with the state of the one before."""
    loaded, other = make(dtype, start=weight.detach())
    other.load_state({name: value.clone() for name, value in optimizer.state().items()})
    return loaded, other


def test_float32_steps_are_those_of_plain_adamw() -> None:
    weight, optimizer = make(torch.float32)
    plain = weight.detach().clone().requires_grad_()
    reference = torch.optim.AdamW([plain], lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01)
    for step in range(5):
        rate = 1e-3 * (step + 1)
        optimizer.zero_grad()
        push(weight)
        norm = optimizer.step(rate, max_norm=2.0)
        reference.zero_grad()
        push(plain)
        assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_([plain], 2.0)))
        reference.param_groups[0]["lr"] = rate
        reference.step()
        assert torch.equal(weight, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_step_of_gpus_is_the_plain_one_and_goes_on_from_its_state(dtype: torch.dtype) -> None:
    plain, fused = make(dtype), make(dtype, fused=True)
    assert plain[1].adamw.defaults["fused"] is None
    for _ in range(3):
        push_and_step(*plain)
        push_and_step(*fused)
    start = plain[0].detach()
    others = [make(dtype, start=start, fused=way) for way in (None, True)]
    for (_, other), (_, optimizer) in zip(others, (fused, plain), strict=True):
        other.load_state({name: value.clone() for name, value in optimizer.state().items()})
    for pair in (plain, fused, *others):
        push_and_step(*pair)
    masters = [optimizer.masters["weight"].detach() for _, optimizer in (plain, fused, *others)]
    for master in masters[1:]:
        torch.testing.assert_close(master, masters[0], rtol=1e-6, atol=0)


def test_tiny_updates_of_bfloat16_weights_add_up() -> None:
    weight, optimizer = make(torch.bfloat16, rate=1e-4)
    start = weight.detach().float().clone()
    plain = weight.detach().clone().requires_grad_()
    rounded = torch.optim.AdamW([plain], lr=1e-4, weight_decay=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        push(weight)
        optimizer.step(1e-4, max_norm=1e9)
        plain.grad = None
        push(plain)
        rounded.step()
    assert torch.equal(plain.detach().float(), start), "plain bfloat16 is meant to lose these updates"
    expected = start - 200e-4
    torch.testing.assert_close(optimizer.masters["weight"].detach(), expected, rtol=0, atol=1e-3)
    torch.testing.assert_close(weight.detach().float(), expected, rtol=0, atol=5e-3)


def test_gradients_of_bfloat16_micro_batches_are_summed_in_float32() -> None:
    weight, optimizer = make(torch.bfloat16)
    optimizer.zero_grad()
    push(weight)
    for _ in range(256):
        push(weight, 1 / 512)
    gradient = optimizer.masters["weight"].grad
    assert gradient is not None
    torch.testing.assert_close(gradient, torch.arange(1, 7) * 1.5, rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(dtype: torch.dtype, bad: float) -> None:
    weight, optimizer = make(dtype)
    push(weight)
    optimizer.step(1e-3, 1.0)
    before, master = weight.detach().clone(), optimizer.masters["weight"].detach().clone()
    state = {name: value.clone() for name, value in optimizer.state().items()}
    optimizer.zero_grad()
    push(weight, bad)
    assert not torch.isfinite(torch.tensor(optimizer.step(1e-3, 1.0)))
    assert torch.equal(weight, before)
    for name, value in optimizer.state().items():
        assert torch.equal(value, state[name]), name
    optimizer.zero_grad()
    push(weight)
    assert optimizer.step(1e-3, 1.0) > 0
    assert not torch.equal(optimizer.masters["weight"], master)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_goes_on_exactly(dtype: torch.dtype) -> None:
    weight, optimizer = trained(dtype)
    other_weight, other = resumed(weight, optimizer, dtype)
    push_and_step(weight, optimizer)
    push_and_step(other_weight, other)
    assert torch.equal(weight, other_weight)
    assert torch.equal(optimizer.masters["weight"], other.masters["weight"])


def test_float32_weights_go_on_from_the_copies_of_bfloat16_ones() -> None:
    weight, optimizer = trained(torch.bfloat16)
    loaded, other = resumed(weight, optimizer, torch.float32)
    assert not torch.equal(loaded, weight.float()), "the copies are meant to be finer than the weights"
    assert torch.equal(loaded, optimizer.masters["weight"])
    # The gradient is the same in both precisions, so both take the same step.
    push_and_step(weight, optimizer)
    push_and_step(loaded, other)
    assert torch.equal(loaded, optimizer.masters["weight"])


def test_bfloat16_weights_go_on_from_the_rounded_float32_ones() -> None:
    weight, optimizer = trained(torch.float32)
    _, other = resumed(weight, optimizer, torch.bfloat16)
    assert torch.equal(other.masters["weight"], weight.to(torch.bfloat16).float())
    for name in ("step", "exp_avg", "exp_avg_sq"):
        assert torch.equal(other.state()[f"{name}/weight"], optimizer.state()[f"{name}/weight"])


def test_what_needs_no_gradient_is_left_out() -> None:
    weight, optimizer = make(torch.float32)
    push(weight)
    optimizer.step(1e-3, 1.0)
    assert {name.split("/")[1] for name in optimizer.state()} == {"weight"}


def test_the_state_of_another_model_is_refused() -> None:
    weight, optimizer = make(torch.float32)
    push(weight)
    optimizer.step(1e-3, 1.0)
    state = optimizer.state()
    with pytest.raises(ValueError, match=r"belongs to another model: weight has shape \(6,\) there and \(5,\) here"):
        make(torch.float32, size=5)[1].load_state(state)
    renamed = {name.replace("weight", "bias"): value for name, value in state.items()}
    with pytest.raises(ValueError, match="belongs to another model: it has bias"):
        optimizer.load_state(renamed)
