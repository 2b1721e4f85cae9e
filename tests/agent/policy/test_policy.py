"""The policy: what it samples, and the log-probabilities it gives, against plain forward passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from torch import Tensor
from toys import make_policy
from transformers import AutoTokenizer

from vpo_agent.policy import loading
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.model_choice import ModelChoice, choose_dtype
from vpo_agent.policy.samples import SampleRequest, Samples, concatenate_samples

PROMPTS = ["a", "the maze and the answer to the maze", "an answer?"]
ROLLOUTS = 5


def sample(policy: LMPolicy, prompts: list[str] = PROMPTS, **changes: Any) -> Samples:
    settings = {"rollouts": ROLLOUTS, "num_answers": 1, "max_new_tokens": 12, "temperature": 0.8, "seed": (3, 1)}
    return policy.sample(prompts, **{**settings, **changes})


def sample_at(policy: LMPolicy, prompts: list[str], places: list[int], **changes: Any) -> Samples:
    """Samples of prompts with these places in the random stream."""
    settings = {"rollouts": ROLLOUTS, "max_new_tokens": 12, "temperature": 0.8, "seed": (3, 1), **changes}
    with torch.no_grad():
        return policy.sample_batch(SampleRequest(prompts, ["</answer>"] * len(prompts), places, **settings))


def test_loaded_weights_lie_in_memory_as_made_ones_do(tmp_path: Path) -> None:
    """Otherwise a resumed run differs in the last bit: products of matrices on a CPU depend on the address."""
    made = make_policy("gpt2")
    made.save(tmp_path)
    for policy in (made, LMPolicy.from_pretrained(tmp_path, device="cpu")):
        assert {weight.data_ptr() % 64 for weight in policy.model.parameters()} == {0}
        causal_lm = policy.causal_lm
        assert causal_lm.get_input_embeddings().weight is causal_lm.get_output_embeddings().weight, "weights stay tied"


# --- log-probabilities ---


@pytest.mark.parametrize("case", ["padded", "chat", "one token", "of one length"])
@pytest.mark.parametrize("family", toys.FAMILIES)
def test_log_probs_of_samples_are_those_of_a_plain_forward_pass(family: str, case: str) -> None:
    policy = make_policy(family, chat=case == "chat")
    tokens = 1 if case == "one token" else 12
    samples = sample(policy, ["ab", "cd"] if case == "of one length" else PROMPTS, max_new_tokens=tokens)
    assert bool(samples.prompt_mask.all()) == (case == "of one length")
    assert len(set(samples.mask.sum(1).tolist())) > 2 or tokens == 1, "responses are meant to end at different times"
    toys.check_log_probs(policy, samples)


@pytest.mark.parametrize(
    ("family", "layer", "rates"),
    [
        ("gpt2", "transformer.h.0.mlp", {"resid_pdrop": 0.5, "attn_pdrop": 0.5, "embd_pdrop": 0.5}),
        # Its layers drop out by themselves, without a module for it.
        ("opt", "model.decoder.layers.0.fc1", {"dropout": 0.5, "attention_dropout": 0.5}),
    ],
)
def test_gradient_checkpointing_recomputes_the_layers_and_leaves_dropout_off(
    family: str, layer: str, rates: dict[str, Any]
) -> None:
    policy = make_policy(family, checkpointing=True, **rates)
    samples = sample(policy)
    calls: list[int] = []
    policy.model.get_submodule(layer).register_forward_pre_hook(lambda *_: calls.append(1))
    log_probs, _ = policy.log_probs(samples)
    assert len(calls) == 1
    log_probs.sum().backward()
    assert len(calls) == 2
    torch.testing.assert_close(log_probs.detach(), samples.log_probs, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("family", "checkpointing"), [("llama", False), ("gpt2", True)])
def test_gradients_on_several_threads_are_deterministic(family: str, checkpointing: bool) -> None:
    policy = make_policy(family, checkpointing=checkpointing)
    samples = sample(policy, PROMPTS * 4, rollouts=12, max_new_tokens=40)

    def gradients() -> tuple[Tensor, ...]:
        log_probs, _ = policy.log_probs(samples)
        weights = torch.linspace(-1, 1, log_probs.numel()).view(log_probs.shape)
        return torch.autograd.grad((log_probs * weights).sum(), list(policy.model.parameters()))

    torch.set_num_threads(2)
    try:
        found = gradients()
        torch.use_deterministic_algorithms(True)
        in_fixed_order = gradients()
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(1)
    assert all(map(torch.equal, found, in_fixed_order))


def test_entropy_is_that_of_each_distribution() -> None:
    policy = make_policy("llama")
    samples = sample(policy, ["ab"], rollouts=1)
    _, entropy = policy.log_probs(samples, entropy=True)
    with torch.no_grad():
        logits = policy.model(torch.cat([samples.prompt_ids, samples.ids], dim=1)).logits[0]
    logits = logits[samples.prompt_ids.shape[1] - 1 : -1] / samples.temperature
    torch.testing.assert_close(entropy, torch.distributions.Categorical(logits=logits).entropy(), rtol=1e-4, atol=1e-4)


def test_gradient_checkpointing_of_a_model_without_such_layers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "GradientCheckpointingLayer", torch.nn.Conv3d)
    with pytest.raises(
        ValueError, match="LlamaForCausalLM does not support gradient checkpointing: leave gradient_checkpointing out"
    ):
        make_policy("llama", checkpointing=True)


# --- sampling ---


def test_a_seed_gives_the_same_samples_again_and_another_gives_others() -> None:
    policy = make_policy("qwen3")
    first, again, other = sample(policy), sample(policy), sample(policy, seed=(3, 2))
    assert torch.equal(first.ids, again.ids)
    assert torch.equal(first.log_probs, again.log_probs)
    assert first.texts == again.texts
    assert first.texts != other.texts


def test_a_place_has_its_own_part_of_one_stream_and_no_other_is_drawn() -> None:
    policy = make_policy("llama")
    stream = np.random.Generator(np.random.Philox(np.random.SeedSequence([3, 1]))).random((8, 5, 3), dtype=np.float32)
    for places in ([7, 2], [0, 5]):
        samples = sample_at(policy, PROMPTS[:2], places, max_new_tokens=3, temperature=1.0)
        for row, number in enumerate(stream[places, :, 0].reshape(-1)):
            prompt = samples.prompt_ids[row // 5][samples.prompt_mask[row // 5]]
            shares = torch.softmax(policy.model(prompt[None]).logits[0, -1].detach(), dim=-1).cumsum(0)
            first = int(samples.ids[row, 0])
            assert (float(shares[first - 1]) if first else 0) - 1e-5 <= number <= float(shares[first]) + 1e-5
    # All numbers up to this place would take 60 TB.
    assert sample_at(policy, ["a"], [10**12], max_new_tokens=3).mask.any()


@pytest.mark.parametrize("num_answers", [1, 3])
def test_rows_stop_exactly_at_the_last_closing_tag_the_end_token_or_the_limit(num_answers: int) -> None:
    tokenizer = toys.bpe_tokenizer()
    close = "</answer>" if num_answers == 1 else "</answer_3>"
    other = "</answer_1>" if num_answers == 1 else "</answer_2>"
    assert len(tokenizer.tokenize(close)) > 4, "the tag is meant to span several tokens"
    limit = 40
    # prompt: (what the model would go on saying, what should be kept of it, truncated)
    said = {
        "p": (f"ab{close}cdef", f"ab{close}", False),
        "qq": (f"<<{other}>>x{close}{close}", f"<<{other}>>x{close}", False),
        "r": ("no tag at all<eos>more", "no tag at all", False),
        "ssss": ("z" * 60, "z" * limit, True),
        "t": (f"ü>{close[:-1]}.>{close[:-1]}>tail", f"ü>{close[:-1]}.>{close}", False),
    }
    model = toys.tiny_model("qwen3", tokenizer, scale=1.0)
    toys.teach(model, tokenizer, [(prompt, text) for prompt, (text, _, _) in said.items()], steps=150)
    policy = LMPolicy(model, tokenizer)
    samples = policy.sample(
        list(said), rollouts=2, num_answers=num_answers, max_new_tokens=limit, temperature=0.05, seed=(0,)
    )
    for row, text in enumerate(samples.texts):
        _, kept, truncated = list(said.values())[row // 2]
        assert text == kept
        assert bool(samples.truncated[row]) is truncated
    assert samples.ids.shape[1] == limit
    ended = samples.ids[4][samples.mask[4]]
    assert ended[-1] == tokenizer.eos_token_id, "the end token is part of what was sampled"


def test_a_chat_template_is_used_with_thinking_off_and_adds_no_special_tokens_of_its_own() -> None:
    policy = make_policy("llama", chat=True)
    ids, mask = policy.encode_prompts(["hello", "a longer prompt"])
    texts = [policy.tokenizer.decode(row[kept]) for row, kept in zip(ids, mask, strict=True)]
    assert texts == [f"[user] {text}\n[assistant] (no thinking) " for text in ("hello", "a longer prompt")]
    assert not mask[0, 0]
    assert mask[:, -1].all()


def test_responses_of_a_model_with_more_logits_than_tokens_are_decoded() -> None:
    tokenizer = toys.bpe_tokenizer()
    policy = LMPolicy(toys.tiny_model("llama", tokenizer, vocab_size=len(tokenizer) + 300), tokenizer)
    samples = sample(policy)
    assert (samples.ids >= len(tokenizer)).any()
    assert len(samples.texts) == len(PROMPTS) * ROLLOUTS


def test_a_tokenizer_without_a_pad_token_is_saved_without_one(tmp_path: Path) -> None:
    tokenizer = toys.bpe_tokenizer(pad=None)
    policy = LMPolicy(toys.tiny_model("llama", tokenizer), tokenizer)
    toys.check_log_probs(policy, sample(policy))
    policy.save(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).pad_token is None


def test_a_pad_token_beyond_the_embedding_does_no_harm() -> None:
    tokenizer = toys.bpe_tokenizer()
    model = toys.tiny_model("llama", tokenizer)
    tokenizer.add_special_tokens({"pad_token": "<added pad>"})
    assert tokenizer.pad_token_id == model.config.vocab_size
    policy = LMPolicy(model, tokenizer)
    toys.check_log_probs(policy, sample(policy))


def test_prompts_that_are_too_long_for_the_model_or_empty_are_refused() -> None:
    policy = make_policy("gpt2", n_positions=32)
    sample(policy, ["x" * 20], max_new_tokens=13)
    with pytest.raises(ValueError, match=r"20 tokens and max_new_tokens=14 do not fit into the 32 positions"):
        sample(policy, ["x" * 20], max_new_tokens=14)
    with pytest.raises(ValueError, match="a prompt has no tokens"):
        policy.encode_prompts(["fine", ""])


# --- samples as data ---


def test_a_subset_holds_the_rows_of_its_prompts() -> None:
    samples = sample(make_policy("llama"))
    subset = samples.subset(torch.tensor([2, 0]))
    rows = [*range(2 * ROLLOUTS, 3 * ROLLOUTS), *range(ROLLOUTS)]
    assert subset.texts == [samples.texts[row] for row in rows]
    assert subset.rollouts_per_prompt == ROLLOUTS
    for mine, theirs in enumerate(rows):
        assert torch.equal(subset.ids[mine][subset.mask[mine]], samples.ids[theirs][samples.mask[theirs]])
    assert bool(subset.mask[:, -1].any()), "it is cut to its longest response"


def test_concatenated_parts_are_the_samples_of_one_batch() -> None:
    policy = make_policy("gpt2")
    whole = sample(policy)
    parts = [sample_at(policy, [prompt], [place]) for place, prompt in enumerate(PROMPTS)]
    joined = concatenate_samples(parts)
    assert torch.equal(joined.prompt_mask, whole.prompt_mask)
    assert torch.equal(joined.mask, whole.mask)
    assert torch.equal(joined.ids[joined.mask], whole.ids[whole.mask])
    assert joined.texts == whole.texts
    assert torch.equal(joined.truncated, whole.truncated)
    torch.testing.assert_close(policy.log_probs(joined)[0], policy.log_probs(whole)[0], rtol=0, atol=1e-5)


# --- loading and saving ---


def test_a_saved_policy_comes_back_with_the_same_weights_in_silence(
    bpe_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = LMPolicy.from_pretrained(bpe_model, device="cpu")
    policy.save(tmp_path / "saved")
    again = LMPolicy.from_pretrained(tmp_path / "saved", device="cpu")
    assert capfd.readouterr() == ("", "")
    for name, parameter in policy.model.state_dict().items():
        assert torch.equal(parameter, again.model.state_dict()[name])
    assert sample(policy).texts == sample(again).texts


@pytest.mark.parametrize(("pad", "eos"), [(None, "<eos>"), ("<pad>", None), (None, None)])
def test_a_tokenizer_needs_a_pad_or_an_end_token(pad: str | None, eos: str | None) -> None:
    tokenizer = toys.bpe_tokenizer(pad=pad, eos=eos)
    model = toys.tiny_model("llama", tokenizer)
    if pad or eos:
        assert len(sample(LMPolicy(model, tokenizer)).texts) == len(PROMPTS) * ROLLOUTS
    else:
        with pytest.raises(ValueError, match="neither a pad nor an end-of-sequence token: set tokenizer"):
            LMPolicy(model, tokenizer)


def test_a_name_on_the_hub_fails_at_once_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(self: object, name: str, timeout: float) -> None:
        asked.append(name)
        raise ConnectionError("no network")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    with pytest.raises(ValueError, match=r"'nope': .* needs no download \(tiny-.* with network access \(no network\)"):
        LMPolicy.from_pretrained("nope", device="cpu")
    assert asked == ["nope"]


def test_a_model_that_is_missing_or_damaged_is_named(bpe_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot load the model '.*nowhere': give a folder"):
        LMPolicy.from_pretrained(tmp_path / "nowhere", device="cpu")
    for file in bpe_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes()[: 1000 if file.suffix == ".safetensors" else None])
    with pytest.raises(ValueError, match="cannot load the model"):
        LMPolicy.from_pretrained(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("device", "error"),
    [(name, f"unknown device '{name}': give auto, cpu") for name in ("abacus", "meta", "cpu:x")] + [("cuda:99", "99")],
)
def test_a_device_or_format_that_is_not_there_is_refused(device: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        ModelChoice.of("tiny-maze", device=device)
    with pytest.raises(ValueError, match="unknown dtype 'float8': choose one of auto, float32, bfloat16"):
        ModelChoice.of("tiny-maze", device="cpu", dtype="float8")
    formats = [choose_dtype("auto", torch.device(place)) for place in ("cpu", "cuda")]
    assert formats == [torch.float32, torch.bfloat16]


def test_a_small_model_computes_on_one_thread_unless_the_user_chose_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(small: int) -> int:
        monkeypatch.setattr(loading, "SMALL", small)
        make_policy("llama")
        return torch.get_num_threads()

    monkeypatch.setattr(loading, "_threads", 2)
    monkeypatch.setattr(loading, "USUAL_THREADS", 2)
    torch.set_num_threads(2)
    try:
        assert threads(10**9) == 2, "OMP_NUM_THREADS is set for the tests"
        monkeypatch.delenv("OMP_NUM_THREADS")
        assert [threads(10**9), threads(0), threads(10**9)] == [1, 2, 1]
        torch.set_num_threads(3)
        assert [threads(10**9), threads(0)] == [3, 3]
    finally:
        torch.set_num_threads(1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_log_probs_of_samples_are_those_of_a_plain_forward_pass(bpe_model: Path) -> None:
    policy = LMPolicy.from_pretrained(bpe_model, device="cuda", dtype="float32")
    toys.check_log_probs(policy, sample(policy), 1e-3)


# --- LoRA ---


def with_adapters(folder: Path, seed: int = 0) -> LMPolicy:
    pytest.importorskip("peft")
    return LMPolicy.from_pretrained(folder, device="cpu", lora_rank=4, seed=seed)


def train_a_little(policy: LMPolicy, scale: float = 0.05) -> None:
    """Move whatever is trainable."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)


