"""The examples run from the command line as a user would run them."""

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest
from paths import ROOT
from PIL import Image
from processes import run_python

from vpo_agent.command.options import parse_job
from vpo_agent.presets import TASKS

EXAMPLES = ROOT / "examples"


WITHOUT_FIGURES = """
import runpy, sys
from matplotlib.figure import Figure
from PIL import Image

Figure.savefig = lambda figure, path, **_: Image.new("RGB", (1, 1)).save(path, "PNG")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script, and writes one pixel for each figure: they take most of the time of a short run."""


def run_example(name: str, *options: str, cwd: Path, figures: bool = False) -> subprocess.CompletedProcess[str]:
    return run_python([*([] if figures else ["-c", WITHOUT_FIGURES]), str(EXAMPLES / name), *options], cwd=cwd)


@pytest.mark.parametrize("script", ["train_maze.py", "train_pretrained.py", "train_trl.py"])
def test_a_transformers_that_is_too_old_is_one_sentence(script: str, tmp_path: Path) -> None:
    if script == "train_trl.py":
        pytest.importorskip("trl", reason="needs the trl extra, which the dev extra installs")
    # A package that comes first on the path, with as little as an old release has, stands for what is installed.
    (tmp_path / "transformers").mkdir()
    names = ("AutoModelForCausalLM", "AutoTokenizer", "DynamicCache", "PreTrainedModel", "PreTrainedTokenizerBase")
    (tmp_path / "transformers" / "__init__.py").write_text("".join(f"class {name}: ...\n" for name in names))
    about = tmp_path / "transformers-4.40.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.40.0\n")
    # In the forked process, all that knows of transformers is forgotten and imported again.
    again = (
        "import runpy, sys\n"
        "for name in list(sys.modules):\n"
        "    if name.partition('.')[0] in ('accelerate', 'peft', 'transformers', 'trl', 'vpo_agent', 'vpo_envs'):\n"
        "        del sys.modules[name]\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "del sys.argv[0]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = run_python(["-c", again, str(EXAMPLES / script), "--steps", "1"], cwd=tmp_path)
    assert done.returncode == 2
    sentence = "vpo-gym needs transformers>=5, but version 4.40.0 is installed: pip install 'transformers>=5'"
    assert done.stderr == f"error: {sentence}\n"
    assert not (tmp_path / "runs").exists()


SHORT = ["--steps", "2", "--prompts-per-step", "2", "--minibatch-prompts", "2", "--rollouts-per-prompt", "2"]
TINY = ["--model", "tiny-maze", "--max-new-tokens", "8", "--eval-prompts", "2", "--eval-answers", "3"]
ALONE = ["--eval-every", "0", "--name", "two"]


@pytest.mark.parametrize(
    ("script", "env", "options"),
    [
        ("train_musique.py", "vpo/MuSiQue-v0", [*SHORT, "--eval-prompts", "10"]),
        ("train_eureqa.py", "vpo/EUREQA-v0", [*SHORT, "--eval-prompts", "10"]),
        ("train_tools.py", "vpo/Tools-v0", [*SHORT, "--eval-prompts", "10"]),
        ("train_personas.py", "vpo/Personas-v0", [*SHORT, *TINY]),
        ("train_countdown.py", "vpo/Countdown-v0", [*SHORT, "--eval-prompts", "10"]),
        ("train_code.py", "vpo/Code-v0", [*SHORT, "--eval-prompts", "10"]),
        ("train_maze.py", "vpo/Maze-v0", [*SHORT, "--eval-prompts", "10"]),
    ],
)
def test_every_task_trains_for_two_steps(script: str, env: str, options: list[str], tmp_path: Path) -> None:
    done = run_example(script, *options, *ALONE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "two"
    assert json.loads((folder / "config.json").read_text())["run"]["env"] == env
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
    assert "| best@1 ↑ |" in done.stdout
    if "tiny-maze" not in options:  # The bundled models of these tasks are competent and diverse.
        base = {row["measure"]: row["before"] for row in json.loads((folder / "results.json").read_text())["measures"]}
        assert base["answers unreadable"] <= 0.05
        assert base["pool utility"] >= 0.9 * (base["pool utility"] + base["pool regret"])


@pytest.mark.parametrize("source", ["builtin", "whole:rows.jsonl"])
def test_word_problems_train_for_two_steps(source: str, tmp_path: Path) -> None:
    rows = [
        {
            "question": f"{boxes} boxes hold 6 pens each. Ann takes 2 pens. How many are left?",
            "answer": f"<<{boxes}*6={6 * boxes}>>, so <<{6 * boxes}-2={6 * boxes - 2}>>.\n#### {6 * boxes - 2}",
        }
        for boxes in range(2, 12)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    kwargs = ["--env-kwargs", json.dumps({"source": source})]
    done = run_example("train_gsm8k.py", *kwargs, *SHORT, *TINY, *ALONE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for objective in ("step_1", "final", "brevity"):
        assert f"| {objective} ↑ |" in done.stdout


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("train_*.py")))
def test_every_preset_is_read(script: str) -> None:
    tasks = re.findall(r'train_script\(__doc__, TASKS\["(.+?)"\]\)', (EXAMPLES / script).read_text())
    presets = TASKS[tasks[0]] if tasks else runpy.run_path(str(EXAMPLES / script))["PRESETS"]
    for name in presets:
        job = parse_job(["--preset", name], description="", presets=presets)
        assert job.config.env == presets[name]["env"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--method", "ppo"], "ppo"),
        (["--env", "vpo/Labyrinth-v0"], "vpo/Labyrinth-v0"),
        (["--scalar-weights", "1,1"], "needs? 3 values|need 3 values"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_written(options: list[str], named: str, tmp_path: Path) -> None:
    done = run_example("train_maze.py", *options, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert re.search(named, last), last
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_custom_rewards_trains_on_its_objectives(tmp_path: Path) -> None:
    short = ["--steps", "1", "--prompts-per-step", "2", "--eval-prompts", "2", "--name", "own"]
    done = run_example("custom_rewards.py", *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "| brevity ↑ |" in done.stdout
    assert "| regret ↓ |" in done.stdout
    sampled = ["--eval-prompts", "2", "--k", "3", "--out", "eval", "--import", str(EXAMPLES / "custom_rewards.py")]
    again = run_python(["-m", "vpo_agent.command", "eval", "runs/own", *sampled], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "| brevity" in again.stdout


def test_show_routes_draws_the_answers_of_a_run(tmp_path: Path) -> None:
    short = ["--steps", "1", "--prompts-per-step", "2", "--eval-prompts", "2", "--eval-every", "0", "--name", "run"]
    assert run_example("train_maze.py", *short, cwd=tmp_path).returncode == 0
    done = run_example("show_routes.py", "runs/run", "--mazes", "2", cwd=tmp_path, figures=True)
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "routes.png") as picture:
        assert picture.width > picture.height > 100
