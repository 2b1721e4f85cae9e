"""Files that are damaged, or made to do damage: every command ends with one sentence."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import toys
from pools import maze_pool, save_run

from vpo_agent.bench.entry import NEEDED, headline, read_entry
from vpo_agent.command import main
from vpo_agent.config import make_config, read_config
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.runs.study_file import read_study
from vpo_agent.search.records import read_log

DEEP = 100_000 * "["
HUGE = "1" + 400 * "0"
LEADERBOARD = Path(__file__).parents[3] / "leaderboard"


def refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence with which a command refuses what it was given."""
    capsys.readouterr()
    assert main(command) == 2, command
    said = capsys.readouterr().err
    assert said.startswith("error: "), said
    assert said.count("\n") == 1, said
    return said


def texts_of(name: str) -> list[str]:
    """JSON that is nested, has numbers that are too large, and is none."""
    values = (DEEP, HUGE, "NaN", "-Infinity", "1e999")
    return [DEEP, *(f'{{"{name}": {value}}}' for value in values), "", "[]", "null", '{"a": 1', "\ufeff"]


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "pool_after.npz"])
def test_a_run_with_a_damaged_file_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, other = (save_run(tmp_path / folder, maze_pool(seed)) for seed, folder in enumerate("ab"))
    file = run / name
    (run / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n')
    whole = file.read_bytes()
    for text in texts_of("step"):
        file.write_bytes(text.encode() + (b'\n{"kind": "train", "step": 2}\n' if name == "metrics.jsonl" else b""))
        if name == "metrics.jsonl" and not text:
            continue
        assert name in refused(["compare", str(run), str(other)], capsys) or name == "config.json"
    file.write_bytes(whole)
    file.unlink()
    file.mkdir()
    refused(["compare", str(run), str(other)], capsys)


@pytest.mark.parametrize(
    "values",
    [
        {"split": ["test"]},
        {"env": 3},
        {"env_kwargs": []},
        {"method": ["vpo"]},
        {"method_options": "k=3"},
        {"seed": "0"},
        {"step": [1]},
        {"step": -1},
        {"seed": 10**300},
        {"num_answers": "3"},
        {"max_new_tokens": "64"},
        {"usage": {"truncated": "2"}},
        {"tasks": 3},
        {"temperature": "hot"},
    ],
)
def test_a_pool_whose_source_has_other_types_is_named(
    values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = maze_pool(0)
    replace(pool, source={**pool.source, **values}).save(tmp_path / "pool.npz")
    for command in ("show", "eval", "explore"):
        said = refused([command, str(tmp_path / "pool.npz")], capsys)
        assert f"its source has {next(iter(values))}=" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"index": -1},
        {"index": 10**300},
        {"index": "0"},
        {"prompt": None},
        {"responses": "text"},
        {"responses": []},
        {"status": [["wonderful"] * 3]},
        {"status": [[]]},
        {"rewards": [[[0.0]] * 3]},
        {"rewards": [[]]},
        {"rewards": 3},
        {"objectives": []},
        {"objectives": ["a"]},
        {"objectives": {"a": 1}},
        {"step": None},
    ],
)
def test_a_row_of_transcripts_that_is_none_is_named(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = maze_pool(0)
    run = save_run(tmp_path / "run", pool, env="vpo/Maze-v0", env_kwargs={"preset": "compact"})
    names = list(pool.objectives)
    row = {
        "step": 1,
        "index": 0,
        "prompt": "?",
        "objectives": names,
        "responses": [""],
        "status": [["missing"] * 3],
        "rewards": [[[0.0] * len(names)] * 3],
    }
    file = run / "transcripts.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert main(["show", str(run)]) == 0
    file.write_text(json.dumps(row | changes) + "\n" + json.dumps(row) + "\n")
    assert "transcripts.jsonl" in refused(["show", str(run)], capsys)


def test_an_entry_that_is_damaged_is_named(tmp_path: Path) -> None:
    file = tmp_path / "entry.json"
    entry = json.loads(next(LEADERBOARD.glob("*.json")).read_text())
    values = (None, [], "x", {"a": []}, -1, 1e300)
    edited = [json.dumps({**entry, name: value}) for name in NEEDED for value in values]
    for text in texts_of("bench") + edited:
        file.write_text(text)
        with suppress(ValueError):
            assert headline(read_entry(file))
    with pytest.raises(ValueError, match=r"cannot read .*: Is a directory"):
        read_entry(tmp_path)


def test_a_log_of_a_search_that_is_damaged_is_named(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    row: dict[str, Any] = {
        "index": 0,
        "measure": "scalar",
        "optimum": 1.0,
        "best_answer": "x",
        "weights": [0.5, 0.5],
        "active": [True, True],
        "rewards": [[0.0, 1.0], [1.0, 0.0]],
        "status": [0, 5],
        "tokens": [3, 4],
    }
    file.write_text(json.dumps(row) + "\n")
    assert read_log(file)[0].solved_at() is None
    changes: list[dict[str, Any]] = [
        {"index": 10**300},
        {"measure": "fame"},
        {"weights": []},
        {"weights": [1.0]},
        {"active": [1, 0]},
        {"rewards": [[0.0, 1.0]]},
        {"rewards": [[0.0], [1.0, 0.0]]},
        {"status": []},
        {"status": [0, 99]},
        {"tokens": [3, 10**300]},
        {"tokens": [3]},
        {"best_answer": None},
    ]
    texts = [json.dumps({**row, **change}) for change in changes]
    texts += [json.dumps(row) + "\n" + json.dumps({**row, "index": 1, "measure": "utility"}), *texts_of("index")]
    for text in texts:
        file.write_text(text + "\n")
        with pytest.raises(ValueError, match=r"log\.jsonl.*: delete the file to search again"):
            read_log(file)
    with pytest.raises(ValueError, match=r"cannot read .*: Is a directory"):
        read_log(tmp_path)


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", "", "../x"])
def test_a_study_and_its_parts_have_names_of_folders_of_their_own(name: str, tmp_path: Path) -> None:
    study: dict[str, Any] = {"name": "s", "seeds": [0], "baseline": "a", "methods": [{"label": "a", "settings": {}}]}
    tasks = [{"label": name, "settings": {}}]
    methods = [{"label": name, "settings": {}}]
    for changes in ({"name": name}, {"tasks": tasks}, {"methods": methods, "baseline": name}):
        (tmp_path / "study.json").write_text(json.dumps({**study, **changes}))
        with pytest.raises(ValueError, match="is invalid: use only letters, digits, _"):
            read_study(tmp_path / "study.json")


@pytest.mark.parametrize("name", ["..", ".", "", "../other", "a/../../b", "/", "nul\0"])
def test_a_run_has_a_name_of_a_folder_of_its_own(name: str) -> None:
    with pytest.raises(ValueError, match="it must be the name of a folder in runs_dir"):
        make_config({"name": name}, "settings")


@pytest.mark.parametrize("text", ["a = " + 5000 * "[", "seed = 1" + 400 * "0", "alpha = nan", "name = 1979-05-27"])
def test_settings_in_toml_that_are_damaged_are_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.toml' is not valid toml"):
        read_config(tmp_path / "settings.toml")


def test_an_environment_that_ends_the_process_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    class Quitting(toys.LettersEnv):
        def __init__(self, **options: Any) -> None:
            raise SystemExit(0)

    gym.register("damaged/Quitting-v0", entry_point=Quitting)
    try:
        assert main(["envs", "damaged/Quitting-v0"]) == 1
    finally:
        gym.registry.pop("damaged/Quitting-v0")
    said = capsys.readouterr().err
    assert "other code of your own ended the process: SystemExit: 0" in said
    assert f"{__file__}, line" in said


def test_a_tokenizer_that_is_larger_than_its_model_is_named(letters_model: Path, tmp_path: Path) -> None:
    shutil.copytree(letters_model, tmp_path / "model")
    policy = LMPolicy.from_pretrained(tmp_path / "model", device="cpu")
    policy.tokenizer.add_tokens(["zebra"])
    with pytest.raises(ValueError, match=r"the tokenizer wrote the token \d+, and the model has embeddings for \d+"):
        policy.encode_prompts(["a zebra"])
