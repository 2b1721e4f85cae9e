"""vLLM itself on a CPU: it samples from the weights of now, and a response ends and reads as our own loop has it."""

from __future__ import annotations

import gc
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

pytest.importorskip("vllm", reason="needs vLLM, which make vllm installs")

from vpo_agent.config import make_config
from vpo_agent.errors import BackendFailed
from vpo_agent.policy.chat import ChatFormat
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.samples import Samples
from vpo_agent.policy.turns import reply_tokens
from vpo_agent.presets import TASKS
from vpo_agent.rollouts import vllm as backend
from vpo_agent.rollouts.backends import open_sampler
from vpo_agent.rollouts.vllm import VLLMSampler
from vpo_agent.runs.rows import read_rows
from vpo_agent.trainer import Trainer
from vpo_envs.contract.turns import Turns
from vpo_envs.text import Call, as_messages, calls_of, split_answers, split_turns

# GiB; otherwise vLLM takes half of the memory.
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"

BPE = toys.bpe_tokenizer()
LONG = "the maze and the answer to " * 30
"""More than a block of the engine's cache."""
PROMPTS = ["a", LONG, "an answer?"]
WIDTHS = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
"""Heads of 32, the narrowest that vLLM computes on a CPU."""
GPT2 = {"n_embd": 64, "n_head": 2, "n_layer": 2, "n_positions": 512}


def make_model(config: str, tokenizer: Any = BPE, **changes: Any) -> Any:
    """A model with random weights, wide enough that its distributions are not flat."""
    torch.manual_seed(0)
    common = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    sizes = GPT2 if config == "GPT2Config" else {**WIDTHS, "num_hidden_layers": 2, "max_position_embeddings": 512}
    settings = getattr(transformers, config)(**{**common, **sizes, **changes})
    model = AutoModelForCausalLM.from_config(settings)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.mul_(4.0)
            elif name.endswith("bias"):
                weight.normal_(std=0.2)
    return model.eval()


def save(folder: Path, model: Any, tokenizer: Any = BPE) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def open_engine() -> Iterator[Callable[..., tuple[LMPolicy, VLLMSampler]]]:
    """Return a function that loads a policy from a folder and opens vLLM for it."""

    def open_one(folder: Path, dtype: str = "float32", lora_rank: int = 0) -> tuple[LMPolicy, Any]:
        choice = ModelChoice.of(folder, device="cpu", dtype=dtype)
        policy = LMPolicy.from_pretrained(choice, lora_rank=lora_rank)
        settings = {"backend": "vllm", "model": str(folder), "dtype": dtype, "lora_rank": lora_rank, "device": "cpu"}
        return policy, open_sampler(make_config(settings), policy, choice, 512)

    yield open_one
    gc.collect()


def mean_gap(policy: LMPolicy, samples: Samples) -> float:
    """The gap of the sampler to forward passes over whole texts, of which nothing is cached, packed or padded."""
    with torch.no_grad():
        expected = torch.cat(toys.plain_log_probs(policy, samples))
    return float((samples.log_probs[samples.mask] - expected).abs().mean())


@torch.no_grad()
def move_weights(policy: LMPolicy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, weight in policy.model.named_parameters():
        if weight.requires_grad:
            deviation = 0.2 if "lora_B" in name else 0.5 * float(weight.std())
            weight.add_(deviation * torch.randn(weight.shape, generator=generator))


def rows_of(samples: Samples) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(samples.ids, samples.mask, strict=True)]


HEAD = {"head_dim": 32}
FAMILIES = {
    "qwen3, tied": ("Qwen3Config", {**HEAD, "tie_word_embeddings": True}),
    "qwen3, untied": ("Qwen3Config", {**HEAD, "tie_word_embeddings": False}),
    "qwen2, tied, biases": ("Qwen2Config", {"tie_word_embeddings": True}),
    "llama, tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama, untied, rows without a token": ("LlamaConfig", {"vocab_size": 333}),
    "mistral, untied": ("MistralConfig", {"tie_word_embeddings": False}),
    "gemma2, tied": ("Gemma2Config", {**HEAD, "query_pre_attn_scalar": 32}),
    "gemma3, tied, windows": ("Gemma3TextConfig", {**HEAD, "query_pre_attn_scalar": 32, "sliding_window": 64}),
    "phi3, untied, merged weights": ("Phi3Config", {}),
    "gpt2, tied, biases, learned positions": ("GPT2Config", {}),
}
MOST = {"float32": 3e-4, "bfloat16": 0.03}


