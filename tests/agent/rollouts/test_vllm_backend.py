"""What a CPU cannot show of the vLLM backend, against a strict stand-in that sleeps as on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_vllm
import pytest
import torch
import toys

from vpo_agent.config import make_config
from vpo_agent.errors import BackendFailed
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.model_choice import ModelChoice
from vpo_agent.policy.samples import Sampler, Samples
from vpo_agent.rollouts.backends import open_sampler

PROMPTS = ["a", "the maze and the answer", "mm"]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[fake_vllm.LLM]]:
    """The stand-in in the place of vLLM."""
    module: Any = ModuleType("vllm")
    module.__spec__ = ModuleSpec("vllm", None)
    module.LLM, module.SamplingParams = fake_vllm.LLM, fake_vllm.SamplingParams
    module.LoRARequest = fake_vllm.LoRARequest
    for name in ("vllm", "vllm.lora", "vllm.lora.request", "vllm.platforms"):
        monkeypatch.setitem(sys.modules, name, module)
    module.current_platform = fake_vllm.current_platform
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    fake_vllm.LLM.made.clear()
    yield fake_vllm.LLM
    fake_vllm.LLM.made.clear()


def make_policy(folder: Path, **settings: Any) -> LMPolicy:
    return LMPolicy.from_pretrained(folder, device="cpu", **settings)


def open_vllm(policy: LMPolicy, folder: Path) -> Sampler:
    config = make_config({"backend": "vllm", "model": str(folder), "gpu_memory_utilization": 0.3})
    return open_sampler(config, policy, ModelChoice.of(folder, device="cpu"))


def sample(policy: LMPolicy, folder: Path, prompts: list[str] = PROMPTS, **changes: Any) -> Samples:
    settings: dict[str, Any] = {"rollouts": 3, "num_answers": 1, "max_new_tokens": 8, "temperature": 0.7}
    return open_vllm(policy, folder).sample(prompts, **{**settings, "seed": (4,), **changes})


def assert_log_probs_are_those_of(policy: LMPolicy, samples: Samples) -> None:
    for row, expected in enumerate(toys.plain_log_probs(policy, samples)):
        torch.testing.assert_close(samples.log_probs[row, : len(expected)], expected, rtol=0, atol=1e-4)


def test_the_engine_is_asked_for_what_our_own_loop_does(vllm: Any, bpe_model: Path) -> None:
    policy = make_policy(bpe_model)
    samples = sample(policy, bpe_model)
    (engine,) = vllm.made
    assert engine.settings == {
        "dtype": "float32",
        "gpu_memory_utilization": 0.3,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "max_model_len": None,
        "enable_sleep_mode": True,
        "enforce_eager": False,
        "enable_chunked_prefill": True,
    }
    assert engine.awake == set()
    # Before these it checks that weights arrive.
    requests = engine.requests[-9:]
    for row, (prompt, params) in enumerate(requests):
        assert prompt == samples.prompt_ids[row // 3][samples.prompt_mask[row // 3]].tolist()
        assert (params.stop, params.include_stop_str_in_output) == (["</answer>"], True)
        assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.7, 1.0, 0, 8)
        assert params.stop_token_ids == policy.ending_ids
        assert params.logprobs == 0
    assert len({params.seed for _, params in requests}) == 9


@pytest.mark.parametrize(("thinking", "stop"), [(False, ["</answer>"]), (True, [])])
def test_no_stop_string_ends_thoughts(vllm: Any, tmp_path: Path, thinking: bool, stop: list[str]) -> None:
    tokenizer = toys.chat_tokenizer(toys.MAY_THINK, *toys.CHATML_MARKS)
    LMPolicy(toys.tiny_model("qwen3", tokenizer), tokenizer).save(tmp_path)
    policy = LMPolicy.from_pretrained(tmp_path, device="cpu", thinking=thinking)
    sample(policy, tmp_path)
    (engine,) = vllm.made
    assert engine.requests[-1][1].stop == stop
    assert not engine.requests[-1][1].skip_special_tokens
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") in engine.requests[-1][1].stop_token_ids


def test_each_call_samples_from_the_weights_of_now(vllm: Any, bpe_model: Path) -> None:
    policy = make_policy(bpe_model)
    sampler = open_vllm(policy, bpe_model)
    settings: dict[str, Any] = {"rollouts": 2, "num_answers": 1, "max_new_tokens": 6}
    sampler.sample(PROMPTS, **settings)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.3)
    assert_log_probs_are_those_of(policy, sampler.sample(PROMPTS, **settings))


@pytest.fixture
def adapted(bpe_model: Path) -> LMPolicy:
    """A policy whose adapters change what it says."""
    pytest.importorskip("peft")
    policy = make_policy(bpe_model, lora_rank=9)
    move_adapters(policy, 0)
    return policy


@torch.no_grad()
def move_adapters(policy: LMPolicy, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.normal_(std=0.3, generator=rng)


def test_of_a_lora_policy_each_call_hands_over_the_adapters_alone(
    vllm: Any, adapted: LMPolicy, bpe_model: Path
) -> None:
    from peft import get_peft_model_state_dict

    sampler = open_vllm(adapted, bpe_model)
    (engine,) = vllm.made
    assert engine.settings["max_lora_rank"] == 16
    for update in (1, 2, 3):
        move_adapters(adapted, update)
        before = {name: tensor.clone() for name, tensor in adapted.model.state_dict().items()}
        samples = sampler.sample(PROMPTS, rollouts=2, num_answers=1, max_new_tokens=6, temperature=0.7)
        assert_log_probs_are_those_of(adapted, samples)
        own, handed = get_peft_model_state_dict(adapted.model), get_peft_model_state_dict(engine.loaded)
        assert own.keys() == handed.keys()
        assert all(torch.equal(own[name], handed[name]) for name in own)
        assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.model.state_dict().items())
        assert [one.lora_int_id for one in engine.adapters] == list(range(1, update + 3))
        assert not Path(engine.adapters[-1].lora_path).exists()
    with adapted.model.disable_adapter():
        base = torch.cat(toys.plain_log_probs(adapted, samples))
    assert float((base - samples.log_probs[samples.mask]).abs().max()) > 0.1
    assert engine.reloads == 0


@pytest.mark.parametrize(("rank", "most"), [(1, 8), (8, 8), (16, 16), (33, 64)])
def test_the_rank_is_the_next_that_vllm_takes(vllm: Any, bpe_model: Path, rank: int, most: int) -> None:
    pytest.importorskip("peft")
    open_vllm(make_policy(bpe_model, lora_rank=rank), bpe_model)
    assert vllm.made[-1].settings["max_lora_rank"] == most


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"modules_to_save": ["lm_head"]}, "lm_head.modules_to_save.default.weight"),
        ({"use_dora": True}, "lora_magnitude_vector"),
    ],
)
def test_adapters_that_vllm_cannot_apply_are_named(
    vllm: Any, bpe_model: Path, settings: dict[str, Any], named: str
) -> None:
    peft = pytest.importorskip("peft")
    plain = make_policy(bpe_model)
    config = peft.LoraConfig(**{"r": 4, "target_modules": ["q_proj"], **settings})
    policy = LMPolicy(peft.get_peft_model(plain.model, config), plain.tokenizer)
    with pytest.raises(ValueError, match=rf"adapters of linear layers, not '.*{named}.*use --backend native$"):
        open_vllm(policy, bpe_model)
    assert not vllm.made


def test_what_vllm_refuses_is_said_and_leaves_no_folder(
    vllm: Any, adapted: LMPolicy, bpe_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []

    def refuse(self: Any, *_: Any, lora_request: Any, **__: Any) -> None:
        folders.append(Path(lora_request.lora_path))
        raise ValueError("expected target modules in {'q_proj'}\nand more")

    monkeypatch.setattr(vllm, "generate", refuse)
    with pytest.raises(BackendFailed, match=r"^vLLM refuses .*\(expected target modules .*\): use --backend native$"):
        open_vllm(adapted, bpe_model)
    assert vllm.made[-1].awake == set()
    assert not folders[0].exists()


def test_an_engine_that_does_not_start_is_named(vllm: Any, bpe_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no device here\nand much more")

    monkeypatch.setattr(vllm, "__init__", broken)
    with pytest.raises(ValueError, match=r"^vLLM does not start \(no device here\): use --backend native$"):
        sample(make_policy(bpe_model), bpe_model)


def test_an_engine_without_log_probabilities_is_named(
    vllm: Any, bpe_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = vllm.generate

    def without(self: Any, *args: Any, **settings: Any) -> Any:
        outputs = generate(self, *args, **settings)
        outputs[4].outputs[0].logprobs = None
        return outputs

    monkeypatch.setattr(vllm, "generate", without)
    with pytest.raises(BackendFailed, match=r"no tokens or log-probabilities"):
        sample(make_policy(bpe_model), bpe_model)
    assert vllm.made[-1].awake == set()
