"""The planner chooses the largest batches that fit, and names the nearest settings that do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, Qwen3Config, Qwen3ForCausalLM

import vpo_agent.trainer as trainer_module
from vpo_agent.config import Job, TrainConfig, make_config
from vpo_agent.job import train_and_report
from vpo_agent.learning.fits import USABLE, Plan, Shape, TooSmall, plan_run, read_shape
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import add_adapters
from vpo_agent.policy.samples import Samples
from vpo_agent.policy.word_models import word_tokenizer
from vpo_agent.trainer import Trainer

QWEN_4B = Shape("Qwen3-4B", 4_022_468_096, 36, 2560, 9728, 4096, 1024, 151_936)
SMALL = Shape("small", 30_000_000, 8, 512, 1536, 512, 256, 8192)
GB = 10**9


def config(**changes: Any) -> TrainConfig:
    settings = {"prompts_per_step": 32, "rollouts_per_prompt": 8, "max_new_tokens": 512, "kl_coef": 0.0}
    return make_config({**settings, **changes})


def plan(memory: float, shape: Shape = SMALL, **changes: Any) -> Plan:
    return plan_run(config(**changes), shape, prompt=200, memory=int(memory * GB))


def test_the_cache_of_the_papers_batch_takes_what_arithmetic_says() -> None:
    whole = plan(1000, QWEN_4B, prompts_per_step=128, max_new_tokens=1024)
    assert whole.sample_batch == 1024
    # 144 KiB a token; storage grows by quarters and 128 tokens, so there is room for so many more.
    tokens = 200 + 1024
    least, most = (1024 * 144 * 1024 * columns for columns in (tokens, 1.3 * tokens + 128))
    assert least <= whole.cache <= most


def test_full_training_of_a_bfloat16_weight_takes_18_bytes() -> None:
    whole = plan(1000, QWEN_4B)
    assert whole.weights + whole.optimizer + whole.gradients == 18 * QWEN_4B.parameters
    with_reference = plan(1000, QWEN_4B, kl_coef=0.1)
    assert with_reference.weights == 4 * QWEN_4B.parameters


@pytest.mark.parametrize("memory", [2.0, 3.0, 6.0, 20.0])
def test_the_batches_are_the_largest_that_fit(memory: float) -> None:
    """Against trying every number, each as an explicit setting."""

    def fits(**setting: int) -> bool:
        try:
            plan(memory, **setting)
        except TooSmall:
            return False
        return True

    found = plan(memory)
    assert max(n for n in range(1, 33) if fits(sample_batch=8 * n)) * 8 == found.sample_batch
    assert max(n for n in range(1, 33) if fits(microbatch_prompts=n)) == found.microbatch_prompts
    assert max(found.sampling, found.update) <= USABLE * memory * GB


@pytest.mark.parametrize(
    ("memory", "changes", "what"),
    [
        (80, {}, "updating on 1 prompt"),
        (30, {}, "sampling 10 responses"),
        (30, {"lora_rank": 8, "sample_batch": 4096}, "sampling 256 responses"),
        (30, {"lora_rank": 8, "microbatch_prompts": 32, "gradient_checkpointing": True}, "updating on 32 prompts"),
        (14, {"max_new_tokens": 8192, "rollouts_per_prompt": 32}, "sampling 32 responses"),
        (14, {"lora_rank": 8, "sample_batch": 1, "eval_answers": 900}, "sampling 300 responses"),
    ],
)
def test_what_does_not_fit_is_refused_with_settings_that_do(memory: int, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(TooSmall, match=what) as error:
        plan(memory, QWEN_4B, **changes)
    reason, _, options = str(error.value).partition("; it fits with ")
    assert reason.startswith(f"Qwen3-4B does not fit into {memory} GB")
    named = {
        name.replace("-", "_"): int(value) if value else True
        for name, value in re.findall(r"--([\w-]+)(?: (\d+))?", options)
    }
    assert named
    plan(memory, QWEN_4B, **{**changes, **named})


def test_a_card_too_small_even_for_one_row_is_refused() -> None:
    with pytest.raises(TooSmall, match="none of the settings tried makes it fit: use a smaller model or a GPU"):
        plan(8, QWEN_4B)


def test_vllm_takes_its_share() -> None:
    assert plan(10, backend="vllm", gpu_memory_utilization=0.3).cache == 3 * GB


def test_a_table_shows_both_phases() -> None:
    heads, sampling, update, sizes = plan(80, QWEN_4B, lora_rank=16).table().splitlines()
    assert heads.split() == ["GB", "weights", "optimizer", "gradients", "cache", "activations", "free"]
    assert sampling.split()[0] == "sampling"
    assert update.split()[4] == "-"
    assert re.fullmatch(r"\d+ responses and \d+ prompts? at a time", sizes)
    # What a row shows adds up to the card.
    for line in (sampling, update):
        assert sum(float(cell) for cell in line.split()[1:] if cell != "-") == pytest.approx(80, abs=0.3)


def test_a_run_on_a_gpu_is_planned_before_it_starts(
    tmp_path: Path, no_figures: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CPU stands for a GPU with little memory."""
    monkeypatch.setattr(trainer_module, "device_memory", lambda device: 45 * 10**6)
    settings = {
        "env_kwargs": {"preset": "compact"},
        "steps": 1,
        "prompts_per_step": 32,
        "rollouts_per_prompt": 4,
        "max_new_tokens": 60,
        "kl_coef": 0.0,
        "eval_prompts": 2,
        "eval_answers": 4,
        "runs_dir": tmp_path,
        "device": "cpu",
    }
    trainer = Trainer(make_config({**settings, "name": "a"}))
    assert trainer.plan is not None
    assert trainer.sample_batch == trainer.plan.sample_batch < 128
    assert trainer._update.microbatches.max_prompts == trainer.plan.microbatch_prompts < 32
    with pytest.raises(TooSmall, match="it fits with --microbatch-prompts"):
        Trainer(make_config({**settings, "name": "b", "microbatch_prompts": 16}))
    assert not (tmp_path / "b" / "config.json").exists()
    train_and_report(Job(make_config({**settings, "name": "c"}), resume=False, overwrite=False))
    assert "prompts at a time" in capsys.readouterr().out


