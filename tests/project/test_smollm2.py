"""The whole path with a pretrained model: `make test-slow` fetches SmolLM2-135M and runs this, for minutes."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from processes import OFFLINE, PATIENCE
from transformers import AutoTokenizer

from vpo_agent.bench.sample import optimal_responses
from vpo_agent.bench.tasks import TRACKS, BenchTask
from vpo_agent.measure.pool import Pool
from vpo_envs.text import format_answers

MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
"""Where `make smollm2` puts the model."""
ENV, PRESET = "vpo/MuSiQue-v0", '{"preset": "compact"}'
ANSWERS, PROMPTS, STEPS = 3, 2, 2
MOST_MEMORY = 6 * 2**30
"""Bytes that no command of the path may need, on machines that train a model of this size."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("CI" in os.environ, reason="takes minutes: run make test-slow on a machine of your own"),
    pytest.mark.skipif(not MODEL.is_file(), reason=f"there is no {MODEL.relative_to(ROOT)}: make test-slow fetches it"),
]


class Vpo(subprocess.Popen[str]):
    """A process that runs ``vpo ARGUMENTS`` in a folder."""

    def __init__(self, *arguments: object, cwd: Path) -> None:
        command = [sys.executable, "-m", "vpo_agent.command", *map(str, arguments)]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, **OFFLINE, "PYTHONPATH": paths, "MPLBACKEND": "Agg"}
        super().__init__(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it wrote, after a check of its peak memory."""
        assert self.stdout is not None
        with self.stdout:
            wrote = self.stdout.read()
        _, status, usage = os.wait4(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        assert usage.ru_maxrss * 2**10 < MOST_MEMORY
        return self.returncode, wrote


def vpo(*arguments: object, cwd: Path) -> str:
    """Run a command to its end and return what it wrote."""
    status, wrote = Vpo(*arguments, cwd=cwd).end()
    assert status == 0, wrote
    return wrote


def rows(file: Path) -> list[dict[str, float]]:
    """Return the rows of a log after a check that every loss and gradient in them is a number."""
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(math.isfinite(row[name]) for row in found for name in ("loss", "grad_norm") if name in row)
    return found


def check_pool(path: Path) -> None:
    """Check that a pool holds the answers asked for, with rewards between 0 and 1."""
    pool = Pool.load(path)
    assert pool.rewards.shape[:3] == (PROMPTS, 2, ANSWERS)
    assert np.all((pool.rewards >= 0) & (pool.rewards <= 1))


def test_a_pretrained_model_is_taught_trained_evaluated_served_searched_and_published(tmp_path: Path) -> None:
    recipe = f"""
        --model {MODEL} --lora-rank 16 --dtype bfloat16 --steps 16 --batch 8 --responses 4 --eval-prompts {PROMPTS}
        --eval-answers 6 --max-new-tokens 60"""
    on = ["--env", ENV, "--env-kwargs", PRESET]
    vpo("warm-start", *on, *recipe.split(), "--out", "base", "--device", "cpu", cwd=tmp_path)
    (taught,) = rows(tmp_path / "base" / "metrics.jsonl")
    assert taught["step"] == 16
    assert taught["readable (m=3)"] > 0
    assert (tmp_path / "base" / "model.safetensors").stat().st_size > 2 * 134e6

    settings = f"""
        --model base --name run --method vpo --lora-rank 16 --dtype bfloat16 --steps {STEPS} --prompts-per-step 2
        --rollouts-per-prompt 4 --max-new-tokens 60 --kl-coef 0 --eval-prompts {PROMPTS} --eval-answers 6
        --device cpu"""
    vpo("train", *on, *settings.split(), cwd=tmp_path)
    run = tmp_path / "runs" / "run"
    steps = [row for row in rows(run / "metrics.jsonl") if row["kind"] == "train"]
    assert [row["step"] for row in steps] == [1, STEPS]
    assert max(row["grad_norm"] for row in steps) > 0
    assert all(row["skipped_steps"] == row["invalid_rollouts"] == 0 for row in steps)
    assert "utility@3" in (run / "results.md").read_text()
    for label in ("before", "after"):
        check_pool(run / f"pool_{label}.npz")

    vpo("eval", run, "--k", 6, "--eval-prompts", PROMPTS, "--out", "evaluation", "--device", "cpu", cwd=tmp_path)
    check_pool(tmp_path / "evaluation" / "pool.npz")

    with Vpo("serve", run, "--port", 0, "--device", "cpu", "--dtype", "bfloat16", cwd=tmp_path) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            url = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
            assert url, line + server.end()[1]
            asked = {"model": "run", "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 8}
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{url[0]}/chat/completions", json.dumps(asked).encode(), headers)
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                reply = json.load(response)
            assert 0 < reply["usage"]["completion_tokens"] <= 8
            server.terminate()
            assert server.end()[0] == 130
        finally:
            server.kill()

    effort = "--method best-of-n --eval-prompts 1 --iterations 6 --max-new-tokens 60 --device cpu --out found"
    vpo("search", run, *effort.split(), cwd=tmp_path)
    assert any((tmp_path / "found").iterdir())

    vpo("push", run, "--repo", "someone/smollm2-musique", "--dry-run", "pushed", cwd=tmp_path)
    card = (tmp_path / "pushed" / "README.md").read_text()
    assert "someone/smollm2-musique" in card
    assert str(tmp_path) not in card
    # Nobody else has the base under the adapters, so they are merged into it.
    assert (tmp_path / "pushed" / "model.safetensors").stat().st_size > 2 * 134e6


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL.parent, gguf_file=MODEL.name)


@pytest.mark.parametrize("task", TRACKS["compact"], ids=lambda task: task.name)
def test_the_limits_of_the_bench_are_half_as_much_again_as_three_answers_take(task: BenchTask, tokenizer: Any) -> None:
    env, rng = task.environment(0), np.random.default_rng(0)
    shown = [env.demonstrations(env.task(index), rng, ANSWERS)[:ANSWERS] for index in range(task.size)]
    texts = [*optimal_responses(env, task.size), *(format_answers(answers, ANSWERS) for answers in shown)]
    longest = max(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))
    assert task.max_new_tokens == 16 * math.ceil(1.5 * longest / 16)
