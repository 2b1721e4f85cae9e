"""Studies: what a file states is what runs, once, and goes on where it was stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paths import ROOT
from processes import PATIENCE, PythonProcess, forked_python

from vpo_agent.command import main
from vpo_agent.measure.pool import Pool
from vpo_agent.rollouts import backends
from vpo_agent.runs import study
from vpo_agent.runs.run_data import read_training
from vpo_agent.runs.run_lock import RunLock
from vpo_agent.runs.study import StudyRun, check_finished, run_study, runs_of
from vpo_agent.runs.study_file import Study, read_study, to_compare
from vpo_agent.runs.whole_files import checkpoints, step_of

TINY = """
name = "tiny"
seeds = [0, 1]
baseline = "vpo"
[settings]
env_kwargs = { preset = "compact" }
model = "tiny-maze"
steps = 1
prompts_per_step = 2
rollouts_per_prompt = 2
max_new_tokens = 6
kl_coef = 0.0
eval_prompts = 2
eval_answers = 3
[[methods]]
label = "vpo"
settings = { method = "vpo" }
[[methods]]
label = "grpo"
seeds = [0]
settings = { method = "grpo" }
"""


@pytest.fixture(autouse=True)
def quick_start(monkeypatch: pytest.MonkeyPatch, no_figures: None) -> None:
    """Have the runs forked from a process that has loaded torch."""
    monkeypatch.setattr(sys, "executable", forked_python())


def write(folder: Path, text: str = TINY) -> Path:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def runs_in(folder: Path, study: Study, **chosen: Any) -> list[StudyRun]:
    """The runs of a study whose run folders and data files are in one folder."""
    return runs_of(study, folder, folder / "results", **chosen)


def tiny_runs(folder: Path, text: str = TINY, **chosen: Any) -> list[StudyRun]:
    return runs_in(folder, read_study(write(folder, text)), **chosen)


def test_runs_come_seed_by_seed_with_the_settings_of_their_method(tmp_path: Path) -> None:
    runs = tiny_runs(tmp_path)
    assert [(run.label, run.seed) for run in runs] == [("vpo", 0), ("grpo", 0), ("vpo", 1)]
    assert [run.config.method for run in runs] == ["vpo", "grpo", "vpo"]
    assert [run.config.seed for run in runs] == [0, 0, 1]
    assert {run.config.steps for run in runs} == {1}
    assert [run.folder for run in runs] == [
        tmp_path / "tiny" / name for name in ("vpo-seed0", "grpo-seed0", "vpo-seed1")
    ]


def test_the_example_is_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "--example"]) == 0
    (tmp_path / "mine.toml").write_text(capsys.readouterr().out)
    runs = runs_in(tmp_path, read_study(tmp_path / "mine.toml"))
    assert [(run.title, run.seed) for run in runs[:2]] == [("maze, vpo", 0), ("maze, grpo", 0)]
    assert main(["study", str(tmp_path / "mine.toml"), "--example"]) == 2
    assert "--example prints a study and reads none: leave out --example or" in capsys.readouterr().err
    assert main(["study"]) == 2
    assert "a study needs its file: give FILE.toml, or --example to see one" in capsys.readouterr().err


def test_other_seeds_and_fewer_methods_can_be_asked_for(tmp_path: Path) -> None:
    runs = tiny_runs(tmp_path, seeds=[8, 7, 8], labels=["grpo"])
    assert [(run.label, run.seed) for run in runs] == [("grpo", 7), ("grpo", 8)]


def test_a_method_of_several_parts_is_compared_as_one(tmp_path: Path) -> None:
    parts = "parts = [{ scalar_weights = [1, 0, 0, 0] }, { scalar_weights = [0, 1, 0, 0] }]\n"
    study = read_study(write(tmp_path, TINY + parts))
    runs = runs_in(tmp_path, study)
    assert [run.folder.name for run in runs] == ["vpo-seed0", "grpo-part1-seed0", "grpo-part2-seed0", "vpo-seed1"]
    assert [run.config.scalar_weights for run in runs[1:3]] == [[1, 0, 0, 0], [0, 1, 0, 0]]
    runs[0].results.mkdir(parents=True)
    for run in runs[:2]:
        run.data.touch()
    assert to_compare(runs) == ([[runs[0].data]], ["vpo"]), "a part is not finished"
    runs[2].data.touch()
    assert to_compare(runs) == ([[runs[0].data], [runs[1].data, runs[2].data]], ["vpo", "grpo"])
    base = runs[0].results / "base-3-seed0.npz"
    base.touch()
    (runs[0].results / "base-3-seed7.npz").touch()
    assert to_compare(runs).files[0] == [base]
    assert to_compare(runs).labels[0] == "base, 3 answers"


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "studies").glob("*.toml")), ROOT / "examples/maze.toml"], ids=lambda path: path.stem
)
@pytest.mark.usefixtures("own_registry")
def test_the_studies_of_the_project_are_whole(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    study = read_study(path)
    assert study.name == path.stem
    runs = runs_in(tmp_path, study)
    assert len({run.folder for run in runs}) == len(runs)
    shared = ["temperature", "eval_prompts", "eval_answers"]
    if not study.name.endswith("_search"):
        shared += ["learning_rate", "steps"]
    for task in {run.task for run in runs}:
        configs = [run.config for run in runs if run.task == task]
        # A policy for one answer and for three learns both in one and a half times the steps.
        mixed = [config for config in configs if len(config.answer_counts) > 1]
        configs = [config for config in configs if config not in mixed]
        assert all(2 * config.steps == 3 * configs[0].steps for config in mixed)
        for name in shared:
            assert len({getattr(config, name) for config in configs}) == 1, (
                f"{name} is meant to be the same for all methods"
            )
        # Pools of ten take 6 x 21 rollouts, the others 16 x 8.
        rollouts = [config.prompts_per_step * config.rollouts_per_prompt for config in configs]
        answers = [count * config.max_answers for count, config in zip(rollouts, configs, strict=True)]
        for drawn, written in zip(rollouts, answers, strict=True):
            assert drawn <= 1.02 * min(rollouts) or written == max(answers), "equal rollouts, or else equal answers"


@pytest.mark.parametrize(
    ("gpus", "visible", "device", "processes", "threads", "expected"),
    [
        (0, None, "auto", None, None, [("1", None)] * 3),
        (0, None, "auto", 2, None, [("2", None)] * 3),
        (0, None, "auto", 2, "7", [("7", None)] * 3),
        (1, None, "auto", None, None, [("4", "0")] * 3),
        (2, "4,6", "auto", None, None, [("2", "4"), ("2", "6"), ("2", "4")]),
        (2, None, "cpu", None, None, [("1", None)] * 3),
        (2, None, "cuda:1", None, None, [("2", None)] * 3),
        (1, None, "cuda", 2, None, [("2", "0")] * 3),
    ],
)
def test_runs_share_the_cores_and_have_a_gpu_each(
    gpus: int,
    visible: str | None,
    device: str,
    processes: int | None,
    threads: str | None,
    expected: list[tuple[str, str | None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    for name, value in (("OMP_NUM_THREADS", threads), ("CUDA_VISIBLE_DEVICES", visible)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    seen, running, most = [], [], 0

    class Started:
        returncode = 0

        def __init__(self, command: list[str], *, env: dict[str, str], **_: object) -> None:
            nonlocal most
            seen.append((env["OMP_NUM_THREADS"], env.get("CUDA_VISIBLE_DEVICES")))
            running.append(self)
            most = max(most, len(running))

        def poll(self) -> int:
            running.remove(self)
            return 0

    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr(study, "commit_of_code", lambda: "")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    path = write(tmp_path, TINY.replace("steps = 1", f'steps = 1\ndevice = "{device}"'))
    run_study(runs_in(tmp_path, read_study(path)), processes=processes)
    assert seen == expected
    assert most == min(3, processes or (gpus if gpus and device != "cpu" else 4))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_study_that_ends_stops_its_runs_which_keep_what_they_have(tmp_path: Path, number: int) -> None:
    path = write(tmp_path, TINY.replace("steps = 1", "steps = 100000"))
    arguments = ["study", str(path), "--runs-dir", str(tmp_path), "--processes", "1"]
    script = f"import sys; sys.executable = {sys.executable!r}; from vpo_agent.command import main; "
    study = PythonProcess(["-c", f"{script}sys.exit(main({arguments!r}))"])
    folder = tmp_path / "tiny" / "vpo-seed0"
    metrics = folder / "metrics.jsonl"
    within(lambda: metrics.is_file() and '"kind": "train"' in metrics.read_text(encoding="utf-8"))
    study.send_signal(number)
    assert study.wait() == (130 if number == signal.SIGTERM else -number)
    within(lambda: unlocked(folder))
    (saved,) = checkpoints(folder / "checkpoints")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == step_of(saved)
    assert not (tmp_path / "tiny" / "grpo-seed0").exists()
    study.stdout.close()
    study.stderr.close()


def within(happened: Callable[[], bool]) -> None:
    """Wait until something has happened in another process."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def unlocked(folder: Path) -> bool:
    try:
        return bool(RunLock.take(folder))
    except ValueError:
        return False


