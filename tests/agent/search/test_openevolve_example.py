"""The example that drives the real OpenEvolve, with a policy behind an endpoint as its language model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from scripted_endpoint import completion, scripted
from served import served

import vpo_envs
from vpo_agent.runs.targets import load_policy
from vpo_envs.tasks.code.env import CodeEnv

pytest.importorskip("openevolve", reason="OpenEvolve is not installed; the dev extra has it")
sys.path.insert(0, str(ROOT / "examples"))
import evolve_openevolve


@contextmanager
def model_of(answer: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An endpoint whose chat answers are ``answer(request)``; gives its address and the requests it got."""
    models = {"object": "list", "data": [{"id": "toy", "object": "model", "created": 0, "owned_by": ""}]}
    with scripted(lambda body, number: completion(answer(body)), models) as server:
        yield server.url, server.requests


def evolve(address: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    example = ROOT / "examples" / "evolve_openevolve.py"
    command = [sys.executable, str(example), "--api-base", address, "--out", str(out), "--iterations", "4", *options]
    done = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("parent", ["UP, DOWN", "", "a\n```\nb", "def f(x):\n    return '```'\n"])
def test_the_parent_is_what_openevolves_prompt_sampler_wrote(parent: str) -> None:
    from openevolve.config import PromptConfig
    from openevolve.prompt.sampler import PromptSampler

    prompt = PromptSampler(PromptConfig()).build_prompt(
        current_program=parent,
        parent_program=parent,
        program_metrics={"combined_score": 0.5},
        top_programs=[{"code": "other", "metrics": {"combined_score": 0.6}}],
        language="python",
        diff_based_evolution=False,
        feature_dimensions=["combined_score"],
    )
    assert evolve_openevolve.parent_in(prompt["user"]) == parent


def test_a_prefix_leaves_something_to_sample() -> None:
    found = {evolve_openevolve.random_prefix("D D, D") for _ in range(200)}
    assert found == {"", "D", "D D", "D D,"}
    assert evolve_openevolve.random_prefix("") == ""


def test_programs_are_evolved_in_the_sandbox(tmp_path: Path) -> None:
    """A scripted model writes a stub first, and the problem's own solution when it is asked to do better."""
    env = CodeEnv(split="test")
    solution = env.task(0).solution

    def answer(request: dict[str, Any]) -> str:
        said = "".join(message["content"] for message in request["messages"])
        return f"```python\n{solution}\n```" if "# Current Program" in said else "<answer>pass</answer>"

    with model_of(answer) as (address, requests):
        done = evolve(address, tmp_path / "out", "--env", "vpo/Code-v0", "--variation", "rewrite")
    assert "best scalar reward 1.000, optimum 1.000" in done.stdout
    assert solution.strip() in done.stdout
    best = json.loads((tmp_path / "out" / "best" / "best_program_info.json").read_text())
    assert best["metrics"]["combined_score"] == pytest.approx(1.0)
    assert len({request.get("seed") for request in requests}) == len(requests), "each request has a seed of its own"


def test_a_child_keeps_a_prefix_of_its_parent(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> str:
        return " L R" if len(request["messages"]) == 2 else "<answer_1>D D</answer_1><answer_2>U</answer_2>"

    options = ("--num-answers", "2", "--env-kwargs", '{"preset": "paper"}')
    with model_of(answer) as (address, requests):
        evolve(address, tmp_path / "out", *options)
    assert (tmp_path / "out" / "initial.txt").read_text() in ("D D", "U")
    assert len(requests) > 1
    for request in requests[1:]:
        begun = request["messages"][1]
        assert begun["role"] == "assistant"
        assert begun["content"].startswith("<answer_1>")
        assert request["stop"] == ["</answer_1>"]
        assert request["continue_final_message"]


def test_the_tiny_models_routes_are_evolved_through_vpo_serve(tmp_path: Path) -> None:
    maze = {"preset": "compact"}
    with served(load_policy("tiny-maze", device="cpu")) as server:
        done = evolve(server.base_url, tmp_path / "out", "--num-answers", "3", "--env-kwargs", json.dumps(maze))
    score, best = done.stdout.split("best scalar reward ")[1].split(", optimum", 1)
    env: Any = vpo_envs.MazeEnv(**maze, split="test")
    vector = env.score_answers(env.task(0), [best.split("\n\n")[1]])[0][0]
    assert vector @ env.fixed_weights(env.task(0)) == pytest.approx(float(score), abs=6e-4)
