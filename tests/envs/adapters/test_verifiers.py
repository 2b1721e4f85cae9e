"""The verifiers adapter and the packages that ``vpo export verifiers`` writes, run by the real package."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from conversations import CASES, COMPACT, conversation, stepped
from packaging.requirements import Requirement
from paths import ROOT
from scripted_endpoint import Body, completion, scripted

from vpo_agent.bench.sample import blind_responses, optimal_responses
from vpo_agent.bench.tasks import digest
from vpo_agent.command import main
from vpo_envs.pareto import set_utility, spread_weights
from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers

EASY = {"preset": "conflict"}
OBJECTIVES = ("completion", "gold", "diamond", "avoid_lava")
SECONDS = 300
"""That a process may take."""

needs_verifiers = pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None,
    reason="verifiers is not installed: pip install -e '.[verifiers]', or make adapters",
)


def export(folder: Path, *options: str) -> Path:
    arguments = ["--env-kwargs", json.dumps(EASY), *options]
    assert main(["export", "verifiers", "vpo/Maze-v0", "--out", str(folder), *arguments]) == 0
    return folder


# --- the package, written without verifiers --------------------------------------------------------------------------


def test_the_package_names_each_objective_with_its_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = export(tmp_path / "maze", "--scalar-weights", "1,0,2,1")
    assert "vf-eval vpo-maze-v0" in capsys.readouterr().out
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for name, weight in zip(OBJECTIVES, (0.25, 0, 0.5, 0.25), strict=True):
        assert f"| `{name}` | {weight:g} |" in readme
    source = (folder / "vpo_maze_v0" / "__init__.py").read_text(encoding="utf-8")
    compile(source, "package", "exec")
    assert "'diamond': 0.5" in source


def stated(folder: Path) -> dict[str, Any]:
    """The metadata of a package, as its own build backend states them."""
    pytest.importorskip("hatchling", reason="building needs hatchling, which the dev extra installs")
    command = [sys.executable, "-m", "hatchling", "metadata"]
    return json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=SECONDS).stdout)


def test_the_package_depends_on_a_vpo_gym_that_pip_can_find(tmp_path: Path) -> None:
    (needed,) = map(Requirement, stated(export(tmp_path / "here"))["dependencies"])
    assert (needed.name, needed.extras) == ("vpo-gym", {"verifiers"})
    assert needed.url is not None
    place = Path(unquote(urlsplit(needed.url).path))
    found = stated(place)
    assert (found["name"], found["version"]) == ("vpo-gym", version("vpo-gym"))
    assert "verifiers" in found["optional-dependencies"]
    wheel = tmp_path / "a folder" / "vpo_gym-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    for given, url in [(str(wheel), wheel.as_uri()), ("git+https://host/vpo-gym@v1", "git+https://host/vpo-gym@v1")]:
        folder = export(tmp_path / f"{len(given)}", "--vpo-gym", given)
        assert [Requirement(one).url for one in stated(folder)["dependencies"]] == [url]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            ["vpo/Maze-v0", "--vpo-gym", "nowhere"],
            "'nowhere' is no place of VPO Gym: give its folder, a wheel or a URL",
        ),
        (["vpo/Labyrinth-v0"], "unknown environment 'vpo/Labyrinth-v0'"),
        (["vpo/Maze-v0", "--scalar-weights", "1,1"], "weights need 4 values"),
        (["vpo/Maze-v0", "--env-kwargs", '{"preset": "huge"}'], "vpo/Maze-v0 cannot be made"),
        (["vpo/Maze-v0", "--num-answers", "0"], "--num-answers must be at least 1, got 0"),
        (["vpo/RewardModels-v0"], "vpo/RewardModels-v0 has nothing to score with"),
        (["bench-v2/easy"], "give bench-v2/compact or bench-v2/natural"),
        (["bench-v2/compact", "--num-answers", "2"], "without settings of environments, which are fixed; got"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    options: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "verifiers", *options, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_pip_is_told_a_folder_and_not_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export(Path("maze"))
    assert capsys.readouterr().out.startswith("pip install ./maze\n")
    export(tmp_path / "other")
    assert capsys.readouterr().out.startswith(f"pip install {tmp_path / 'other'}\n")


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["export", "verifiers", "vpo/Maze-v0", "--out", str(tmp_path)]) == 2
    assert "is not empty: choose a new folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_environment_of_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own_maze_for_verifiers.py"
    file.write_text(
        "from vpo_envs import MazeEnv, register_env\n\n\nclass OwnMaze(MazeEnv):\n    pass\n\n\n"
        "register_env('own/MazeForVerifiers-v0', f'{__name__}:OwnMaze')\n"
    )
    assert main(["export", "verifiers", f"{file}:own/MazeForVerifiers-v0", "--out", str(tmp_path / "out")]) == 2
    assert "which a package cannot import" in capsys.readouterr().err


# --- scores ----------------------------------------------------------------------------------------------------------


def scored(taskset: Any, index: int, reply: str) -> Any:
    """The trace of a reply to a task, with scores."""
    return score_of(list(taskset)[index], reply)


def score_of(task: Any, reply: str) -> Any:
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode

    trace = vf.Trace(
        task=vf.TraceTask(type="VectorTask", data=task.data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[MessageNode(parent=None, message=vf.AssistantMessage(content=reply), sampled=True)],
    )
    asyncio.run(task.score(trace))
    return trace


def maze_taskset(**config: Any) -> Any:
    from vpo_envs.adapters.verifiers import VectorTaskset, VectorTasksetConfig

    settings = {"env": "vpo/Maze-v0", "env_kwargs": EASY, "split": "test"} | config
    return VectorTaskset(VectorTasksetConfig(**settings))


@needs_verifiers
def test_rewards_are_those_of_the_best_answer_and_the_matrix_holds_all() -> None:
    env = make_text_env("vpo/Maze-v0", **EASY, split="test")
    front = env.front(env.task(1))[:3]
    vectors = np.array([point.vector for point in front])
    taskset = maze_taskset(num_answers=3, weights={"diamond": 3.0, "gold": 1.0}, size=2)
    trace = scored(taskset, 1, format_answers([point.answer for point in front], 3))
    weights = np.array([0.0, 0.25, 0.75, 0.0])
    assert trace.reward == pytest.approx((vectors @ weights).max())
    assert {name: one.weight for name, one in trace.rewards.items()} == dict(zip(OBJECTIVES, weights, strict=True))
    np.testing.assert_allclose(trace.info["reward_matrix"], vectors, atol=1e-6)
    reached = [trace.rewards[name].score for name in OBJECTIVES]
    assert any(np.allclose(reached, vector, atol=1e-6) for vector in vectors)
    assert trace.metrics["set_utility"] == pytest.approx(set_utility(vectors, spread_weights(4)))
    assert trace.metrics["answered"] == 1.0


@needs_verifiers
def test_a_reply_without_an_answer_earns_nothing() -> None:
    trace = scored(maze_taskset(size=1), 0, "I do not know.")
    assert trace.reward == 0.0
    assert all(one.score == 0.0 for one in trace.rewards.values())
    assert trace.metrics["answered"] == 0.0


@needs_verifiers
def test_an_inactive_objective_is_not_scored_and_carries_no_weight() -> None:
    from vpo_envs.adapters.verifiers import VectorTaskset, VectorTasksetConfig

    env = make_text_env("vpo/GSM8K-v0", split="test")
    index = next(index for index in range(100) if not env.active(env.task(index)).all())
    active = env.active(env.task(index))
    best = env.front(env.task(index))[0]
    config = VectorTasksetConfig(env="vpo/GSM8K-v0", split="test", size=index + 1)
    trace = scored(VectorTaskset(config), index, format_answers([best.answer]))
    assert [trace.rewards[name] is not None for name in env.objective_names] == active.tolist()
    assert trace.reward == pytest.approx(np.mean(np.array(best.vector)[active]))


@needs_verifiers
def test_a_failed_scorer_is_an_error_and_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    import verifiers.v1 as vf

    from vpo_envs import MazeEnv
    from vpo_envs.core import ScorerFailure

    def fail(self: Any, task: Any, answer: Any) -> Any:
        raise ScorerFailure("no scorer here")

    monkeypatch.setattr(MazeEnv, "evaluate", fail)
    taskset = maze_taskset(size=1)
    task = next(iter(taskset))
    trace = vf.Trace(task=vf.TraceTask(type="VectorTask", data=task.data), agent=vf.AgentInfo(config=vf.AgentConfig()))
    from verifiers.v1.graph import MessageNode

    reply = vf.AssistantMessage(content="<answer>UP</answer>")
    trace.nodes.append(MessageNode(parent=None, message=reply, sampled=True))
    with pytest.raises(ScorerFailure, match="the scorer of vpo/Maze-v0 failed"):
        asyncio.run(task.score(trace))
    assert trace.rewards == dict.fromkeys(OBJECTIVES)


@needs_verifiers
def test_weights_of_an_unknown_objective_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"vpo/Maze-v0 has no objective 'golf': it has completion, gold"):
        list(maze_taskset(weights={"golf": 1.0}, size=1))


@needs_verifiers
@pytest.mark.parametrize("case", CASES)
def test_a_reply_is_the_next_message_and_the_score_that_of_the_environment(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["vpo/Archive-v0", "--env-kwargs", json.dumps(COMPACT), "--num-answers", "2", "--out", str(tmp_path)]
    assert main(["export", "verifiers", *arguments]) == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vpo_archive_v0", raising=False)
    env = make_text_env("vpo/Archive-v0", **COMPACT, num_answers=2)
    written = conversation(env.task(0), case)
    asked, read, rewards = stepped(env, env.task(0), written)
    with scripted(lambda body, number: completion(written[number])) as server:
        episode = asyncio.run(episode_of("vpo-archive-v0", server.url))
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    # A message stays as it was sampled, with what the model wrote behind a call.
    said = [{"role": "user", "content": asked}]
    for text, (_, *reply) in zip(written, read, strict=False):
        said += [{"role": "assistant", "content": text}, *({"role": "user", "content": text} for text in reply)]
    assert [{"role": message.role, "content": message.content} for message in trace.messages] == said
    assert [len(body["messages"]) for body in server.requests] == [1 + 2 * turn for turn in range(len(read))]
    np.testing.assert_allclose(trace.info["reward_matrix"], rewards, atol=1e-6)


async def episode_of(package: str, url: str) -> Any:
    """The episode of the first task of an installed package, with a model behind an endpoint."""
    from verifiers.v1.clients import ModelContext
    from verifiers.v1.configs.client import EvalClientConfig
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    config = resolve_env_config({"taskset": {"id": package, "size": 1}, "agent": {"runtime": {"type": "subprocess"}}})
    env = load_environment(config)
    context = ModelContext(model="m", client=EvalClientConfig(base_url=url))
    async with env.serving():
        return await env.run_episode(next(iter(env.taskset)), context)


@needs_verifiers
def test_a_track_of_the_bench_has_its_prompts_limits_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "verifiers", "bench-v2/natural", "--out", str(tmp_path)]) == 0
    assert "vf-eval bench-v2-natural" in (said := capsys.readouterr().out)
    assert "-n 300 -r 10" in said
    monkeypatch.syspath_prepend(str(tmp_path))
    package = importlib.import_module("bench_v2_natural")
    tasks = list(package.NaturalTaskset(package.NaturalConfig()))
    named: dict[str, list[Any]] = {}
    for task in tasks:
        named.setdefault(task.data.name.rpartition("-test-")[0], []).append(task)
        assert task.data.sampling == {"temperature": 1.0, "max_tokens": 2048}
    entry = json.loads((ROOT / "leaderboard" / "natural_blind.json").read_text(encoding="utf-8"))
    assert digest({name: [task.data.prompt for task in of_name] for name, of_name in named.items()}) == entry["prompts"]
    scores = {
        name: [score_of(*pair).metrics["score"] for pair in zip(named[name], texts, strict=True)]
        for name, texts in blind_responses()["natural"].items()
    }
    for name, found in scores.items():
        assert np.mean(found) == pytest.approx(entry["tasks"][name]["mean"], abs=1e-3)
    best = optimal_responses(make_text_env("vpo/MuSiQue-v0", preset="conflict", split="test", num_answers=3), 50)
    found = [score_of(*pair).metrics["score"] for pair in zip(named["musique"], best, strict=True)]
    assert np.mean(found) == pytest.approx(1, abs=1e-3)


# --- the installed package in vf-eval -------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The URL of a server that answers each maze with the first point of its front, every other time with nothing."""
    env = make_text_env("vpo/Maze-v0", **EASY, split="test")
    fronts = {env.prompt(task, 1): env.front(task)[0].answer for task in map(env.task, range(2))}
    asked: list[str] = []

    def first_point(body: Body, number: int) -> Body:
        prompt = body["messages"][-1]["content"]
        asked.append(prompt)
        return completion(format_answers([fronts[prompt]]) if asked.count(prompt) == 1 else "no idea")

    with scripted(first_point) as server:
        yield server.url