def test_the_seed_may_stand_in_any_setting(tmp_path: Path) -> None:
    text = TINY.replace("steps = 1", 'data_seed = "{seed}"').replace("tiny-maze", "bases/seed{seed}")
    runs = tiny_runs(tmp_path, text, seeds=[3, 4], labels=["vpo"])
    assert [(run.config.data_seed, run.config.model) for run in runs] == [(3, "bases/seed3"), (4, "bases/seed4")]


def test_a_study_and_a_method_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    for words, said in (
        (["none.toml"], "cannot read"),
        (["study.toml", "--methods", "ppo"], "has no method 'ppo': it has vpo, grpo"),
    ):
        assert main(["study", str(tmp_path / words[0]), *words[1:], "--runs-dir", str(tmp_path)]) == 2
        assert said in capsys.readouterr().err


def test_a_run_that_fails_is_named_with_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, TINY.replace('"tiny-maze"', '"no/such/model"'))
    assert main(["study", str(path), "--runs-dir", str(tmp_path), "--seeds", "0", "--methods", "grpo"]) == 2
    told = capsys.readouterr()
    assert "FAILED: grpo, seed 0" in told.out
    assert "cannot load the model 'no/such/model'" in told.out.splitlines()[-1]
    log = (tmp_path / "tiny" / "grpo-seed0.log").read_text(encoding="utf-8")
    assert "cannot load the model 'no/such/model'" in log