def test_fresh_adapters_are_keyed_by_the_seed_and_leave_the_global_generator_alone(bpe_model: Path) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first, again, other = (with_adapters(bpe_model, seed).model.state_dict() for seed in (5, 5, 6))
    assert torch.equal(before, torch.random.get_rng_state())
    names = [name for name in first if "lora_A" in name]
    assert all(torch.equal(first[name], again[name]) for name in names)
    assert not any(torch.equal(first[name], other[name]) for name in names)


def test_saved_adapters_go_on_training_over_their_base(bpe_model: Path, tmp_path: Path) -> None:
    policy = with_adapters(bpe_model)
    train_a_little(policy)
    policy.save(tmp_path)
    assert not list(tmp_path.glob("model*.safetensors")), "the base is not saved again"
    again = LMPolicy.from_pretrained(bpe_model, device="cpu", lora_rank=4, checkpoint=tmp_path)
    first, second = dict(policy.model.named_parameters()), dict(again.model.named_parameters())
    assert first.keys() == second.keys()
    for name, parameter in first.items():
        assert torch.equal(parameter, second[name])
        assert parameter.requires_grad == second[name].requires_grad
    samples = sample(policy)
    base = LMPolicy.from_pretrained(bpe_model, device="cpu")
    with again.model.disable_adapter():
        reference = again.log_probs(samples)[0]
    torch.testing.assert_close(reference, base.log_probs(samples)[0])
    assert not torch.allclose(reference, policy.log_probs(samples)[0], atol=1e-2)


