"""The update: its gradient against the loss written out over the whole batch, and when it takes no step."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import vpo_agent.learning.update as update_module
from vpo_agent.config import TrainConfig, make_config
from vpo_agent.errors import OutOfMemory
from vpo_agent.estimators.losses import policy_loss, token_weights
from vpo_agent.learning.optimizer import learning_rate
from vpo_agent.learning.update import MicroBatches, PolicyUpdate
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.samples import Samples

PROMPTS, ROLLOUTS, LIMIT = 4, 5, 12
ALL = torch.arange(PROMPTS)
EVERYTHING = torch.ones(PROMPTS, ROLLOUTS, dtype=torch.bool)


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Drawn from other weights than those of the update, so that ratios differ from 1 and some are clipped."""
    texts = ["a", "the maze and the answer", "an answer?", "mm"]
    samples = make_policy(seed=1).sample(texts, rollouts=ROLLOUTS, num_answers=1, max_new_tokens=LIMIT, seed=(1,))
    assert len(set(samples.mask.sum(1).tolist())) > 3
    return samples


def make_policy(seed: int = 0) -> LMPolicy:
    tokenizer = toys.bpe_tokenizer()
    return LMPolicy(toys.ends_often(toys.tiny_model("qwen3", tokenizer, seed=seed, scale=1.5)), tokenizer)


def make_update(reference: LMPolicy | None = None, **changes: Any) -> PolicyUpdate:
    settings = {"prompts_per_step": PROMPTS, "rollouts_per_prompt": ROLLOUTS, "max_new_tokens": LIMIT, "kl_coef": 0.0}
    config: TrainConfig = make_config({**settings, "learning_rate": 1e-3, **changes})
    return PolicyUpdate(config, make_policy(), reference)


def advantages(seed: int = 0) -> Tensor:
    return torch.randn(PROMPTS, ROLLOUTS, generator=torch.Generator().manual_seed(seed))


def gradient_of(update: PolicyUpdate) -> Tensor:
    return torch.cat([master.grad.flatten() for master in update.optimizer.masters.values() if master.grad is not None])