def test_a_run_made_with_other_settings_is_not_taken_for_one_of_the_study(tmp_path: Path) -> None:
    runs = tiny_runs(tmp_path)
    runs[0].folder.mkdir(parents=True)
    made = runs[0].config.model_copy(update={"learning_rate": 0.5}).grouped()
    (runs[0].folder / "config.json").write_text(json.dumps(made), encoding="utf-8")
    with pytest.raises(ValueError, match=r"has learning_rate=0\.5, but the study states 1e-06"):
        check_finished(runs)


def test_a_run_may_have_chosen_what_its_study_leaves_open(tmp_path: Path) -> None:
    run = tiny_runs(tmp_path)[0]
    run.folder.mkdir(parents=True)
    made = run.config.model_copy(update={"backend": "vllm", "importance_cap": 2.0}).grouped()
    (run.folder / "config.json").write_text(json.dumps(made), encoding="utf-8")
    check_finished([run])
    stated = replace(run, config=run.config.model_copy(update={"importance_cap": 5.0}))
    with pytest.raises(ValueError, match=r"has importance_cap=2\.0, but the study states 5\.0"):
        check_finished([stated])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "tiny"', "", "name: it is missing: vpo study --example shows a study file"),
        (
            'name = "tiny"',
            'name = "../up"',
            r"name='\.\./up' is invalid: use only letters, digits, _",
        ),
        ("seeds = [0, 1]", "seeds = []", r"seeds=\[\] is invalid: list should have at least 1 item"),
        ("seeds = [0, 1]", "seeds = [0, 1.5]", r"seeds\.1=1\.5 is invalid: input should be a valid integer"),
        ("seeds = [0, 1]", "seeds = [0, 1]\nsteps = 2", "steps: it is unknown: settings of runs stand under settings"),
        ("[[methods]]", "[[arms]]", r"study\.toml': arms: its name is methods now$"),
        ('baseline = "vpo"', 'baseline = "ppo"', "the baseline 'ppo' is none of the study's methods: vpo, grpo"),
        ('label = "grpo"', 'label = "vpo"', "two methods called 'vpo'"),
        ('label = "grpo"', 'label = "base-3"', "a method cannot be called 'base-3', which names the base"),
        ('label = "grpo"', 'label = "before"', "a method cannot be called 'before', which names the base"),
        ('name = "tiny"', f'name = "{"t" * 300}"', "is invalid: use only letters, digits, _, .* at most 100 of them"),
        (
            'label = "grpo"',
            'label = "vpo-part1"\nparts = [{}]\nsettings = {}\n[[methods]]\nlabel = "vpo-part1-part1"',
            "a part of 'vpo-part1' is called 'vpo-part1-part1': rename the method",
        ),
        ('method = "grpo"', 'method = "ppo"', "method 'grpo'.*unknown method 'ppo'"),
        ('method = "grpo"', 'method = "grpo", seed = 3', "method 'grpo': seed is decided by the study"),
        ("seeds = [0, 1]", "seeds = [-1]", r"seeds\.0=-1 is invalid: input should be greater than or equal to 0"),
        ("steps = 1", "steps = 1\nimports = 3", "the settings of the study: imports=3 is invalid"),
        (
            'method = "grpo"',
            'method = "grpo", imports = ["no.py"]',
            "method 'grpo': cannot import 'no.py': there is no",
        ),
        ("steps = 1", "stepz = 1", "the settings of the study: unknown setting 'stepz': did you mean steps"),
        ("steps = 1", "steps = -1", "the settings of the study: steps=-1 is invalid: it must be at least 1"),
        ("steps = 1", "steps = 1\nname = 'mine'", "the settings of the study: name is decided by the study"),
        ("[settings]", "[settings", "not valid toml"),
    ],
)
def test_a_bad_study_file_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    path = write(tmp_path, TINY.replace(old, new))
    assert main(["study", str(path), "--runs-dir", str(tmp_path / "runs")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line
    assert not (tmp_path / "runs").exists()


def test_the_file_may_name_what_a_module_on_the_command_line_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_REGISTRY", dict(backends._REGISTRY))
    module = tmp_path / "back.py"
    module.write_text(
        "from vpo_agent.rollouts.backends import register_backend\nregister_backend('of_a_study', lambda *_: None)\n"
    )
    planned = read_study(write(tmp_path, TINY.replace("steps = 1", "steps = 1\nbackend = 'of_a_study'")))
    runs = runs_of(planned, tmp_path / "runs", tmp_path / "results", imports=[str(module)])
    assert {run.config.backend for run in runs} == {"of_a_study"}
    assert all(run.config.imports == [str(module)] for run in runs)


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("--steps=5", "set steps in the study file, under settings for all runs, or under those of a method"),
        ("--learning-rate", "set learning_rate in the study file"),
        ("--method=vpo", "did you mean --methods?"),
        ("--methodz", "did you mean --methods?"),
        ("--arms", "its name is --methods now"),
        ("--frobnicate", "see --help for all of them"),
    ],
)
def test_a_setting_of_the_runs_is_refused_with_the_place_where_it_is_set(
    option: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", str(tmp_path / "none.toml"), option]) == 2
    assert capsys.readouterr().err.startswith(f"error: unknown argument {option!r}: {advice}")


TASKS = """
[[tasks]]
label = "small"
settings = { steps = 2 }
[[tasks]]
label = "smaller"
settings = { steps = 1 }
"""


def test_every_method_is_trained_on_every_task_and_one_page_compares_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, TINY.replace("[[methods]]", TASKS + "[[methods]]", 1))
    runs = runs_in(tmp_path, read_study(path))
    assert [(run.task, run.label, run.seed, run.config.steps) for run in runs] == [
        ("small", "vpo", 0, 2),
        ("small", "grpo", 0, 2),
        ("smaller", "vpo", 0, 1),
        ("smaller", "grpo", 0, 1),
        ("small", "vpo", 1, 2),
        ("smaller", "vpo", 1, 1),
    ]
    assert main(["study", str(path), "--runs-dir", str(tmp_path), "--tasks", "smaller", "--seeds", "0"]) == 0
    assert (tmp_path / "tiny" / "smaller" / "report" / "report.html").is_file()
    results = list((tmp_path / "tiny").rglob("results.json"))
    finished = [path.stat().st_mtime_ns for path in results]
    assert not (tmp_path / "tiny" / "small").exists()
    page = (tmp_path / "tiny" / "study.md").read_text()
    printed = capsys.readouterr().out
    assert re.search(r"\[2/2, \d+ min\] smaller, \w+, seed 0", printed)
    table = [line for line in printed.splitlines() if line.startswith("|")]
    assert "\n".join(table) in page
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert rows[0] == ["method", "smaller"]
    bases = ["base, 1 answer", "base, 3 answers"]
    assert [row[0] for row in rows[2:]] == [*bases, "vpo", "grpo", *(f"{one} − baseline" for one in (*bases, "grpo"))]
    assert main(["study", str(path), "--runs-dir", str(tmp_path), "--tasks", "smaller", "--seeds", "0"]) == 0
    assert "all runs are finished, so this is a report on them" in capsys.readouterr().out
    assert [path.stat().st_mtime_ns for path in results] == finished
    assert main(["study", str(path), "--runs-dir", str(tmp_path), "--tasks", "large"]) == 2
    assert "has no task 'large': it has small, smaller" in capsys.readouterr().err