@pytest.mark.slow
@needs_verifiers
def test_the_installed_package_runs_in_vf_eval(tmp_path: Path, endpoint: str) -> None:
    folder = export(tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(folder)], check=True, timeout=SECONDS)
    script = "from verifiers.v1.cli.eval.main import main; main()"
    options = [
        *("vpo-maze-v0", "--model", "m", "--client.base-url", endpoint, "-n", "2", "-r", "2", "--no-push", "--no-rich"),
        *("--env.agent.runtime.type", "subprocess"),
        *("--env.taskset.split", "test", "--output-dir", str(tmp_path / "runs"), "--run.name", "maze"),
    ]
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", script, *options],
        env={**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    (file,) = (tmp_path / "runs").rglob("traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(episodes) == 4, done.stderr
    env = make_text_env("vpo/Maze-v0", **EASY, split="test")
    found: dict[str, list[float]] = {}
    for episode in episodes:
        (trace,) = episode["traces"]
        assert trace["ok"], trace["errors"]
        assert {name: one["weight"] for name, one in trace["rewards"].items()} == dict.fromkeys(OBJECTIVES, 0.25)
        total = sum(one["score"] * one["weight"] for one in trace["rewards"].values())
        found.setdefault(trace["task"]["data"]["name"], []).append(total)
    for index in range(2):
        best = np.mean(env.front(env.task(index))[0].vector)
        assert sorted(found[f"test-{index}"]) == pytest.approx([0.0, best], abs=1e-6)
