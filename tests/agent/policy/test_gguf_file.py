"""Models in GGUF files: the weights, tokenizer and chat template that a policy gets, and what is refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
import toys
from gguf_files import write_gguf

from vpo_agent.learning.fits import Shape, read_shape
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.runs.targets import load_policy, target_name

pytest.importorskip("gguf", reason="needs the gguf extra, which the dev extra installs")
pytest.importorskip("accelerate", reason="needs the gguf extra, which the dev extra installs")

PROMPTS = ["the maze <answer_1>añ</answer_1>", "an answer"]
TOKENIZER = toys.bpe_tokenizer(chat=True)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(file, toys.tiny_model("llama", TOKENIZER), TOKENIZER)
    return file


# The reader takes Qwen3's usual head width for granted.
@pytest.mark.parametrize(("family", "head_dim"), [("llama", 8), ("qwen3", 128)])
@pytest.mark.parametrize("quantized", [False, True], ids=["float32", "Q8_0"])
def test_a_policy_from_a_gguf_file_is_that_of_the_same_weights(
    tmp_path: Path, family: str, head_dim: int, quantized: bool
) -> None:
    ordinary = toys.tiny_model(family, TOKENIZER, head_dim=head_dim)
    read = write_gguf(tmp_path / "tiny.gguf", ordinary, TOKENIZER, quantized=quantized)
    weights = ordinary.state_dict()
    rounded = [name for name, values in read.items() if (weights[name].numpy() != values).any()]
    assert bool(rounded) == quantized
    ordinary.load_state_dict({name: torch.from_numpy(weight) for name, weight in read.items()}, strict=False)
    expected = LMPolicy(ordinary, TOKENIZER)
    policy = load_policy(str(tmp_path / "tiny.gguf"), device="cpu")
    assert target_name(str(tmp_path / "tiny.gguf")) == "tiny"
    (ids, mask), (expected_ids, expected_mask) = policy.encode_prompts(PROMPTS), expected.encode_prompts(PROMPTS)
    assert torch.equal(ids, expected_ids)
    assert torch.equal(mask, expected_mask)
    assert policy.ending_ids == [TOKENIZER.eos_token_id]
    with torch.no_grad():
        logits = policy.model(ids, attention_mask=mask).logits
        torch.testing.assert_close(logits, ordinary(ids, attention_mask=mask).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_policy_from_a_gguf_file_is_saved_as_an_ordinary_folder(llama: Path, tmp_path: Path, dtype: str) -> None:
    policy = LMPolicy.from_pretrained(llama, device="cpu", dtype=dtype)
    assert {(one.dtype, one.requires_grad) for one in policy.model.parameters()} == {(getattr(torch, dtype), True)}
    policy.save(tmp_path)
    again = LMPolicy.from_pretrained(tmp_path, device="cpu", dtype=dtype)
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name])
    assert torch.equal(policy.encode_prompts(PROMPTS)[0], again.encode_prompts(PROMPTS)[0])


def test_the_shape_that_is_planned_with_is_that_of_the_model_in_the_file(llama: Path, tmp_path: Path) -> None:
    shape = read_shape(llama)
    assert shape == Shape.of(LMPolicy.from_pretrained(llama, device="cpu").causal_lm, str(llama))
    assert shape.parameters > shape.vocabulary * shape.hidden
    (tmp_path / "text.gguf").write_text("nonsense")
    with pytest.raises(ValueError, match=r"text\.gguf' is not a whole GGUF file"):
        read_shape(tmp_path / "text.gguf")


def test_adapters_name_the_gguf_file_that_they_belong_to(llama: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs the lora extra, which the dev extra installs")
    policy = LMPolicy.from_pretrained(llama, device="cpu", lora_rank=2)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.05)
    policy.save(tmp_path)
    merged = LMPolicy.from_pretrained(tmp_path, device="cpu")
    ids = policy.encode_prompts(PROMPTS[:1])[0]
    with torch.no_grad():
        torch.testing.assert_close(merged.model(ids).logits, policy.model(ids).logits, rtol=0, atol=1e-4)


# --- what is refused ---


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"there is no file 'nowhere\.gguf'"):
        load_policy("nowhere.gguf", device="cpu")


@pytest.mark.parametrize("share", [0.1, 0.99])
def test_a_truncated_file_is_refused(llama: Path, tmp_path: Path, share: float) -> None:
    whole = llama.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"cut\.gguf' is not a whole GGUF file, .*: fetch it again$"):
        LMPolicy.from_pretrained(tmp_path / "cut.gguf", device="cpu")


@pytest.mark.parametrize(
    ("lacks", "error"),
    [
        ("architecture", r"transformers 5\S* cannot read '.*x\.gguf', .* architecture 'abacus': give"),
        ("tokenizer", r"x\.gguf' holds no tokenizer: give"),
        # Else it would be filled with random numbers.
        ("weight", r"x\.gguf', .*\(model\.layers\.1\.mlp\.up_proj\.weight is missing\)"),
    ],
)
def test_what_a_file_lacks_is_named(tmp_path: Path, lacks: str, error: str) -> None:
    model = toys.tiny_model("llama", TOKENIZER)
    if lacks == "weight":
        del model.model.layers[1].mlp.up_proj
    known = {"architecture": "abacus"} if lacks == "architecture" else {}
    write_gguf(tmp_path / "x.gguf", model, None if lacks == "tokenizer" else TOKENIZER, **known)
    with pytest.raises(ValueError, match=error):
        LMPolicy.from_pretrained(tmp_path / "x.gguf", device="cpu")


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_missing_package_is_named_with_the_extra(llama: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("vpo_envs.common.libraries.find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(ValueError, match=rf"needs the package {package}: pip install -e '.*\[gguf\]'"):
        LMPolicy.from_pretrained(llama, device="cpu")