def test_a_study_of_one_task_ends_with_a_verdict_and_the_page_to_play_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path)
    assert main(["study", str(path), "--runs-dir", str(tmp_path), "--seeds", "0"]) == 0
    printed = capsys.readouterr().out
    verdict = printed.split("\n\n")[1].splitlines()
    assert len(verdict) == 3
    assert verdict[0].startswith("Score of the best of 3 answers, averaged over random weightings, in whole responses")
    said = r"\((PASS|FAIL|INCONCLUSIVE)(: only .*?)?\)"
    for headline in verdict:
        duel, _, against_base = headline.partition(" The better base ")
        assert re.search(rf": grpo (is|does) .* vpo.* by .*: \S+ against \S+ {said}\.$", duel)
        assert re.match(rf"\(base, [13] answers?\) has \S+: vpo .* {said}, and grpo .* {said}\.$", against_base)
    page = (tmp_path / "tiny" / "explore.html").read_text(encoding="utf-8")
    assert all(f'"{name}"' in page for name in ("vpo", "grpo"))
    assert re.search(r'"base \([13] answers?\)"', page)


def reported(printed: str) -> list[str]:
    """The lines of a study's output that state results."""
    return [line for line in printed.splitlines() if line.startswith("|") or re.search("PASS|FAIL|INCONCLUSIVE", line)]