def loss_written_out(update: PolicyUpdate, samples: Samples, weights: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the loss over one batch of everything, with no micro-batches and no skipping."""
    policy, config = update.policy, update.config
    policy.model.zero_grad()
    log_probs, _ = policy.log_probs(samples)
    reference = None
    if update.reference is not None:
        with torch.no_grad():
            reference, _ = update.reference.log_probs(samples)
    terms = policy_loss(
        log_probs,
        samples.log_probs,
        weights.flatten(0, 1),
        mask,
        reference_log_probs=reference,
        kl_coef=config.kl_coef,
    )
    terms.loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])
    policy.model.zero_grad()
    return gradient


def sizes_of_passes(update: PolicyUpdate, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list into which the number of prompts of each forward pass comes."""
    log_probs = update.policy.log_probs
    sizes: list[int] = []

    def watched(samples: Samples, **options: Any) -> Any:
        sizes.append(len(samples.prompt_ids))
        return log_probs(samples, **options)

    monkeypatch.setattr(update.policy, "log_probs", watched)
    return sizes


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("microbatch", [1, 3, 4, "auto"])
def test_micro_batches_add_up_to_the_gradient_of_the_whole(
    samples: Samples, microbatch: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_module, "CPU_TOKENS", 100)
    update = make_update(microbatch_prompts=microbatch)
    prompts = sizes_of_passes(update, monkeypatch)
    update.gradient(samples, advantages(), ALL)
    assert prompts == {1: [1] * 4, 3: [3, 1], 4: [4], "auto": [2, 2]}[microbatch]
    expected = loss_written_out(make_update(), samples, advantages(), samples.mask)
    assert relative_error(gradient_of(update), expected) <= 1e-5


@pytest.mark.parametrize("microbatch", [1, 3, 4])
def test_tokens_may_have_advantages_of_their_own(samples: Samples, microbatch: int) -> None:
    update = make_update(microbatch_prompts=microbatch)
    shape = (PROMPTS, ROLLOUTS, samples.ids.shape[1])
    of_tokens = torch.randn(*shape, generator=torch.Generator().manual_seed(5))
    update.gradient(samples, of_tokens, ALL)
    expected = loss_written_out(make_update(), samples, of_tokens, samples.mask)
    assert relative_error(gradient_of(update), expected) <= 1e-5
    update.gradient(samples, advantages()[..., None].expand(shape), ALL)
    same = gradient_of(update)
    update.gradient(samples, advantages(), ALL)
    torch.testing.assert_close(same, gradient_of(update))


def test_a_kl_penalty_pulls_towards_the_reference(samples: Samples) -> None:
    update = make_update(make_policy(seed=2), kl_coef=0.1, microbatch_prompts=3)
    terms = update.gradient(samples, torch.zeros(PROMPTS, ROLLOUTS), ALL)
    assert terms is not None
    assert terms["kl"] > 0
    expected = loss_written_out(update, samples, torch.zeros(PROMPTS, ROLLOUTS), samples.mask)
    update.gradient(samples, torch.zeros(PROMPTS, ROLLOUTS), ALL)
    assert relative_error(gradient_of(update), expected) <= 1e-5


def test_groups_without_advantage_are_skipped_without_changing_the_gradient(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = advantages()
    weights[[0, 3]] = 0.0
    update = make_update()
    prompts = sizes_of_passes(update, monkeypatch)
    update.gradient(samples, weights, ALL)
    assert sum(prompts) == 2
    expected = loss_written_out(make_update(), samples, weights, samples.mask)
    assert relative_error(gradient_of(update), expected) <= 1e-5


def test_rollouts_left_out_pull_nothing_and_count_nothing(samples: Samples) -> None:
    valid = torch.ones(PROMPTS, ROLLOUTS, dtype=torch.bool)
    valid[0, 2] = valid[1, 0] = False
    valid[2] = False
    # A rate of the optimizer's own making would hide the scale of the gradient; its first moment does not.
    update = make_update(make_policy(seed=2), kl_coef=0.1, max_grad_norm=1e9)
    update.step(samples, torch.where(valid, advantages(), 0.0), valid=valid, step=0)
    moments = {name: value for name, value in update.optimizer.state().items() if name.startswith("exp_avg/")}
    found = torch.cat([moments[f"exp_avg/{name}"].flatten() for name in update.optimizer.masters]) / 0.1
    fresh = make_update(update.reference, kl_coef=0.1)
    mask = samples.mask & valid.flatten()[:, None]
    assert relative_error(found, loss_written_out(fresh, samples, advantages(), mask)) <= 1e-4


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("kept", [True, False], ids=["no advantage", "no rollout"])
def test_a_batch_without_any_advantage_or_any_rollout_takes_no_step(
    samples: Samples, kept: bool, cap: float | None
) -> None:
    reference = None if kept else make_policy(seed=2)
    update = make_update(reference, kl_coef=0.0 if kept else 0.1, importance_cap=cap)
    before = [parameter.detach().clone() for parameter in update.policy.model.parameters()]
    valid = torch.full((PROMPTS, ROLLOUTS), kept)
    finite, logged = update.step(samples, torch.zeros(PROMPTS, ROLLOUTS), valid=valid, step=0)
    assert finite
    assert logged["loss"] == logged["grad_norm"] == 0
    assert math.isnan(logged["entropy"]), "nothing was measured"
    assert all(torch.equal(old, new) for old, new in zip(before, update.policy.model.parameters(), strict=True))


@pytest.mark.parametrize(("minibatch", "epochs", "steps"), [(None, 1, 1), (2, 1, 2), (3, 1, 2), (2, 2, 4)])
def test_mini_batches_cover_every_prompt_once_an_epoch(
    samples: Samples, monkeypatch: pytest.MonkeyPatch, minibatch: int | None, epochs: int, steps: int
) -> None:
    update = make_update(minibatch_prompts=minibatch, epochs=epochs)
    seen: list[list[int]] = []
    gradient = update.gradient

    def watched(samples: Samples, weights: Tensor, prompts: Tensor, num_answers: None) -> Any:
        seen.append(prompts.tolist())
        return gradient(samples, weights, prompts, num_answers)

    monkeypatch.setattr(update, "gradient", watched)
    update.step(samples, advantages(), valid=EVERYTHING, step=3)
    assert len(seen) == steps
    assert sorted(itertools.chain(*seen)) == sorted(list(range(PROMPTS)) * epochs)
    (step,) = {float(value) for name, value in update.optimizer.state().items() if name.startswith("step/")}
    assert step == steps


def test_a_mini_batch_of_equal_numbers_of_answers_is_a_mean_over_its_tokens(samples: Samples) -> None:
    asked = torch.tensor([1, 3, 3, 1])
    alone, mixed = make_update(), make_update()
    for minibatch, equal in ((torch.tensor([1, 2]), True), (ALL, False)):
        alone.gradient(samples, advantages(), minibatch)
        mixed.gradient(samples, advantages(), minibatch, asked)
        assert torch.allclose(gradient_of(alone), gradient_of(mixed), rtol=1e-4, atol=1e-7) == equal


def test_tokens_count_parts_by_their_prompts_that_have_any() -> None:
    lengths, asked = torch.tensor([10, 30, 50, 0, 30]), torch.tensor([1, 3, 3, 3, 2])
    weights = token_weights(lengths, asked)
    each = {m: float((weights * lengths)[asked == m].sum()) for m in (1, 2, 3)}
    assert each == pytest.approx({1: 30, 2: 30, 3: 60})
    assert (token_weights(lengths, torch.ones(5)) == 1).all()


def test_diagnostics_are_means_over_the_optimizer_steps_taken(samples: Samples) -> None:
    """With one prompt to an optimizer step and one group with a signal, three of the four steps are not taken."""
    weights = torch.zeros(PROMPTS, ROLLOUTS)
    weights[2] = advantages()[2]
    alone = make_update().gradient(samples, weights, torch.tensor([2]))
    assert alone is not None
    _, logged = make_update(minibatch_prompts=1).step(samples, weights, valid=EVERYTHING, step=0)
    assert alone["entropy"] > 0.1
    for name in ("loss", "kl", "clip_fraction", "approx_kl", "entropy"):
        assert logged[name] == pytest.approx(alone[name], rel=1e-5, nan_ok=True)
    update = make_update()
    update.gradient(samples, weights, torch.tensor([2]))
    assert logged["grad_norm"] == pytest.approx(float(gradient_of(update).norm()), rel=1e-4)


def test_the_rate_rises_over_the_warm_up(samples: Samples) -> None:
    update = make_update(warmup_steps=3, learning_rate=0.4)
    rates = [update.step(samples, advantages(), valid=EVERYTHING, step=step)[1]["learning_rate"] for step in range(5)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


def test_the_reference_of_adapters_is_the_model_without_them(bpe_model: Path, samples: Samples) -> None:
    pytest.importorskip("peft")
    policy = LMPolicy.from_pretrained(bpe_model, device="cpu", lora_rank=4)
    config = make_config({"lora_rank": 4, "kl_coef": 0.1, "prompts_per_step": PROMPTS, "rollouts_per_prompt": ROLLOUTS})
    update = PolicyUpdate(config, policy, None)
    none = torch.zeros(PROMPTS, ROLLOUTS)
    terms = update.gradient(samples, none, ALL)
    assert terms is not None
    assert terms["kl"] == pytest.approx(0, abs=1e-9), "fresh adapters change nothing yet"
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    adapted = update.gradient(samples, none, ALL)
    apart = PolicyUpdate(config, policy, LMPolicy.from_pretrained(bpe_model, device="cpu")).gradient(samples, none, ALL)
    assert adapted is not None
    assert apart is not None
    assert adapted["kl"] > 1e-3
    assert adapted["kl"] == pytest.approx(apart["kl"], rel=1e-4)


# --- out of memory ---


def hold_at_most(update: PolicyUpdate, prompts: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make the policy run out of memory with more prompts at a time; the sizes that were tried come into the list."""
    log_probs = update.policy.log_probs
    tried: list[int] = []

    def limited(samples: Samples, **options: Any) -> Any:
        tried.append(len(samples.prompt_ids))
        if len(samples.prompt_ids) > prompts:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return log_probs(samples, **options)

    monkeypatch.setattr(update.policy, "log_probs", limited)
    return tried


def test_out_of_memory_halves_the_micro_batch_and_repeats_the_step(
    samples: Samples, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = make_update(microbatch_prompts=4)
    update = make_update(microbatch_prompts=8)
    tried = hold_at_most(update, 2, monkeypatch)
    for at in range(2):
        expected.step(samples, advantages(at), valid=EVERYTHING, step=at)
        finite, _ = update.step(samples, advantages(at), valid=EVERYTHING, step=at)
        assert finite
    assert tried == [4, 2, 2, 2, 2]
    for ours, theirs in zip(update.policy.model.parameters(), expected.policy.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "out of memory with 4 prompts per micro-batch: repeating the step, and continuing, with --microbatch-prompts 2"
    )


@pytest.mark.parametrize(("held", "tried"), [(4, [4, 4]), (3, [4, 2, 2, 2, 2]), (1, [4, 2, 1, 1, 1, 1, 1, 1, 1, 1])])
def test_auto_takes_the_most_prompts_that_fit_and_says_so_once(
    samples: Samples, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], held: int, tried: list[int]
) -> None:
    update = make_update()
    # What a GPU would do, with memory for so many prompts.
    update.microbatches = MicroBatches("auto", torch.device("cuda"))
    seen = hold_at_most(update, held, monkeypatch)
    for _ in range(2):
        update.gradient(samples, advantages(), ALL)
    assert seen == tried
    expected = make_update(microbatch_prompts=tried[-1])
    expected.gradient(samples, advantages(), ALL)
    assert torch.equal(gradient_of(update), gradient_of(expected))
    (line,) = capsys.readouterr().err.splitlines()
    fits = {4: "all prompts", 2: "at most 2 prompts (the most that fit)", 1: "at most 1 prompt (the most that fit)"}
    assert line == f"--microbatch-prompts auto: {fits[tried[-1]]} at a time"


def test_auto_on_a_cpu_does_not_depend_on_what_a_run_has_done_before(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_module, "CPU_TOKENS", 100)
    resumed, whole = make_update(), make_update()
    whole.gradient(samples, advantages(), ALL[2:])
    whole.gradient(samples, advantages(), ALL)
    resumed.gradient(samples, advantages(), ALL)
    assert torch.equal(gradient_of(resumed), gradient_of(whole))


def sizes_of_micro_batches(setting: Any, tokens: list[int]) -> list[int]:
    """Prompts of each micro-batch on a CPU, where each prompt has one response, of so many tokens, and no tokens."""
    prompts, longest = len(tokens), max(tokens)
    mask = torch.arange(longest) < torch.tensor(tokens)[:, None]
    nothing = torch.zeros(prompts, 1, dtype=torch.long)
    ids = torch.zeros(prompts, longest, dtype=torch.long)
    samples = Samples(nothing, nothing.bool(), ids, mask, mask, ids.float(), [""] * prompts, mask[:, 0], 1.0)
    micro_batches = MicroBatches(setting, torch.device("cpu")).split(samples, torch.arange(prompts))
    assert torch.cat(micro_batches).tolist() == list(range(prompts))
    return [len(micro_batch) for micro_batch in micro_batches]


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=20), st.sampled_from(["auto", 1, 2, 5]))
def test_micro_batches_on_a_cpu_are_bounded_and_a_function_of_the_lengths(tokens: list[int], setting: Any) -> None:
    sizes = sizes_of_micro_batches(setting, tokens)
    assert sizes == sizes_of_micro_batches(setting, tokens)
    assert sum(sizes) == len(tokens)
    ends = list(itertools.accumulate(sizes))
    parts = [tokens[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    if setting == "auto":
        assert all(len(part) == 1 or sum(part) <= 1024 for part in parts)
        # None could have taken the next prompt as well.
        assert all(sum(part) + after[0] > 1024 for part, after in itertools.pairwise(parts))
    else:
        assert sizes[:-1] == [setting] * (len(sizes) - 1)
        assert 1 <= sizes[-1] <= setting


def test_what_was_added_before_the_memory_ran_out_does_not_count_twice(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = make_update(microbatch_prompts=2)
    log_probs, calls = update.policy.log_probs, 0

    def failing_once(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return log_probs(*arguments, **options)

    monkeypatch.setattr(update.policy, "log_probs", failing_once)
    update.gradient(samples, advantages(), ALL)
    expected = make_update()
    expected.gradient(samples, advantages(), ALL)
    assert relative_error(gradient_of(update), gradient_of(expected)) <= 1e-5


def test_a_single_prompt_that_does_not_fit_ends_the_run(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    update = make_update()
    tried = hold_at_most(update, 0, monkeypatch)
    with pytest.raises(OutOfMemory, match="with one prompt per micro-batch: lower --rollouts-per-prompt or"):
        update.gradient(samples, advantages(), ALL)
    assert tried == [4, 2, 1]


# --- what the sampler recorded against what the trainer computes ---


def own_log_probs(update: PolicyUpdate, samples: Samples) -> Tensor:
    with torch.no_grad():
        return update.policy.log_probs(samples)[0]


@pytest.mark.parametrize("cap", [None, 1.5])
def test_the_gap_is_that_of_the_weights_that_sampled(samples: Samples, cap: float | None) -> None:
    update = make_update(importance_cap=cap, epochs=3, microbatch_prompts=1)
    difference = (own_log_probs(update, samples) - samples.log_probs).abs()[samples.mask]
    _, row = update.step(samples, advantages(), valid=EVERYTHING, step=0)
    assert row["log_prob_gap"] == pytest.approx(float(difference.mean()), rel=1e-4)
    assert row["log_prob_gap_max"] == pytest.approx(float(difference.max()), rel=1e-4)


def test_importance_weighs_each_token_by_the_capped_ratio(samples: Samples) -> None:
    """The first gradient is that of ratio 1 at the trainer's own log-probabilities, each token times its weight."""
    cap = 1.1
    update = make_update(importance_cap=cap)
    pulls = advantages()
    captured: list[Tensor] = []
    take = update.optimizer.step

    def watched(learning_rate: float, max_norm: float) -> float:
        captured.append(gradient_of(update))
        return take(learning_rate, max_norm)

    update.optimizer.step = watched  # type: ignore[method-assign]
    policy = update.policy
    current, _ = policy.log_probs(samples)
    ratio = torch.exp(current.detach() - samples.log_probs)
    assert float(ratio[samples.mask].max()) > cap
    weight = torch.where(samples.mask, ratio.clamp(max=cap), 0.0)
    loss = -(weight * pulls.flatten()[:, None] * torch.exp(current - current.detach())).sum() / samples.mask.sum()
    loss.backward()
    expected = torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])
    policy.model.zero_grad()
    update.step(samples, pulls, valid=EVERYTHING, step=0)
    assert relative_error(captured[0], expected) < 1e-5


# --- a step that fails ---


def fail_at(update: PolicyUpdate, number: int, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Let the gradient of one of the mini-batches raise the error, or have a loss that is not finite."""
    gradient, calls = update.gradient, 0

    def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        terms = gradient(*arguments)
        if calls == number and error is not None:
            raise error
        if calls == number and terms is not None:
            terms["loss"] = math.nan
        return terms

    monkeypatch.setattr(update, "gradient", failing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("error", [None, RuntimeError("broken")])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_step_that_fails_in_any_mini_batch_changes_nothing(
    samples: Samples, monkeypatch: pytest.MonkeyPatch, number: int, error: Exception | None, dtype: torch.dtype
) -> None:
    policy = make_policy()
    policy.model.to(dtype)
    settings = {"minibatch_prompts": 1, "learning_rate": 0.01, "kl_coef": 0.0}
    sizes = {"prompts_per_step": PROMPTS, "rollouts_per_prompt": ROLLOUTS, "max_new_tokens": LIMIT}
    update = PolicyUpdate(make_config({**settings, **sizes}), policy, None)
    update.step(samples, advantages(), valid=EVERYTHING, step=0)
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    state = {name: value.clone() for name, value in update.optimizer.state().items()}
    with monkeypatch.context() as patch:
        fail_at(update, number, patch, error)
        if error is None:
            finite, row = update.step(samples, advantages(1), valid=EVERYTHING, step=1)
            assert not finite
            assert math.isnan(row["loss"])
        else:
            with pytest.raises(RuntimeError, match="broken"):
                update.step(samples, advantages(1), valid=EVERYTHING, step=1)
    for name, value in policy.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    for name, value in update.optimizer.state().items():
        assert torch.equal(value, state[name]), name
    assert all(parameter.grad is None for parameter in policy.model.parameters())
    # The next step is that of a run in which nothing failed.
    finite, _ = update.step(samples, advantages(2), valid=EVERYTHING, step=2)
    assert finite
    assert any(not torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())


# --- the learning rate ---


def test_schedules_are_what_pytorch_computes() -> None:
    """With PyTorch's own schedulers, of which the warm-up is ours."""
    steps, warmup = 12, 3
    for schedule in ("linear", "cosine"):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        length = steps - warmup
        theirs = {
            "linear": torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, length),
            "cosine": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length),
        }[schedule]
        for group in optimizer.param_groups:
            group["lr"] = 0.5
        rates = [
            learning_rate(step, peak=0.5, warmup_steps=warmup, schedule=schedule, steps=steps)  # type: ignore[arg-type]
            for step in range(steps)
        ]
        assert rates[:warmup] == pytest.approx([0.125, 0.25, 0.375])
        expected = []
        for _ in range(length):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            theirs.step()
        assert rates[warmup:] == pytest.approx(expected, abs=1e-9)
        assert rates[-1] > 0


def test_an_error_inside_the_optimizer_leaves_weights_that_are_not_worth_a_checkpoint(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = make_update()
    assert update.optimizer.is_whole

    def broken() -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(update.optimizer.adamw, "step", broken)
        with pytest.raises(RuntimeError, match="broken"):
            update.step(samples, advantages(), valid=EVERYTHING, step=0)
    assert not update.optimizer.is_whole
