"""The command line: every setting is an option, and later sources win."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from processes import run_python

from vpo_agent.command import main
from vpo_agent.command.options import parse_job
from vpo_agent.command.parser import run_script
from vpo_agent.config import Job, TrainConfig, make_config
from vpo_agent.errors import TrainingDiverged
from vpo_agent.estimators.choices import BUILT_IN
from vpo_agent.presets import ALL, TASKS

PRESETS: dict[str, dict[str, Any]] = {
    "small": {"steps": 5, "env_kwargs": {"preset": "paper"}},
    "large": {"steps": 500, "rollouts_per_prompt": 16},
}


def parse(*argv: str) -> Job:
    return parse_job(list(argv), description="A job.", presets=PRESETS)


OPTIONS = {"imports": "--import", "method_options": "--method-option"}
"""Options that are repeated, and so not called as their setting."""


@pytest.fixture(scope="module")
def help_text() -> str:
    """What --help prints, with the line breaks of one option taken out."""
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as done:
        parse("--help")
    assert done.value.code == 0
    return "\n".join(" ".join(entry.split()) for entry in re.split(r"\n(?=  -|\S|\n)", out.getvalue()))


def without_blanks(text: str) -> str:
    """Lines are broken at hyphens as well."""
    return "".join(text.split())


@pytest.mark.parametrize("name", TrainConfig.model_fields)
def test_help_shows_the_setting_with_its_meaning_and_default(help_text: str, name: str) -> None:
    field = TrainConfig.model_fields[name]
    option = OPTIONS.get(name, "--" + name.replace("_", "-"))
    line = next(line for line in help_text.splitlines() if line.split()[:1] == [option])
    if name in OPTIONS:
        assert "may be repeated" in line
        return
    assert without_blanks(str(field.description)) in without_blanks(line)
    default = PRESETS["small"].get(name, field.get_default(call_default_factory=True))
    shown = "none" if default is None else json.dumps(default) if isinstance(default, dict | bool) else str(default)
    assert without_blanks(line).endswith(without_blanks(f"(default: {shown})"))


def test_help_shows_what_is_no_setting(help_text: str) -> None:
    for option in ("--preset", "--config", "--resume", "--overwrite", "A job.", "small, large"):
        assert option in help_text
    for group in ("run", "method", "sampling", "optimisation", "evaluation", "hardware"):
        assert f"\n{group}: " in help_text


def test_a_wrong_setting_is_refused_before_torch_is_loaded() -> None:
    wrong = [
        (["train", "--stps", "3"], "did you mean --steps?"),
        (["train", "--method", "vpoo"], "unknown method 'vpoo': did you mean vpo?"),
        (["train", "--env", "vpo/Mazze-v0"], "unknown environment 'vpo/Mazze-v0': did you mean vpo/Maze-v0?"),
        (["plan", "--memory", "80GB", "--steps", "x"], "steps='x' is invalid"),
        (["warm-start", "--out", "new", "--env", "vpo/Maze-v0", "--batch", "x"], "batch='x' is invalid"),
    ]
    code = (
        "import sys; from vpo_agent.command import main; "
        f"assert all(main(argv) == 2 for argv, _ in {wrong}); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for (_, said), line in zip(wrong, done.stderr.splitlines(), strict=True):
        assert said in line


def test_the_names_known_without_torch_are_those_of_the_registry() -> None:
    program = "from vpo_agent import available_estimators; from vpo_agent.estimators import estimator; "
    code = f"{program}print({{name: estimator(name).answers for name in available_estimators()}})"
    done = run_python(["-c", code])
    assert list(ast.literal_eval(done.stdout).items()) == list(BUILT_IN.items()), done.stderr


@pytest.mark.parametrize(
    ("option", "value", "name", "expected"),
    [
        ("--steps", "9", "steps", 9),
        ("--learning-rate", "3e-4", "learning_rate", 3e-4),
        ("--num-answers", "none", "num_answers", None),
        ("--num-answers", "2", "num_answers", 2),
        ("--scalar-weights", "1,0,0.5", "scalar_weights", [1.0, 0.0, 0.5]),
        ("--scalar-weights", "[1, 2]", "scalar_weights", [1.0, 2.0]),
        ("--scalar-weights", "None", "scalar_weights", None),
        ("--env-kwargs", '{"preset": "paper", "data_seed": 3}', "env_kwargs", {"preset": "paper", "data_seed": 3}),
        ("--method-option", "beta=8", "method_options", {"beta": 8}),
        ("--method-option", "baseline=others", "method_options", {"baseline": "others"}),
        ("--microbatch-prompts", "4", "microbatch_prompts", 4),
        ("--microbatch-prompts", "auto", "microbatch_prompts", "auto"),
        ("--gradient-checkpointing", "true", "gradient_checkpointing", True),
        ("--gradient-checkpointing", "False", "gradient_checkpointing", False),
        ("--runs-dir", "/somewhere/else", "runs_dir", Path("/somewhere/else")),
        ("--model", "none", "model", "none"),
        ("--name", "none", "name", None),
    ],
)
def test_values_are_read(option: str, value: str, name: str, expected: object) -> None:
    assert getattr(parse(option, value).config, name) == expected


def test_a_switch_may_stand_alone() -> None:
    assert parse("--gradient-checkpointing", "--steps", "2").config.gradient_checkpointing is True


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--preset", "huge"], r"unknown preset 'huge': choose one of small, large"),
        (["--preset", "smal"], r"unknown preset 'smal': did you mean small\? choose one of small, large"),
        (["--method", "vop"], r"unknown method 'vop': did you mean vpo\? choose one of vpo,"),
        (["--lerning-rate", "1"], r"unknown argument '--lerning-rate': did you mean --learning-rate\?"),
        (["--frobnicate=1"], r"unknown argument '--frobnicate=1': see --help"),
        (["--steps"], r"--steps: expected one argument; see --help"),
        (["--steps", "few"], r"steps='few' is invalid"),
        (["--env-kwargs", "preset=paper"], r"--env-kwargs must be a JSON object, got 'preset=paper'"),
        (
            ["--scalar-weights", "one,two"],
            r"--scalar-weights must be numbers separated by commas, such as 1,3; got 'one,two'",
        ),
        (["--num-answers", "1,x"], r"--num-answers must be numbers separated by commas, such as 1,3; got '1,x'"),
        (["--method-option", "beta"], r"--method-option must be NAME=VALUE, such as beta=8, got 'beta'"),
        (["--import", "no_such_module"], r"cannot import 'no_such_module': ModuleNotFoundError"),
        (["--gradient-checkpointing", "perhaps"], r"gradient_checkpointing='perhaps' is invalid"),
        (["--resume", "--overwrite"], r"are mutually exclusive"),
        (["--resume", "--name", "gone"], r"there is no run to resume in 'runs/gone': give another --name"),
        (["--config", "gone.json"], r"cannot read 'gone.json'"),
    ],
)
def test_bad_options_are_named_in_one_line(
    argv: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("steps = '7'", ["--seed", "1"], r"mine.toml': steps='7' is invalid"),
        ("seed = -1", ["--steps", "1"], r"mine.toml': seed=-1 is invalid: it must be at least 0"),
        ("num_weights = 100", [], r"mine.toml': num_weights must be a power of two"),
        ("minibatch_prompts = 'lots'", ["--prompts-per-step", "8"], r"mine.toml': minibatch_prompts='lots' is invalid"),
    ],
)
def test_a_bad_value_in_a_file_names_the_file(tmp_path: Path, text: str, options: list[str], message: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        parse("--config", str(tmp_path / "mine.toml"), *options)


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("rollouts_per_prompt = 4\nseed = 8\n")
    plain = TrainConfig()
    assert parse().config == make_config(PRESETS["small"])
    config = parse("--preset", "large", "--config", str(file), "--seed", "9").config
    assert config.steps == 500, "from the preset"
    assert config.rollouts_per_prompt == 4, "the file over the preset"
    assert config.seed == 9, "the option over the file"
    assert config.learning_rate == plain.learning_rate, "the default"
    assert parse("--config", str(file)).config.steps == 5, "the default preset lies under a file as well"


def test_the_config_of_a_run_makes_the_same_config_again(tmp_path: Path) -> None:
    config = parse("--preset", "large", "--alpha", "0.5", "--scalar-weights", "1,0,0,0", "--name", "first").config
    file = tmp_path / "config.json"
    file.write_text(config.model_dump_json(indent=2))
    assert parse("--config", str(file)).config == config


def test_resuming_takes_the_settings_of_the_run(tmp_path: Path) -> None:
    first = parse("--preset", "large", "--alpha", "0.5", "--runs-dir", str(tmp_path), "--name", "mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(first.config.model_dump_json())
    again = parse("--resume", "--runs-dir", str(tmp_path), "--name", "mine", "--steps", "600")
    assert again.resume
    assert again.config == first.config.model_copy(update={"steps": 600})


def test_a_module_that_has_moved_is_named_anew_on_resume(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    saved = make_config({"name": "mine", "imports": [str(tmp_path / "gone.py"), "json"]})
    (tmp_path / "mine" / "config.json").write_text(json.dumps(saved.grouped()))
    new = tmp_path / "moved_here.py"
    new.write_text("")
    job = parse("--resume", "--runs-dir", str(tmp_path), "--name", "mine", "--import", str(new))
    assert job.config.imports == ["json", str(new)]


def test_what_follows_from_a_search_budget_follows_another_one(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(parse("--search-budget", "18", "--rollouts-per-prompt", "16").config.grouped()))
    fresh = parse("--search-budget", "24", "--rollouts-per-prompt", "16").config
    assert parse("--config", str(file), "--search-budget", "24").config == fresh
    assert parse("--config", str(file), "--search-budget", "1").config.method == "grpo"
    assert parse("--config", str(file), "--search-budget", "none").config == parse("--rollouts-per-prompt", "16").config
    again = parse("--config", str(file), "--rollouts-per-prompt", "4").config
    assert again == parse("--search-budget", "18", "--rollouts-per-prompt", "4").config


def test_method_options_are_added_up_and_belong_to_their_method(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("method = 'vpo_pool'\nmethod_options = {baseline = 'group'}\n")
    more = parse("--config", str(file), "--method-option", "k=2", "--method-option", "baseline=others")
    assert more.config.method_options == {"baseline": "others", "k": 2}
    assert parse("--config", str(file), "--method", "vpo").config.method_options == {}


def test_the_minibatch_follows_the_batch_unless_it_is_set() -> None:
    presets = {"paper": {"prompts_per_step": 128, "minibatch_prompts": 64}}

    def minibatch(*argv: str) -> int | None:
        return parse_job(list(argv), description="", presets=presets).config.minibatch_prompts

    assert minibatch() == 64
    assert minibatch("--prompts-per-step", "32") == 16
    assert minibatch("--prompts-per-step", "1") == 1
    assert minibatch("--prompts-per-step", "32", "--minibatch-prompts", "4") == 4
    with pytest.raises(ValueError, match="minibatch_prompts is 64, but a step has only 2 prompts"):
        minibatch("--prompts-per-step", "2", "--minibatch-prompts", "64")


def test_the_default_preset_is_left_out_for_another_environment() -> None:
    presets = {"maze": {"env": "vpo/Maze-v0", "env_kwargs": {"preset": "paper"}, "steps": 5}}

    def job(*argv: str) -> TrainConfig:
        return parse_job(list(argv), description="", presets=presets).config

    assert job("--env", "vpo/Maze-v0").steps == 5
    assert job("--env", "vpo/Tools-v0") == make_config({"env": "vpo/Tools-v0"})
    assert job("--env", "own/Maze-v0", "--preset", "maze").env_kwargs == {"preset": "paper"}


def test_the_bare_command_trains_what_make_maze_trains() -> None:
    bare = parse_job([], description="", presets=ALL).config
    assert bare == make_config(TASKS["maze"]["compact"])


@pytest.mark.usefixtures("own_registry")
def test_modules_are_imported_before_the_settings_are_checked_and_remembered(tmp_path: Path) -> None:
    module = tmp_path / "own_estimator.py"
    module.write_text(
        "from vpo_agent.estimators import Advantages, register_estimator\n"
        "@register_estimator('own_method', answers='set')\n"
        "def own(groups):\n    'Nothing.'\n    return Advantages(groups.rewards, groups.rewards)\n"
    )
    config = parse("--import", str(module), "--method", "own_method").config
    assert config.imports == [str(module)]
    assert config.max_answers == 3


@pytest.mark.usefixtures("own_registry")
def test_a_settings_file_imports_the_method_that_it_names_as_a_run_of_a_study_does(tmp_path: Path) -> None:
    module, settings = tmp_path / "own_estimator_of_a_file.py", tmp_path / "settings.json"
    module.write_text(
        "from vpo_agent.estimators import Advantages, register_estimator\n"
        "@register_estimator('method_of_a_file', answers='single')\n"
        "def own(groups):\n    'Nothing.'\n    return Advantages(groups.rewards, groups.rewards)\n"
    )
    settings.write_text(json.dumps({"imports": [str(module)], "method": "method_of_a_file"}))
    assert parse("--config", str(settings)).config.max_answers == 1


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (ValueError("no such thing"), 2, "error: no such thing\n"),
        (TrainingDiverged("three in a row"), 1, "error: three in a row\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (KeyboardInterrupt("continue with: vpo train"), 130, "stopped; continue with: vpo train\n"),
    ],
)
def test_errors_of_the_user_are_one_line_and_a_status(
    error: BaseException, code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as done:
        run_script(main)
    assert done.value.code == code
    assert capsys.readouterr().err == shown


def test_other_errors_keep_their_traceback() -> None:
    def main() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_script(main)


@pytest.mark.parametrize("name", ["envs", "play", "check", "new", "train", "warm-start", "plan", "serve"])
def test_help_is_no_error_and_says_what_the_command_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    printed, errors = capsys.readouterr()
    assert not ended.value.code
    assert not errors
    about = printed.partition("\n\n")[2].partition("\n\n")[0]
    assert about.rstrip().endswith("."), "no description"


def test_help_of_a_setting_shows_the_kind_of_its_value(help_text: str) -> None:
    assert "VALUE" not in help_text.replace("NAME=VALUE", "").replace("SETTING VALUE", "")
    for shown in ("--steps N ", "--alpha NUMBER", "--schedule {constant,linear,cosine}", "--sample-batch {N,auto}"):
        assert shown in help_text
