"""TRL with vLLM itself on a CPU, an engine in each process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import ROOT
from processes import run_python

pytest.importorskip("vllm", reason="needs vLLM, which make vllm installs")

from vpo_agent.config import make_config
from vpo_agent.presets import TASKS


def test_each_of_two_processes_samples_from_the_weights_of_now(tmp_path: Path) -> None:
    settings = {"steps": 3, "prompts_per_step": 2, "rollouts_per_prompt": 4, "warmup_steps": 0, "learning_rate": 0.01}
    given = {**TASKS["maze"]["compact"], **settings, "backend": "vllm", "importance_cap": 2.0, "device": "cpu"}
    (tmp_path / "config.json").write_text(make_config(given).model_dump_json())
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = [str(ROOT / "examples" / "train_trl.py"), "--config", "config.json", "--name", "run"]
    done = run_python([*launcher, *script], cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("sampled by the backend vllm\n") == 1
    rows = [json.loads(line) for line in (tmp_path / "runs/run/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        # The file of the model is in float16, in which vLLM reads it here; the weights move by 0.01 a step.
        assert row["sampling/sampling_logp_difference/mean"] < 0.005
        assert row["truncated"] < 1