@pytest.mark.parametrize(
    ("family", "dtype", "lora_rank"),
    [
        *((family, "float32", 0) for family in FAMILIES),
        *((family, "bfloat16", 0) for family in ("qwen3, tied", "qwen3, untied", "gemma3, tied, windows")),
        *((family, "float32", 3) for family in ("qwen3, tied", "llama, untied, rows without a token")),
        *((family, "bfloat16", 3) for family in ("qwen3, tied", "qwen2, tied, biases", "mistral, untied")),
    ],
)
def test_each_call_samples_from_the_weights_of_now(
    open_engine: Any, tmp_path: Path, family: str, dtype: str, lora_rank: int
) -> None:
    config, changes = FAMILIES[family]
    policy, sampler = open_engine(save(tmp_path, make_model(config, **changes)), dtype, lora_rank)
    settings: dict[str, Any] = {"rollouts": 4, "num_answers": 1, "max_new_tokens": 16, "temperature": 0.8}
    for update in range(3):
        samples = sampler.sample(PROMPTS, seed=(update,), **settings)
        assert mean_gap(policy, samples) < MOST[dtype]
        move_weights(policy, update)
        assert mean_gap(policy, samples) > 2 * MOST[dtype], "the weights are meant to move far"


def test_a_tied_head_may_stand_in_the_checkpoint_too(open_engine: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save(tmp_path, make_model("LlamaConfig", tie_word_embeddings=True))
    weights = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in weights
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    policy, sampler = open_engine(tmp_path)
    move_weights(policy, 0)
    assert mean_gap(policy, sampler.sample(PROMPTS, rollouts=2, num_answers=1, max_new_tokens=8)) < MOST["float32"]


# --- what is refused ---


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_that_keeps_its_weights_is_noticed_before_the_run(
    open_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(backend, "process_shared_weights", lambda model: None)
    with pytest.raises(BackendFailed, match=r"it does not take all weights that it is given; use --backend native$"):
        open_engine(save(tmp_path, make_model("LlamaConfig", tie_word_embeddings=True)), dtype)


def test_adapters_that_are_not_read_anew_are_noticed_before_the_run(
    open_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "adapter_numbers", lambda: itertools.repeat(1))
    with pytest.raises(BackendFailed, match=r"it does not take all weights that it is given"):
        open_engine(save(tmp_path, make_model("LlamaConfig")), "bfloat16", 3)


def test_a_model_that_vllm_computes_otherwise_is_noticed_before_the_run(open_engine: Any, tmp_path: Path) -> None:
    # On a CPU its experts come out of the hand-over in another layout.
    model = make_model("MixtralConfig", **HEAD, num_local_experts=4)
    with pytest.raises(
        BackendFailed, match=r"^at the start the sampler's log-probabilities differ .* more than 0\.01:"
    ):
        open_engine(save(tmp_path, model))


def test_a_model_that_vllm_does_not_have_is_refused_in_a_sentence(open_engine: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^vLLM does not start \(it runs models with Olmo2Model by .*\): use --backend native$"
    ):
        open_engine(save(tmp_path, make_model("Olmo2Config")))


# --- where a response ends ---


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer as those of Llama 2 and Gemma: words begin with a mark, and unknown characters become bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<pad>", "<eos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    alphabet = sorted(set("▁the maze and answer to<>/_123".replace(" ", "")))
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["▁the▁maze", "▁an▁answer", "</answer>"] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


SAID = [
    ("a", "<answer>the maze</answer> and more"),
    ("mm", "<answer_1>a</answer_1><answer_2>b</answer_2> more"),
    ("an", "an answer <eos>"),
    ("m", "<eos><answer>a</answer>"),
    ("mmm", "a b c d e " * 5),
]
"""The tag and something behind it, another tag, an end of sequence, one before the tag, and no end."""


@pytest.mark.parametrize("make_tokenizer", [toys.bpe_tokenizer, byte_fallback_tokenizer, toys.letters_tokenizer])
def test_a_response_ends_and_reads_as_in_our_own_loop(open_engine: Any, tmp_path: Path, make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer()
    model = make_model("LlamaConfig", tokenizer)
    toys.teach(model, tokenizer, SAID, steps=60)
    policy, sampler = open_engine(save(tmp_path, model, tokenizer))
    outputs = []
    generate = sampler._llm.generate

    def recorded(*args: Any, **settings: Any) -> Any:
        outputs.extend(generate(*args, **settings))
        return outputs

    sampler._llm.generate = recorded
    settings: dict[str, Any] = {"rollouts": 12, "num_answers": 1, "max_new_tokens": 24, "seed": (3,)}
    prompts = [prompt for prompt, _ in SAID]
    samples = sampler.sample(prompts, **settings)
    assert 0 < int(samples.truncated.sum()) < 60
    stop = policy.closing_tag("</answer>")
    for row, output in enumerate(outputs):
        (said,) = output.outputs
        tokens = list(said.token_ids)
        assert rows_of(samples)[row] == tokens, "nothing that the engine wrote is cut"
        assert (said.finish_reason == "length") == bool(samples.truncated[row])
        ends = [tokens[place] in policy.ending_ids or stop(tokens[: place + 1]) for place in range(len(tokens))]
        assert ends[:-1] == [False] * (len(tokens) - 1)
        assert ends[-1] != bool(samples.truncated[row])
        # The engine's text has special tokens in it, and ends with the tag.
        assert tokenizer.decode(tokens).strip().startswith(said.text.strip())
        assert [samples.texts[row]] == policy.chat.read([tokens])
    native = policy.sample(prompts, **settings)
    for kind in (samples, native):
        assert any(text.rstrip().endswith("</answer>") for text in kind.texts)
        assert any(row[-1] == tokenizer.eos_token_id for row in rows_of(kind))


def test_every_token_that_ends_a_sequence_ends_a_response(open_engine: Any, tmp_path: Path) -> None:
    policy, sampler = open_engine(save(tmp_path, toys.ends_often(make_model("LlamaConfig"))))
    assert len(policy.ending_ids) > 20
    samples = sampler.sample(PROMPTS, rollouts=8, num_answers=1, max_new_tokens=24)
    assert len(set(samples.mask.sum(1).tolist())) > 3
    for row, cut in zip(rows_of(samples), samples.truncated.tolist(), strict=True):
        assert [token in policy.ending_ids for token in row] == [False] * (len(row) - 1) + [not cut]


# --- sampling ---


def test_a_second_engine_closes_the_first(open_engine: Any, tmp_path: Path) -> None:
    save(tmp_path, make_model("LlamaConfig"))
    settings: dict[str, Any] = {"rollouts": 1, "num_answers": 1, "max_new_tokens": 4}
    _, first = open_engine(tmp_path)
    _, second = open_engine(tmp_path)
    with pytest.raises(BackendFailed, match=r"^the engine of this sampler was closed when another one was opened$"):
        first.sample(PROMPTS, **settings)
    del first
    gc.collect()
    assert second.sample(PROMPTS, **settings).texts


def test_a_row_depends_on_the_seed_and_its_place_alone(open_engine: Any, tmp_path: Path) -> None:
    _, sampler = open_engine(save(tmp_path, make_model("LlamaConfig")))
    # More prompts than the engine reads at a time.
    prompts = [f"{number} {LONG[:110]}" for number in range(48)]
    settings: dict[str, Any] = {"rollouts": 2, "num_answers": 1, "max_new_tokens": 6}
    state, threads, set_threads = torch.get_rng_state(), torch.get_num_threads(), torch.set_num_threads
    whole = rows_of(sampler.sample(prompts, **settings))
    assert torch.equal(torch.get_rng_state(), state)
    assert (torch.get_num_threads(), torch.set_num_threads) == (threads, set_threads)
    assert whole == rows_of(sampler.sample(prompts, **settings))
    assert whole == rows_of(sampler.sample(prompts, sample_batch=24, **settings))
    assert whole != rows_of(sampler.sample(prompts, seed=(5,), **settings))


def run(tmp_path: Path, name: str, **changes: Any) -> tuple[Trainer, list[dict[str, Any]]]:
    settings = {"steps": 3, "prompts_per_step": 3, "rollouts_per_prompt": 4, "checkpoint_every": 1, "device": "cpu"}
    given = {**TASKS["maze"]["compact"], **settings, "backend": "vllm", "runs_dir": str(tmp_path), "name": name}
    resume = changes.pop("resume", False)
    trainer = Trainer(make_config({**given, **changes}), resume=resume)
    trainer.train()
    rows = [row for row in read_rows(trainer.folder.metrics) if row["kind"] == "train"]
    return trainer, rows


def respond(calls: Sequence[Call]) -> str | None:
    """Say what was asked, and how often; nothing where nothing was."""
    text = calls[-1].text.strip()
    return f"{text} {len(calls)}" if text else None


LOOKS = [("<look>maze</look>", "<answer>m</answer>"), ("<look>a</look>", "<look>the</look>")]
LOOKS += [("<look></look> <look>an</look>", "<answer>m</answer>")]
"""What is written before and after the first reply."""
CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize("lora_rank", [0, 3])
@pytest.mark.parametrize("chat", [False, True], ids=["plain", "chat"])
def test_the_environment_replies_between_turns(open_engine: Any, tmp_path: Path, chat: bool, lora_rank: int) -> None:
    tokenizer = toys.chat_tokenizer(CHAT, "<|user|>", "<|assistant|>", "<|end|>") if chat else BPE
    model = make_model("Qwen3Config", tokenizer, **HEAD)
    prompts, form = ["a maze", "an answer to the maze"], ChatFormat(tokenizer)
    heads = [form.apply(as_messages(prompt)) if chat else prompt for prompt in prompts]
    replies = [form.reply_text(str(respond([Call("look", asked)]))) for asked in ("maze", "a", "an")]
    written = [f"{look}{reply}{rest}" for (look, rest), reply in zip(LOOKS, replies, strict=True)]
    toys.teach(model, tokenizer, [(head, text) for head in heads for text in written], steps=120)
    policy, sampler = open_engine(save(tmp_path, model, tokenizer), lora_rank=lora_rank)
    settings: dict[str, Any] = {"rollouts": 8, "num_answers": 1, "max_new_tokens": 40, "temperature": 0.9}
    endless = Turns(("look",), 1000, lambda calls: "the maze and an answer " * 60)
    long = sampler.sample(prompts, turns=[endless] * 2, **{**settings, "max_new_tokens": 200})
    assert int((long.prompt_mask.sum(1).repeat_interleave(8) + long.mask.sum(1)).max()) > 256
    texts: list[str] = []
    for update in range(2):
        samples = sampler.sample(prompts, seed=(update,), turns=[Turns(("look",), 1, respond)] * 2, **settings)
        with torch.no_grad():
            plain = torch.cat(toys.plain_log_probs(policy, samples))
        trained = samples.trained[samples.mask]
        torch.testing.assert_close(samples.log_probs[samples.mask][trained], plain[trained], rtol=0, atol=1e-4)
        for row, text in enumerate(samples.texts):
            own = samples.trained[row][samples.mask[row]].tolist()
            holes = [
                [token for token, _ in part]
                for is_own, part in itertools.groupby(zip(rows_of(samples)[row], own, strict=True), itemgetter(1))
                if not is_own
            ]
            replies = [reply for _, reply in split_turns(text) if reply is not None]
            assert replies == ([respond(calls_of(text))] if calls_of(text) else []), "one call at most"
            assert holes == [reply_tokens(policy.chat, reply) for reply in replies]
        texts += samples.texts
        assert samples.tokens.max() <= 40
        move_weights(policy, update)
    assert any(calls_of(text) and split_answers(text, 1) != [None] for text in texts)
    assert any(split_turns(text)[-1][0] == "<look>the</look>" for text in texts), "a call too many"


ARCHIVE = {name: TASKS["archive"]["compact"][name] for name in ("env", "env_kwargs", "model", "max_new_tokens")}


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 4}, {"dtype": "bfloat16"}, ARCHIVE])
def test_a_run_trains_on_what_it_samples_and_a_resumed_one_samples_the_same(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    whole, rows = run(tmp_path, "whole", learning_rate=1e-3, **changes)
    for row in rows:
        assert row["grad_norm"] > 0
        assert 0 <= row["log_prob_gap"] < (0.01 if changes.get("dtype") else 1e-5)
    run(tmp_path, "parts", learning_rate=1e-3, steps=2, **changes)
    parts, resumed = run(tmp_path, "parts", learning_rate=1e-3, resume=True, **changes)
    assert json.dumps(resumed) == json.dumps(rows)
    pairs = zip(whole.policy.model.parameters(), parts.policy.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
