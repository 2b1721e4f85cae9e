"""The snippets and figures of docs/adapters.md, run with the real package where it is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from processes import run_python

from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers


def snippet(heading: str) -> dict[str, Any]:
    """The names that the code under a heading defines."""
    text = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    # A dataclass looks for the module that defines it.
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, heading, "exec"), names)
    return names


def test_the_table_of_reducers_is_what_its_command_prints(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: make adapters")
    done = run_python([str(ROOT / "examples" / "inspect_reducers.py")], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *table, above, perfect = done.stdout.strip().splitlines()
    document = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    assert len(table) == 8
    assert "\n".join(table) in document
    assert above.removeprefix("`max`: ") in document
    assert perfect == "`pass_at`: 0 answers were perfect in all"


def test_reasoning_gym_scores_the_best_answer_by_the_mean_of_its_objectives() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: make adapters")
    import reasoning_gym

    snippet("reasoning-gym")
    dataset = reasoning_gym.create_dataset("vpo_maze", seed=3, size=2)
    env = make_text_env("vpo/Maze-v0", data_seed=3)
    for index, entry in enumerate(dataset):
        best = max(np.mean(point.vector) for point in env.front(env.task(index)))
        assert dataset.score_answer(entry["answer"], entry) == pytest.approx(best)
        assert dataset.score_answer(None, entry) == 0.0


def test_openenv_carries_the_matrix_in_the_metadata() -> None:
    pytest.importorskip("openenv", reason="openenv is not installed: make adapters")
    names = snippet("OpenEnv")
    env = names["VectorEnvironment"]()
    assert "maze" in env.reset(seed=5).text.lower()
    front = env.env.front(env.env.current_task)[:3]
    answers = [point.answer for point in front]
    found = env.step(names["Response"](text=format_answers(answers, 3)))
    vectors = np.array([point.vector for point in front])
    assert found.done
    assert found.reward == pytest.approx(vectors.mean(axis=1).max())
    np.testing.assert_allclose(found.metadata["reward_matrix"][: len(front)], vectors, atol=1e-6)


def test_nemo_gym_gets_each_objective_over_http() -> None:
    pytest.importorskip("nemo_gym.base_resources_server", reason="NeMo Gym needs Python 3.13.14, and is not installed")
    from fastapi.testclient import TestClient
    from nemo_gym.base_resources_server import BaseResourcesServerConfig

    names = snippet("NeMo Gym")
    env = names["ENV"]
    task = env.task(0)
    best = env.front(task)[0]
    text = {"type": "output_text", "annotations": [], "text": format_answers([best.answer])}
    message = {"id": "1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    response = {"id": "1", "created_at": 0, "model": "m", "object": "response", "output": [message]}
    response |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    asked = {"responses_create_params": {"input": "?"}, "response": response, "task": task.model_dump(mode="json")}
    config = BaseResourcesServerConfig(name="vector", host="localhost", port=1, entrypoint="", domain="games")
    server = names["VectorServer"].model_construct(config=config)
    found = TestClient(server.setup_webserver()).post("/verify", json=asked).json()
    assert list(found["reward_components"]) == list(env.objective_names)
    np.testing.assert_allclose(list(found["reward_components"].values()), best.vector, atol=1e-6)
    assert found["reward"] == pytest.approx(np.mean(best.vector))
    assert found["mask_sample"] is False
