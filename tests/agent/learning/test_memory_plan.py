"""The planner chooses the largest batches that fit, and names the nearest settings that do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import vpo_agent.trainer as trainer_module
from vpo_agent.config import Job, TrainConfig, make_config
from vpo_agent.job import train_and_report
from vpo_agent.learning.plan import USABLE, Plan, TooSmall, plan_run
from vpo_agent.policy.memory import Shape
from vpo_agent.trainer import Trainer

QWEN_4B = Shape("Qwen3-4B", 4_022_468_096, 36, 2560, 9728, 32, 8, 128, 151_936, tied=True, head_norms=True)
SMALL = Shape("small", 30_000_000, 8, 512, 1536, 8, 4, 64, 8192, tied=True)
GB = 10**9


def config(**changes: Any) -> TrainConfig:
    settings = {"prompts_per_step": 32, "rollouts_per_prompt": 8, "max_new_tokens": 512, "kl_coef": 0.0}
    return make_config({**settings, **changes})


def plan(memory: float, shape: Shape = SMALL, **changes: Any) -> Plan:
    return plan_run(config(**changes), shape, prompt=200, memory=int(memory * GB))


def test_the_cache_of_the_papers_batch_takes_what_arithmetic_says() -> None:
    whole = plan(1000, QWEN_4B, prompts_per_step=128, max_new_tokens=1024)
    assert whole.sample_batch == 1024
    # 144 KiB a token; storage grows by quarters, so there is up to a quarter more than the tokens.
    tokens = 1024 * (200 + 1024)
    assert 144 * 1024 * tokens <= whole.cache <= 1.3 * 144 * 1024 * tokens


def test_full_training_of_a_bfloat16_weight_takes_18_bytes() -> None:
    whole = plan(1000, QWEN_4B)
    assert whole.weights + whole.optimizer + whole.gradients == 18 * QWEN_4B.parameters
    with_reference = plan(1000, QWEN_4B, kl_coef=0.1)
    assert with_reference.weights == 4 * QWEN_4B.parameters


@pytest.mark.parametrize("memory", [1.8, 3.0, 6.0, 20.0])
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


def test_more_memory_never_makes_a_batch_smaller() -> None:
    plans = [plan(memory) for memory in (1.8, 4, 8, 16, 32)]
    for name in ("sample_batch", "microbatch_prompts"):
        sizes = [getattr(one, name) for one in plans]
        assert sizes == sorted(sizes)
        assert sizes[0] < sizes[-1]


@pytest.mark.parametrize(
    ("memory", "changes", "what"),
    [
        (80, {}, "updating on 1 prompt"),
        (30, {}, "sampling 10 responses"),
        (30, {"lora_rank": 8, "sample_batch": 4096}, "sampling 256 responses"),
        (30, {"lora_rank": 8, "microbatch_prompts": 32, "gradient_checkpointing": True}, "updating on 32 prompts"),
        (14, {"max_new_tokens": 8192, "rollouts_per_prompt": 32}, "sampling 32 responses"),
        (14, {"lora_rank": 8, "sample_batch": 1, "eval_answers": 900}, "300 responses .* of --eval-answers 900"),
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


def test_a_large_evaluation_is_the_first_to_shrink_and_no_further_than_it_must() -> None:
    settings = {"lora_rank": 8, "gradient_checkpointing": True}
    with pytest.raises(TooSmall, match=r"; it fits with --eval-answers \d+$") as error:
        plan(30, QWEN_4B, **settings, eval_answers=3000)
    answers = int(str(error.value).split()[-1])
    plan(30, QWEN_4B, **settings, eval_answers=answers)
    with pytest.raises(TooSmall):
        plan(30, QWEN_4B, **settings, eval_answers=2 * answers)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CPU stands for a GPU with little memory."""
    monkeypatch.setattr(trainer_module, "device_memory", lambda device: 45 * 10**6)
    settings = {
        "env_kwargs": {"preset": "embedded-easy", "prompt_style": "compact"},
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
    assert trainer._update.microbatches.sizes([1] * 32)[0] == trainer.plan.microbatch_prompts < 32
    with pytest.raises(TooSmall, match="it fits with --microbatch-prompts"):
        Trainer(make_config({**settings, "name": "b", "microbatch_prompts": 16}))
    assert not (tmp_path / "b" / "config.json").exists()
    train_and_report(Job(make_config({**settings, "name": "c"}), resume=False, overwrite=False))
    assert "prompts at a time" in capsys.readouterr().out


def test_a_run_on_a_cpu_is_not_planned(tmp_path: Path) -> None:
    assert trainer_module.device_memory(torch.device("cpu")) is None