def test_a_run_leaves_a_small_file_from_which_another_machine_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, TINY.replace("eval_answers = 3", "eval_answers = 3\neval_every = 1"))
    command = ["study", str(path), "--seeds", "0", "--runs-dir"]
    assert main([*command, str(tmp_path / "here")]) == 0
    said = reported(capsys.readouterr().out)
    data = tmp_path / "results" / "tiny"
    names = {"base-1-seed0.npz", "base-3-seed0.npz", "grpo-seed0.npz", "vpo-seed0.npz"}
    assert {file.name for file in data.iterdir()} == names
    here = tmp_path / "here" / "tiny"
    for kept, whole in (
        ("vpo-seed0", "vpo-seed0/pool_after"),
        ("base-3-seed0", "vpo-seed0/pool_before"),
        ("base-1-seed0", "grpo-seed0/pool_before"),
    ):
        pool, original = Pool.load(data / f"{kept}.npz"), Pool.load(here / f"{whole}.npz")
        assert pool.responses is None
        assert pool.tasks == original.tasks
        for name in ("rewards", "status", "tokens", "active", "scalar_weights"):
            np.testing.assert_array_equal(getattr(pool, name), getattr(original, name))
    rows = [json.loads(line) for line in (here / "vpo-seed0" / "metrics.jsonl").read_text().splitlines()]
    training = read_training(data / "vpo-seed0.npz")
    (step,) = [row for row in rows if row["kind"] == "train"]
    assert training["tokens"] == round(step["response_tokens"] * 2 * 2)
    assert training["evaluations"]["diversity"] == [row["diversity"] for row in rows if row["kind"] == "eval"]
    assert training["inputs"] == json.loads((here / "vpo-seed0" / "inputs.json").read_text())["inputs"]
    assert "the model tiny-maze" in training["inputs"]
    assert training["settings"]["eval_prompts"] == 2
    assert not {"name", "runs_dir"} & training["settings"].keys()

    there = [*command, str(tmp_path / "there")]
    assert main(there) == 0
    assert reported(capsys.readouterr().out) == said
    assert not list((tmp_path / "there").rglob("results.json")), "nothing is run again"
    (data / "grpo-seed0.npz").unlink()
    assert main(there) == 0
    assert reported(capsys.readouterr().out) == said
    assert [file.parent.name for file in (tmp_path / "there").rglob("results.json")] == ["grpo-seed0"]

    write(tmp_path, TINY.replace("steps = 1", "steps = 2"))
    assert main(there) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "grpo-seed0' has steps=1, but the study states 2" in line or "vpo-seed0.npz' has steps=1" in line


def test_a_finished_run_that_left_no_file_leaves_it_later(tmp_path: Path) -> None:
    command = ["study", str(write(tmp_path)), "--runs-dir", str(tmp_path), "--seeds", "0", "--methods", "grpo"]
    assert main(command) == 0
    files = sorted((tmp_path / "results" / "tiny").iterdir())
    before = {file: Pool.load(file).rewards for file in files}
    for file in files:
        file.unlink()
    assert main([*command, "--report-only"]) == 0
    for file, rewards in before.items():
        np.testing.assert_array_equal(Pool.load(file).rewards, rewards)
