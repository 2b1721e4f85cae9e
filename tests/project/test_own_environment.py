"""The environment that `docs/own_environment.md` walks through: checked, shown, played, trained."""

from __future__ import annotations

import io
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from paths import ROOT
from processes import run_python

from vpo_agent.command import main
from vpo_agent.policy.word_models import small_policy
from vpo_envs import check_vector_env
from vpo_envs.imports import import_modules

EXAMPLE = ROOT / "examples" / "own_environment.py"
MENU = "own/Menu-v0"


@pytest.fixture(scope="module")
def env() -> Any:
    import_modules([str(EXAMPLE)])
    return gym.make(MENU, num_answers=3)


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 70, "as the page says"


def test_it_runs_as_a_script_with_the_options_of_training(env: Any, tmp_path: Path) -> None:
    small_policy(env.unwrapped, instances=64).save(tmp_path / "base")
    options = ["--model", "base", "--steps", "1", "--eval-prompts", "4", "--name", "menu"]
    done = run_python([str(EXAMPLE), *options], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warm start" not in done.stdout, "another model needs none"
    assert "| best@1 ↑ |" in done.stdout
    assert "runs/menu/ holds config.json" in done.stdout
    evaluated = ["eval", "runs/menu", "--prompts", "2", "--k", "3", "--out", "eval", "--import", str(EXAMPLE)]
    again = run_python(["-m", "vpo_agent.command", *evaluated], cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_a_bad_option_of_the_script_ends_it_before_anything_is_learned(tmp_path: Path) -> None:
    done = run_python([str(EXAMPLE), "--stepz", "1"], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: unknown argument '--stepz': did you mean --steps?\n"
    assert not (tmp_path / "runs").exists()


def test_it_passes_every_check(env: Any) -> None:
    assert check_vector_env(env).skipped == ()


def test_its_front_is_that_of_all_pairs(env: Any) -> None:
    task = env.unwrapped.task(5)
    sums = {p: [sum(task.dishes[i - 1][k] for i in p) for k in range(3)] for p in combinations(range(1, 7), 2)}
    vectors = {(t / 18, h / 18, 1 - c / 18) for t, h, c in sums.values()}
    best = {v for v in vectors if not any(w != v and all(x >= y for x, y in zip(w, v, strict=True)) for w in vectors)}
    assert {tuple(point.vector) for point in env.unwrapped.front(task)} == best


def test_vpo_envs_and_play_show_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["envs", MENU, "--import", str(EXAMPLE)]) == 0
    scores = re.findall(r"taste (\S+), health (\S+), thrift (\S+)", capsys.readouterr().out)
    good, poor = [sum(map(float, vector)) for vector in scores]
    assert poor < 0.8 * good
    monkeypatch.setattr("sys.stdin", io.StringIO("2 5\n"))
    assert main(["play", MENU, "--import", str(EXAMPLE), "--seed", "1"]) == 0
    assert "taste" in capsys.readouterr().out
