"""Pools and runs may come from a stranger: they read, start, fetch and loosen nothing until the user says so."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import toys
from pools import maze_pool, save_run
from watched import watched

from vpo_agent.command import main
from vpo_agent.command.options import parse_job
from vpo_agent.measure.pool import Pool
from vpo_agent.presets import ALL
from vpo_envs import Status
from vpo_envs.common.trust import is_trusted, trusting
from vpo_envs.core import VectorTextEnv
from vpo_envs.registration import check_saved_arguments, env_ids, env_type, make_text_env, saved_env, text_env_ids

SECRET = "the combination of the safe"
ROW = {"question": f"{SECRET}: what is 2 + 3?", "answer": "2+3=<<2+3=5>>5 #### 5"}


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of rows that belongs to the user."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "secrets.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    return file


def received(path: Path, env: str, arguments: dict[str, Any], seed: int = 0) -> Path:
    """A pool that says where it comes from."""
    maze_pool(seed, env=env, env_kwargs=arguments).save(path)
    return path


def pool_of(env: VectorTextEnv[Any, Any, Any], texts: list[str], status: Status = Status.OK, **source: Any) -> Pool:
    """A pool with one response to each of the first tasks of an environment."""
    shape = (len(texts), 1, 1, env.reward_dim)
    return Pool(
        rewards=np.zeros(shape, dtype=np.float32),
        status=np.full(shape[:3], status, dtype=np.int8),
        active=np.ones((len(texts), env.reward_dim), dtype=bool),
        scalar_weights=np.full((len(texts), env.reward_dim), 1 / env.reward_dim),
        indices=np.arange(len(texts)),
        objectives=env.objective_names,
        fronts=None,
        responses=tuple((text,) for text in texts),
        source={"env": env.spec.id if env.spec else "", "env_kwargs": {}, "split": env.split, **source},
    )


READERS = ("show", "eval", "explore", "compare")


@pytest.mark.parametrize("command", READERS)
def test_a_file_that_a_pool_names_is_not_read(
    command: str, secrets: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = [received(Path(f"{seed}.npz"), "vpo/GSM8K-v0", {"source": str(secrets)}, seed) for seed in (0, 1)]
    with watched() as watch:
        assert main([command, *map(str, pools[: 1 + (command == "compare")])]) == 0
    assert str(secrets) not in watch.opened
    assert not watch.connected
    assert not watch.started
    shown = capsys.readouterr()
    pages = [page.read_text() for page in (*Path().glob("*.html"), *Path().glob("*/*.html"))]
    assert not any(SECRET in text for text in (shown.out, shown.err, *pages))
    if command in ("show", "explore"):
        assert f"source='{secrets}' of vpo/GSM8K-v0 come from a saved file" in shown.err
        assert "--trust source" in shown.err


def test_the_file_is_read_once_it_is_trusted(secrets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = make_text_env("vpo/GSM8K-v0", source=f"whole:{secrets}")
    pool_of(env, ["<answer>#### 5</answer>"], env_kwargs={"source": f"whole:{secrets}"}).save(Path("pool.npz"))
    assert main(["show", "pool.npz"]) == 0
    assert SECRET not in capsys.readouterr().out
    assert main(["show", "pool.npz", "--trust", "source"]) == 0
    assert SECRET in capsys.readouterr().out
    assert not is_trusted("source"), "trust ends with the command"


@pytest.mark.parametrize(
    ("env", "arguments"),
    [
        ("vpo/GSM8K-v0", {"source": "http://127.0.0.1:9/rows.jsonl"}),
        ("vpo/GSM8K-v0", {"source": "hf:somebody/rows"}),
        ("vpo/GSM8K-v0", {"source": "whole:/etc/passwd"}),
        ("vpo/GSM8K-v0", {"source": [ROW]}),
        ("vpo/Code-v0", {"sandbox": "B"}),
        ("vpo/Code-v0", {"memory_mb": 100_000}),
        ("vpo/Code-v0", {"time_limit": 3600, "workers": 1000}),
        ("vpo/Programs-v0", {"sandbox": "B", "preset": "paper"}),
        ("vpo/RewardModels-v0", {"models": {"reward": "http://127.0.0.1:9/model"}}),
        ("vpo/RewardModels-v0", {"models": {"reward": "somebody/model"}}),
        ("vpo/RewardModels-v0", {"device": "cuda:0", "batch_size": 10**9}),
        ("own/Functions-v0", {"source": "rows.jsonl", "rewards": "os.py:system"}),
    ],
)
def test_arguments_that_name_or_loosen_something_wait(
    env: str, arguments: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = received(tmp_path / "pool.npz", env, arguments)
    with watched() as watch:
        assert main(["show", str(path)]) == 0
    assert not watch.connected
    assert not watch.started
    needed = ",".join(name for name in arguments if name != "preset")
    assert f"--trust {needed}" in capsys.readouterr().err
    with trusting(needed.split(",")):
        assert saved_env(env, arguments) == env


def test_code_of_a_model_folder_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, trace = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    (folder / "code.py").write_text(
        f"open({str(trace)!r}, 'w')\nfrom transformers import PretrainedConfig\n"
        "class Mine(PretrainedConfig):\n    model_type = 'mine'\n"
    )
    auto_map = {"AutoConfig": "code.Mine", "AutoModelForCausalLM": "code.Model", "AutoTokenizer": ["code.T", None]}
    (folder / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": auto_map, "num_labels": 1}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": auto_map}))
    pool = received(tmp_path / "pool.npz", "vpo/RewardModels-v0", {"models": {"reward": str(folder)}})
    with watched() as watch:
        assert main(["show", str(pool)]) == 0
    assert not any(str(folder) in path for path in watch.opened), "the folder is not looked into"
    assert "--trust models" in capsys.readouterr().err
    for command in (["show", str(pool), "--trust", "models"], ["eval", str(folder), "--env", "vpo/Maze-v0"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 10))
        main(command)
        assert not trace.exists(), "a y at a prompt runs nothing"
    assert "cannot load the model" in capsys.readouterr().err


def test_every_call_that_loads_a_model_refuses_its_code() -> None:
    root = Path(__file__).parents[3]
    loaders = ("AutoConfig", "AutoTokenizer", "AutoModelForCausalLM", "AutoModelForSequenceClassification")
    for file in (*root.glob("vpo_agent/**/*.py"), *root.glob("vpo_envs/**/*.py"), *root.glob("examples/*.py")):
        text = file.read_text(encoding="utf-8")
        for loader in loaders:
            for call in text.split(f"{loader}.from_pretrained(")[1:]:
                assert "trust_remote_code=False" in call[: call.index(")\n")], file


def test_programs_of_a_pool_do_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = make_text_env("vpo/Code-v0")
    pool_of(env, ["<answer>\nwhile True: pass\n</answer>"], Status.INVALID).save(tmp_path / "pool.npz")
    with watched() as watch:
        assert main(["show", str(tmp_path / "pool.npz")]) == 0
    assert not watch.started
    assert "answers are programs, which run only if you trust them: add --trust programs" in capsys.readouterr().err


def test_trusted_programs_run_in_the_sandbox(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = make_text_env("vpo/Code-v0")
    pool_of(env, ["<answer>raise SystemExit</answer>"], Status.INVALID).save(tmp_path / "pool.npz")
    with watched() as watch:
        assert main(["show", str(tmp_path / "pool.npz"), "--trust", "programs"]) == 0
    assert watch.started
    assert "trust" not in capsys.readouterr().err


def run_folder(folder: Path, **settings: Any) -> Path:
    """A run with the given settings, whose checkpoint is that of the bundled maze model."""
    run = save_run(folder, maze_pool(0), **settings)
    (run / "pool_after.npz").unlink()
    return run


@pytest.mark.parametrize("command", ["eval", "search"])
def test_a_run_reads_no_file_until_it_is_trusted(
    command: str, secrets: Path, letters_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(Path("run"), env="vpo/GSM8K-v0", env_kwargs={"source": str(secrets)})
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "step_000001").symlink_to(letters_model)
    with watched() as watch:
        assert main([command, str(run)]) == 2
    assert str(secrets) not in watch.opened
    assert "--trust source" in capsys.readouterr().err


def test_what_the_command_line_states_needs_no_trust(secrets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(Path("run"), env="vpo/GSM8K-v0", env_kwargs={"source": "elsewhere.jsonl"})
    assert main(["eval", str(run), "--env-kwargs", json.dumps({"source": str(secrets)})]) == 2
    assert "has no checkpoint yet" in capsys.readouterr().err


def test_a_resumed_run_waits_as_well(secrets: Path) -> None:
    run_folder(Path("run"), env="vpo/GSM8K-v0", env_kwargs={"source": str(secrets)}, runs_dir="/somewhere/else")
    resume = ["--resume", "--name", "run", "--runs-dir", "."]
    with pytest.raises(ValueError, match="--trust source"):
        parse_job(resume, description="", presets=ALL)
    with trusting([]):
        config = parse_job([*resume, "--trust", "source"], description="", presets=ALL).config
    assert config.env_kwargs == {"source": str(secrets)}
    assert config.runs_dir == Path(), "the run is where the command line found it"


@pytest.mark.parametrize(
    ("settings", "options"),
    [({"model": "somebody/model"}, ["--checkpoint", "base"]), ({"model": "somebody/model", "lora_rank": 4}, [])],
)
def test_a_run_fetches_no_model(
    settings: dict[str, Any], options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path / "run", env="vpo/Maze-v0", env_kwargs={}, **settings)
    checkpoint = run / "checkpoints" / "step_000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    adapters = {"peft_type": "LORA", "base_model_name_or_path": "somebody/model"}
    (checkpoint / "adapter_config.json").write_text(json.dumps(adapters))
    commands = [["eval", str(run), *options]]
    if not options:
        commands += [["search", str(run)], ["serve", str(run), "--port", "0"], ["bench", str(run)]]
    for command in commands:
        with watched() as watch:
            assert main(command) == 2, command
        assert not watch.connected
        assert "names the model 'somebody/model', which is not on this machine" in capsys.readouterr().err


def test_an_entry_of_the_bench_fetches_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaderboard = Path(__file__).parents[3] / "leaderboard"
    entry = json.loads(next(leaderboard.glob("*.json")).read_text())
    for model in entry["models"].values():
        model["target"] = "somebody/model"
    (tmp_path / "entry.json").write_text(json.dumps(entry))
    with watched() as watch:
        assert main(["bench", "--verify", str(tmp_path / "entry.json")]) == 2
    assert not watch.connected
    assert "--trust models" in capsys.readouterr().err


def test_the_recipe_of_a_received_warm_start_imports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("open('ran', 'w')")
    Path("base/checkpoints/step_000001").mkdir(parents=True)
    Path("base/recipe.json").write_text(json.dumps({"env": "vpo/Maze-v0", "imports": ["mine.py"]}))
    assert main(["warm-start", "--resume", "--out", "base"]) == 2
    assert "add --import mine.py" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_suggested_options_cannot_start_another_command() -> None:
    with pytest.raises(ValueError, match=r"--import 'a; rm -rf x'"):
        saved_env("a; rm -rf x:Mine-v0", {})
    with pytest.raises(ValueError, match=r"--trust rewards --import 'x\$\(reboot\)'"):
        saved_env("own/Functions-v0", {"rewards": "x$(reboot):f"})


def test_what_environments_declare_harmless_names_no_file_and_no_limit() -> None:
    """Of all arguments of the suite these are harmless; a new one is added here after a thought."""
    harmless = {name for env_id in text_env_ids() for name in env_type(env_id).harmless_arguments}
    of_episodes = {"split", "num_answers", "answers_as_steps", "data_seed", "render_mode"}
    assert harmless == of_episodes | {"preset", "difficulty", "on_bad_row", "steps", "reward_shape", "refine"}


def test_the_arguments_of_an_environment_of_ones_own_wait_unless_it_declares_them() -> None:
    class Open(toys.LettersEnv):
        harmless_arguments = toys.LettersEnv.harmless_arguments | {"depth"}

        def __init__(self, *, depth: int = 1, folder: str = "", **options: Any) -> None:
            super().__init__(**options)

    gym.register("received/Open-v0", entry_point=Open)
    try:
        check_saved_arguments("received/Open-v0", {"depth": 3, "folder": ""})
        with pytest.raises(ValueError, match="--trust folder"):
            check_saved_arguments("received/Open-v0", {"depth": 3, "folder": "/etc"})
    finally:
        gym.registry.pop("received/Open-v0")


def test_presets_and_knobs_pass() -> None:
    for env_id in env_ids():
        for preset in getattr(env_type(env_id), "presets", {}):
            assert saved_env(env_id, {"preset": preset, "split": "test", "data_seed": 3}) == env_id
