"""Inside TRL, where the environment replies: what is sampled, scored, counted and trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed")

from vpo_agent.adapters.trl_job import grpo_settings, make_adapter, train_with_trl
from vpo_agent.config import Job, TrainConfig, make_config
from vpo_agent.presets import TASKS
from vpo_agent.runs.rows import read_rows
from vpo_envs.text import calls_of


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    small = {"steps": 2, "prompts_per_step": 2, "rollouts_per_prompt": 4, "device": "cpu", "learning_rate": 1e-3}
    return make_config({**TASKS["archive"]["compact"], **small, "runs_dir": tmp_path, "name": "run", "warmup_steps": 0})


def test_replies_are_scored_by_and_never_trained(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    from trl import GRPOTrainer

    seen: list[dict[str, Any]] = []
    generate = GRPOTrainer._generate_and_score_completions

    def watch(self: Any, inputs: Any) -> Any:
        output = generate(self, inputs)
        seen.append({**output, "written": [row["response"] for row in inputs]})
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", watch)
    trainer = train_with_trl(Job(config, resume=False, overwrite=False))
    env = make_adapter(config, trainer.processing_class).env
    calls = 0
    for batch in seen:
        written = batch["written"]
        calls += sum(len(calls_of(response.text)) for response in written)
        masks = batch["tool_mask"] * batch["completion_mask"]
        assert [int(mask.sum()) for mask in masks] == [response.tokens for response in written]
        assert int(batch["completion_mask"].sum()) > int(masks.sum())
    assert calls > 0
    assert env.turn_tags == ("open",)
    rows = read_rows(config.runs_dir / "run" / "metrics.jsonl")
    assert len([row for row in rows if "saved" in row]) == 2


def test_vllm_inside_trl_does_not_reply(config: TrainConfig) -> None:
    with pytest.raises(ValueError, match="inside TRL, vpo/Archive-v0, which replies to calls, is sampled with backend"):
        make_adapter(config.model_copy(update={"backend": "vllm"}), None)
    assert grpo_settings(config, processes=1, on_gpu=False)["max_completion_length"] == 30