def test_folders_of_adapters_load_as_an_ordinary_model_with_all_of_them_merged(bpe_model: Path, tmp_path: Path) -> None:
    base, found = bpe_model, []
    for seed in range(2):
        policy = with_adapters(base, seed)
        train_a_little(policy)
        policy.save(folder := tmp_path / str(seed))
        assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
        merged, base = LMPolicy.from_pretrained(folder, device="cpu"), folder
        assert all(parameter.requires_grad for parameter in merged.model.parameters())
        samples = sample(policy)
        found.append(merged.log_probs(samples)[0])
        torch.testing.assert_close(found[-1], policy.log_probs(samples)[0], rtol=0, atol=1e-4)
    first = LMPolicy.from_pretrained(tmp_path / "0", device="cpu")
    assert not torch.allclose(found[-1], first.log_probs(samples)[0], atol=1e-2)


def test_young_adapters_keep_their_update_in_half_precision(bpe_model: Path, tmp_path: Path) -> None:
    for number, folder in enumerate((bpe_model, tmp_path / "0")):
        policy = with_adapters(folder, number)
        train_a_little(policy, 0.002)
        policy.save(tmp_path / str(number))
    young = LMPolicy.from_pretrained(bpe_model, device="cpu", dtype="bfloat16", lora_rank=4, checkpoint=tmp_path / "0")
    samples = sample(young)
    loaded = LMPolicy.from_pretrained(tmp_path / "0", device="cpu", dtype="bfloat16")
    assert torch.equal(loaded.log_probs(samples)[0], young.log_probs(samples)[0])
    assert sample(loaded).texts == samples.texts

    def update(policy: LMPolicy) -> Tensor:
        """What adapters add to the first layer's output."""
        states = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)).to(policy.dtype)
        base = LMPolicy.from_pretrained(bpe_model, device="cpu", dtype=str(policy.dtype).removeprefix("torch."))
        after, before = (one.causal_lm.model.layers[0].self_attn.q_proj for one in (policy, base))
        return (after(states) - before(states)).detach().float()

    both = LMPolicy.from_pretrained(tmp_path / "1", device="cpu", dtype="bfloat16")
    expected = update(LMPolicy.from_pretrained(tmp_path / "1", device="cpu"))
    assert float((update(both) - expected).norm() / expected.norm()) < 0.3
    with pytest.raises(
        ValueError, match=r"cannot be added to .*0', which is adapters itself, .*: give --dtype float32"
    ):
        LMPolicy.from_pretrained(tmp_path / "0", device="cpu", dtype="bfloat16", lora_rank=4)