def test_a_run_on_a_cpu_is_not_planned(tmp_path: Path) -> None:
    assert trainer_module.device_memory(torch.device("cpu")) is None


# --- the shape, and the formulas, against real models ---

SIZES: dict[str, Any] = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256},
}


def make_model(**changes: Any) -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes}))


@pytest.mark.parametrize("tied", [True, False])
def test_a_shape_is_read_from_a_configuration_alone(tied: bool, tmp_path: Path) -> None:
    model = make_model(tie_word_embeddings=tied)
    (tmp_path / "config.json").write_text(model.config.to_json_string(), encoding="utf-8")
    expected = (model.num_parameters(), 3, 32, 96, 64, 32, 64, 256)
    for place in (tmp_path, tmp_path / "config.json"):
        assert read_shape(place) == Shape(str(place), *expected) == Shape.of(model, str(place))
    GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64).save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    assert (shape.intermediate, shape.queries, shape.keys) == (128, 32, 32)
    assert read_shape("tiny-maze").layers == 4


@pytest.mark.parametrize("content", [None, "{", json.dumps({"model_type": "unheard_of"}), "{}"])
def test_a_configuration_that_cannot_be_read_is_one_sentence(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot read the configuration of .*: give its config.json") as error:
        read_shape(tmp_path)
    assert "\n" not in str(error.value)


def test_a_name_on_the_hub_is_read_from_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=r"or fetch it with: hf download NAME config\.json"):
        read_shape("somebody/small")
    cached = tmp_path / "models--somebody--small"
    make_model().config.save_pretrained(cached / "snapshots" / "0123")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123")
    assert read_shape("somebody/small").layers == SIZES["num_hidden_layers"]


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba", **sizes}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot plan the memory of .*: 'mamba' has no attention$"):
        read_shape(tmp_path)


def test_adapters_are_counted_as_peft_makes_them() -> None:
    pytest.importorskip("peft")
    shape = Shape.of(make_model(), "")
    adapted = add_adapters(make_model(), 8)
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert plan(100, shape, lora_rank=8).gradients == 4 * trained
    assert Shape.of(adapted.get_base_model(), "") == shape


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_keeps_for_the_backward_pass_what_is_planned(rank: int, dtype: str) -> None:
    """Counted as the tensors that autograd saves beyond the weights, of three layers less those of one."""
    if rank:
        pytest.importorskip("peft")
    prompts, group, prompt, response = 2, 3, 20, 11

    def saved(layers: int) -> tuple[int, int]:
        # On a CPU heads that share keys have no copies of them.
        model = make_model(num_hidden_layers=layers, num_key_value_heads=4).to(getattr(torch, dtype))
        policy = LMPolicy(add_adapters(model, rank) if rank else model, word_tokenizer([f"w{i}" for i in range(61)]))
        encoded = policy.cached_model.pad([[1] * prompt] * prompts)
        answers = [[2] * response] * (prompts * group)
        zeros = [[0.0] * response] * len(answers)
        samples = Samples.of(encoded, answers, zeros, [False] * len(answers), 1.0, [""] * len(answers))
        weights = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
        kept: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            assert policy.log_probs(samples)[0].requires_grad
        sizes = {"prompts_per_step": prompts, "rollouts_per_prompt": group, "max_new_tokens": response, "kl_coef": 0.0}
        settings = make_config({**sizes, "lora_rank": rank, "dtype": dtype, "num_answers": 1})
        planned = plan_run(settings, Shape.of(model, ""), prompt=prompt, memory=GB)
        return sum(storage.nbytes() for storage in kept.values()), planned.activations

    (one, planned_one), (three, planned_three) = saved(1), saved(3)
    assert planned_three - planned_one == pytest.approx(three - one, rel=0.15)
