"""The snippets and figures of docs/adapters.md, run with the real package where it is installed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from processes import run_python

from vpo_agent.bench.sample import blind_responses
from vpo_agent.bench.tasks import TRACKS
from vpo_envs.registration import make_text_env


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


def test_inspect_scores_the_tasks_of_the_bench_as_its_entries_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: make adapters")
    from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model

    names = snippet("The tasks of `vpo bench`")
    quick = tuple(task for task in TRACKS["natural"] if task.name in ("eureqa", "maze", "gsm8k"))
    monkeypatch.setitem(TRACKS, "natural", quick)
    texts = {
        prompt: text
        for task in quick
        for prompt, text in zip(task.prompts(0), blind_responses()["natural"][task.name], strict=True)
    }

    def answer(messages: list[Any], _tools: Any, _choice: Any, config: GenerateConfig) -> ModelOutput:
        assert (config.temperature, config.max_tokens) == (1.0, 2048)
        output = ModelOutput.from_content("mockllm/model", texts[messages[-1].text])
        output.usage = ModelUsage()  # else it is counted, with a vocabulary that would have to be downloaded
        return output

    assert names["bench_task"](quick[0]).epochs == 10
    model = get_model("mockllm/model", custom_outputs=answer)
    found = names["bench"]("natural", model, epochs=1, log_dir=str(tmp_path), display="none")
    entry = json.loads((ROOT / "leaderboard" / "natural_blind.json").read_text(encoding="utf-8"))
    assert found == pytest.approx({task.name: entry["tasks"][task.name]["mean"] for task in quick}, abs=1e-3)


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
