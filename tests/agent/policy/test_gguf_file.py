"""Models in GGUF files: the weights, tokenizer and chat template that a policy gets, and what is refused."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest
import torch
import toys
from gguf_files import write_gguf
from memory import run_within

from vpo_agent.learning.fits import Shape, read_shape
from vpo_agent.policy.gguf_header import check_header
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


def place_of(data: bytes, name: str) -> int:
    """Return where the value of a name in the header, or the description of a tensor, begins."""
    text = struct.pack("<Q", len(name)) + name.encode()
    return data.index(text) + len(text)


def put(data: bytes, place: int, form: str, *numbers: int) -> bytes:
    """Return a file with other numbers at a place."""
    packed = struct.pack(f"<{form}", *numbers)
    return data[:place] + packed + data[place + len(packed) :]


def more_tensors(data: bytes, count: int) -> bytes:
    """Return a file in which that many tensors have the weights of the embedding."""
    start = place_of(data, "token_embd.weight") - 8 - len("token_embd.weight")
    described = data[place_of(data, "token_embd.weight") :][: 4 + 2 * 8 + 4 + 8]
    (tensors,) = struct.unpack_from("<Q", data, 8)
    added = b"".join(struct.pack("<Q", 8) + f"{number:08}".encode() + described for number in range(count))
    return put(data, 8, "Q", tensors + count)[:start] + added + data[start:]


def nested(data: bytes, levels: int) -> bytes:
    """Return a file in which the name of the model is an array of arrays."""
    place = place_of(data, "general.name")
    (length,) = struct.unpack_from("<Q", data, place + 4)
    arrays = struct.pack("<I", 9) + levels * struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 1) + b"x"
    return data[:place] + arrays + data[place + 12 + length :]


def test_a_header_states_no_more_than_the_file_has_room_for(llama: Path, tmp_path: Path) -> None:
    data = llama.read_bytes()

    def changed(name: str, behind: int, form: str, *numbers: int) -> bytes:
        return put(data, place_of(data, name) + behind, form, *numbers)

    files = {
        "texts": ("1,000,000,000,000 values in an", changed("tokenizer.ggml.tokens", 8, "Q", 10**12)),
        # Its reader takes bytes behind the end of a file for empty ones.
        "bytes": ("1,000,000,000,000 values in an", changed("tokenizer.ggml.token_type", 4, "IQ", 0, 10**12)),
        "text": ("bytes of a text", changed("general.name", 4, "Q", 10**15)),
        "values": ("1,000,000,000,000 values", put(data, 16, "Q", 10**12)),
        "tensors": ("1,000,000,000,000 tensors", put(data, 8, "Q", 10**12)),
        "dimensions": ("2,147,483,648 dimensions", changed("token_embd.weight", 0, "I", 2**31)),
        "weights": (" weights", changed("token_embd.weight", 4, "QQ", 10**6, 10**6)),
        "overlapping": (" weights", more_tensors(data, 60_000)),
        "layers": ("llama.block_count=1,000,000,000", changed("llama.block_count", 4, "I", 10**9)),
        "nested": ("nests arrays too deeply", nested(data, 5000)),
    }
    for name, (_, crafted) in files.items():
        (tmp_path / f"{name}.gguf").write_bytes(crafted)
    code = f"""for name in {list(files)!r}:
        for read in (read_shape, load_policy):
            try:
                read({str(tmp_path)!r} + "/" + name + ".gguf")
            except ValueError as error:
                print(error)"""
    imports = "from vpo_agent.learning.fits import read_shape; from vpo_agent.runs.targets import load_policy"
    printed, grown = run_within(512, f"{imports}; load_policy({str(llama)!r})", code)
    lines = printed.splitlines()
    assert len(lines) == 2 * len(files)
    for (stated, _), shape, policy in zip(files.values(), lines[::2], lines[1::2], strict=True):
        assert stated in policy
        assert policy.endswith(": fetch it again")
        assert policy in shape
    assert grown < 64


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_header_is_read_in_either_order_of_bytes(tmp_path: Path, order: str) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + struct.pack(f"{order}IQQ", 3, 1, 0) + bytes(24))
    check_header(file)
    file.write_bytes(b"GGUF" + struct.pack(f"{order}IQQ", 3, 2, 0) + bytes(24))
    with pytest.raises(ValueError, match=r"^it states 2 tensors and has room for 1$"):
        check_header(file)


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
