"""Folders of adapters as PEFT leaves them: without a tokenizer, with added tokens, with a base that lies elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from transformers import AutoModelForCausalLM, AutoTokenizer

from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import load_model
from vpo_envs.common.wording import first_line

pytest.importorskip("peft", reason="needs the lora extra, which the dev extra installs")

from peft import LoraConfig, get_peft_model

ADDED = ["<new_1>", "<new_2>"]


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose head is its own, or tied to the embedding."""
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = toys.bpe_tokenizer(chat=True)
    toys.tiny_model(request.param, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_adapters(
    base: Path, folder: Path, *, resized: bool = False, tokenizer: bool = False, **settings: Any
) -> tuple[Any, Any]:
    """Save adapters with plain PEFT, after adding tokens if ``resized``; return the model and the tokenizer."""
    model, own = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    torch.manual_seed(0)
    if resized:
        own.add_tokens(ADDED)
        model.resize_token_embeddings(len(own))
    settings = {"r": 2, "target_modules": "all-linear", "init_lora_weights": False, **settings}
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings))
    adapted.save_pretrained(folder)
    if tokenizer:
        own.save_pretrained(folder)
    return adapted.eval(), own


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adapters_without_a_tokenizer_have_that_of_their_base(base: Path, tmp_path: Path, dtype: str) -> None:
    save_adapters(base, tmp_path)
    assert not list(tmp_path.glob("tokenizer*"))
    policy = LMPolicy.from_pretrained(tmp_path, device="cpu", dtype=dtype)
    expected = LMPolicy.from_pretrained(base, device="cpu").encode_prompts(["the maze"])[0]
    assert torch.equal(policy.encode_prompts(["the maze"])[0], expected)
    above = tmp_path / "above"
    config = {**json.loads((tmp_path / "adapter_config.json").read_text()), "base_model_name_or_path": str(tmp_path)}
    shutil.copytree(tmp_path, above, ignore=lambda *_: ["above"])
    (above / "adapter_config.json").write_text(json.dumps(config))
    assert torch.equal(LMPolicy.from_pretrained(above, device="cpu").encode_prompts(["the maze"])[0], expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"modules_to_save": ["embed_tokens"]},
        {"trainable_token_indices": [274, 275]},
    ],
    ids=["plain", "adapted embedding", "trained embedding", "trained tokens"],
)
def test_added_tokens_come_with_their_embeddings(
    base: Path, tmp_path: Path, settings: dict[str, Any], dtype: str
) -> None:
    model, tokenizer = save_adapters(base, tmp_path, resized=True, tokenizer=True, **settings)
    policy = LMPolicy.from_pretrained(tmp_path, device="cpu", dtype=dtype)
    assert policy.vocabulary == len(tokenizer)
    ids = torch.tensor([tokenizer(f"the maze {ADDED[0]}", add_special_tokens=False)["input_ids"]])
    assert int(ids[0, -1]) == tokenizer.convert_tokens_to_ids(ADDED[0])
    # With an adapted embedding PEFT saves no head, so what that has for added tokens is lost.
    known = 274 if "embed_tokens" in settings.get("target_modules", ()) else len(tokenizer)
    with torch.no_grad():
        found, expected = (one(input_ids=ids).logits[..., :known] for one in (policy.model, model))
    tolerance = 1e-4 if dtype == "float32" else 0.1
    assert float((found.float() - expected).norm() / expected.norm()) < tolerance
    assert policy.encode_prompts([ADDED[0]])[0].max() == ids[0, -1]
    policy.save(tmp_path / "again")
    with torch.no_grad():
        again = LMPolicy.from_pretrained(tmp_path / "again", device="cpu", dtype=dtype).model(input_ids=ids).logits
    torch.testing.assert_close(again[..., :known], found)


def test_added_tokens_that_no_tokenizer_has_are_refused_with_both_sizes(base: Path, tmp_path: Path) -> None:
    save_adapters(base, tmp_path, resized=True)
    with pytest.raises(ValueError, match=r"embeddings of 276 tokens, and their base has 274: copy the tokenizer"):
        LMPolicy.from_pretrained(tmp_path, device="cpu")


def test_a_base_that_does_not_fit_is_said_with_both_sizes(base: Path, tmp_path: Path) -> None:
    save_adapters(base, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    other = tmp_path / "other"
    tokenizer = toys.bpe_tokenizer()
    toys.tiny_model("llama", tokenizer, hidden_size=16).save_pretrained(other)
    tokenizer.save_pretrained(other)
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(other)}))
    with pytest.raises(ValueError, match=r"size mismatch for .* torch.Size\(\[2, 32\]\).* torch.Size\(\[2, 16\]\)"):
        load_model(tmp_path, torch.float32)


def test_a_base_named_by_a_relative_path_is_stored_as_a_whole_one(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base.parent)
    LMPolicy.from_pretrained(base.name, device="cpu", lora_rank=2).save(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    monkeypatch.chdir(tmp_path)
    assert LMPolicy.from_pretrained(tmp_path, device="cpu").vocabulary == 274


def test_an_error_is_told_with_its_reason() -> None:
    assert first_line(ValueError("Errors in loading:\n\n\tsize mismatch\n\tmore")) == "Errors in loading: size mismatch"
    assert first_line(ValueError("out of memory\nin a file")) == "out of memory"
    assert first_line(KeyError()) == "KeyError"
