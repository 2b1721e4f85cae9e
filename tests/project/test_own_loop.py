"""The loop of one's own in ``examples/own_loop.py``, and estimators without the rest of the package."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from paths import ROOT
from processes import PATIENCE

from vpo_agent import LMPolicy, Trainer, make_config
from vpo_agent.presets import TASKS

EXAMPLE = ROOT / "examples" / "own_loop.py"
PAGE = ROOT / "docs" / "own_loop.md"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("own_loop", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def weights_of(policy: LMPolicy) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def test_its_steps_are_those_of_vpo_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, prompts = 4, 4
    loop = example()
    monkeypatch.setattr(loop, "PROMPTS", prompts)
    policy = LMPolicy.from_pretrained("tiny-maze", device="cpu")
    before = weights_of(policy).clone()
    loop.train(policy, gym.make("vpo/Maze-v0", preset="compact", num_answers=3, split="train").unwrapped, steps)
    settings = {**TASKS["maze"]["compact"], "steps": steps, "eval_every": 0, "device": "cpu", "runs_dir": tmp_path}
    settings["prompts_per_step"] = prompts
    trainer = Trainer(make_config({**settings, "name": "run"}))
    trainer.train()
    change = weights_of(trainer.policy) - before
    assert float(change.norm()) > 0
    assert float((weights_of(policy) - weights_of(trainer.policy)).norm()) < 0.01 * float(change.norm())
    scores = re.findall(r"step \d+: set score ([.\d]+)", capsys.readouterr().out)
    assert len(scores) == steps


def test_it_uses_public_names_alone_and_is_short() -> None:
    code = EXAMPLE.read_text(encoding="utf-8")
    assert not re.search(r"from vpo_\w+\.\w|\._", code)
    assert "TrainConfig" not in code
    body = code[code.index("def train(") : code.index("def evaluate(")]
    lines = [line for line in body.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 60


def test_estimators_need_no_transformers() -> None:
    """The ten lines of the page run where what models and environments need cannot be imported."""
    (snippet,) = re.findall(r"```python\n(.*?advantages.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippet.strip().splitlines()) <= 12
    blocked = ("transformers", "tokenizers", "mo_gymnasium", "pydantic", "accelerate", "trl")
    script = f"import sys\nfor name in {blocked}: sys.modules[name] = None\n{snippet}\nprint(tuple(pulls.shape))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(16, 8)"


def test_a_step_stays_small_enough_to_be_read_in_an_evening() -> None:
    """Functions of the package that one training step of the tiny maze enters."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "step_functions.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    found = re.search(r"enters (\d+) functions in (\d+) files", done.stdout)
    assert found is not None
    functions, files = map(int, found.groups())
    assert 40 < functions <= 90
    assert 10 < files <= 20
