"""The console command: what it prints, and what it says when it cannot."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import gymnasium as gym
import pytest
import toys
from paths import ROOT

import vpo_envs
from vpo_agent.command import main
from vpo_agent.command.play import read_block
from vpo_agent.command.show import show_objectives
from vpo_envs.common.wording import cut
from vpo_envs.registration import make_text_env, text_env_ids
from vpo_envs.text import Call, answer_tags

VECTOR = re.compile(r"^(ok|unparsable \(.+\)): (.+)$", flags=re.MULTILINE)
PROCESSES = 60
"""Seconds that a process may take."""


def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, *argv: str) -> str:
    """What ``vpo play vpo/Maze-v0`` prints for what is typed."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["play", "vpo/Maze-v0", "--seed", "3", *argv]) == 0
    return capsys.readouterr().out


def test_the_command_runs_in_a_process_of_its_own_with_piped_input() -> None:
    command = [sys.executable, "-m", "vpo_agent.command", "play", "vpo/Maze-v0", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, input="DOWN\n", capture_output=True, encoding="utf-8", timeout=PROCESSES)
    assert done.returncode == 0, done.stderr
    assert "answer 1: ok (not at the exit after 1 of " in done.stdout


def test_the_name_alone_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: vpo ")
    assert "list the environments" in out


def test_the_list_of_environments_leaves_torch_alone() -> None:
    script = "import sys; from vpo_agent.command import main; main(['envs']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PROCESSES)
    assert done.returncode == 0, done.stderr
    assert "vpo/Maze-v0" in done.stdout


def test_the_package_installs_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["vpo"] == "vpo_agent.command:main"


def test_each_environment_is_listed_with_its_task_and_its_objectives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0
    lines = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    listed = {env_id: (task, objectives) for (env_id, task), (_, objectives) in pairs}
    assert set(listed) == {*text_env_ids(), "vpo/MazeSteps-v0"}
    maze = "Find routes through a maze that make different trade-offs between gold, diamonds and lava."
    assert listed["vpo/Maze-v0"] == (maze, "completion, gold, diamond, avoid_lava")
    assert listed["vpo/MazeSteps-v0"][1] == "completion, gold, diamond, avoid_lava (one action per step, not text)"


def test_a_row_of_a_data_set_is_shown_that_the_environment_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["envs", "vpo/GSM8K-v0", "--row"]) == 0
    (tmp_path / "rows.jsonl").write_text(capsys.readouterr().out)
    env = make_text_env("vpo/GSM8K-v0", source=f"whole:{tmp_path / 'rows.jsonl'}")
    assert env.task(0).model_dump()["final"] == "36"
    assert main(["envs", "vpo/Maze-v0", "--row"]) == 2
    assert (
        "--row needs the id of an environment that reads a data set: one of vpo/Archive-v0, " in capsys.readouterr().err
    )


@pytest.mark.parametrize("task", ["Maze", "MuSiQue", "EUREQA", "Tools", "Personas"])
def test_the_good_answer_earns_more_than_the_poor_one(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", f"vpo/{task}-v0", "--index", "7"]) == 0
    (good_status, good), (_, poor) = VECTOR.findall(capsys.readouterr().out)
    assert good_status == "ok"
    values = [[float(entry.split()[-1]) for entry in vector.split(", ")] for vector in (good, poor)]
    assert sum(values[0]) > sum(values[1])


def test_the_calls_of_a_poor_answer_get_the_replies_of_the_task_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "vpo/Archive-v0"]) == 0
    env = gym.make("vpo/Archive-v0").unwrapped
    _, _, poor = capsys.readouterr().out.rpartition("a poor answer")
    calls = re.findall(r"<open>(.*)</open>", poor)
    assert calls
    replies = [env.reply(env.task(0), [Call("open", title)]) for title in calls]
    assert re.findall(r"<reply>(.*)</reply>", poor) == replies


def test_a_long_prompt_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "vpo/MuSiQue-v0"]) == 0
    env = gym.make("vpo/MuSiQue-v0").unwrapped
    prompt, _ = env.reset(options={"index": 0})
    assert len(prompt) > 2000
    assert prompt in capsys.readouterr().out


OWN = """
import vpo_envs
class Own(vpo_envs.MazeEnv):
    objectives = vpo_envs.MazeEnv.objectives[:2]
vpo_envs.register_env("own/Maze-v0", f"{__name__}:Own")
"""


def test_an_id_that_a_module_does_not_register_is_answered_with_those_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_maze_listed.py").write_text(OWN.replace("own/Maze-v0", "own/Listed-v0"))
    for module in ("own_maze_listed.py", "own_maze_listed"):
        assert main(["envs", f"{module}:own/Lost-v0"]) == 2
        said = capsys.readouterr().err
        assert said == f"error: unknown environment '{module}:own/Lost-v0': {module} registers own/Listed-v0\n"


@pytest.mark.parametrize("module", ["no_such_module", "no_such_file.py"])
def test_a_module_that_cannot_be_imported_is_not_answered_with_an_environment(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["envs", f"{module}:vpo/Maze-v0"]) == 2
    said = capsys.readouterr().err
    assert f"cannot import '{module}': " in said
    assert "did you mean" not in said
    assert "vpo/Tools-v0" not in said


@pytest.mark.parametrize("named", ["{folder}/own_maze_{how}.py:own/Maze-v0", "own_maze_{how}:own/Maze-v0", "--import"])
def test_an_environment_of_ones_own_is_shown_and_played(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    gym.registry.pop("own/Maze-v0", None)
    how = str(abs(hash(named)))
    (tmp_path / f"own_maze_{how}.py").write_text(OWN)
    env_id = named.format(folder=tmp_path, how=how)
    name = ["own/Maze-v0", "--import", f"own_maze_{how}.py"] if named == "--import" else [env_id]
    assert main(["envs", *name]) == 0
    assert "completion 1, gold" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO("DOWN\n"))
    assert main(["play", *name, "--seed", "3"]) == 0
    assert re.search(
        r"answer 1: ok \(not at the exit after 1 of \d+ steps\): completion 0, gold 0\n", capsys.readouterr().out
    )


def test_an_environment_of_single_moves_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "vpo/MazeSteps-v0", "--index", "3"]) == 0
    out = capsys.readouterr().out
    assert "action: Discrete(4)" in out
    assert "reward: a vector of completion, gold, diamond, avoid_lava" in out
    assert "S start, E exit" in out
    assert out.startswith("vpo/MazeSteps-v0: Walk through the maze of vpo/Maze-v0 one move at a time.\n")
    assert "route" not in out


def test_an_environment_is_shown_with_the_arguments_that_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "vpo/Tools-v0", "--env-kwargs", '{"preset": "conflict"}']) == 0
    printed = capsys.readouterr().out
    assert "request_1" in printed
    assert "gain from a set 1.21" in printed
    assert "gain from the vector 1.13" in printed


def test_untagged_answers_are_scored_and_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = play(monkeypatch, capsys, "LEFT,\nLEFT\n\nnowhere\n", "--num-answers", "2")
    assert re.search(r"^answer 1: ok \(not at the exit after 2 of \d+ steps\): completion 0", out, flags=re.MULTILINE)
    assert re.search(r"^answer 2: unparsable \('nowhere' is not one of", out, flags=re.MULTILINE)
    assert "route 1: no exit in 2 of " in out


def test_an_answer_of_the_front_earns_what_the_front_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = vpo_envs.MazeEnv()
    env.reset(seed=3)
    answers = [point.answer for point in env.front(env.current_task)]
    out = play(monkeypatch, capsys, "\n\n".join(answers), "--num-answers", str(len(answers)))
    earned = re.findall(r"^answer \d: ok: (.+)$", out, flags=re.MULTILINE)
    front = re.findall(r"^  (completion .+)$", out, flags=re.MULTILINE)
    assert earned == front
    assert len(earned) == len(answers)


def test_reward_models_score_what_is_typed_or_say_that_one_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models = {"models": {"kind": toys.save_reward_model(tmp_path)}}
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello there"))
    assert main(["play", "vpo/RewardModels-v0", "--env-kwargs", json.dumps(models)]) == 0
    assert re.search(r"^answer 1: ok: kind [01]", capsys.readouterr().out, flags=re.MULTILINE)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello there"))
    assert main(["play", "vpo/RewardModels-v0"]) == 2
    out, error = capsys.readouterr()
    assert not out, "the prompt is shown, and only the answer is refused"
    assert "nothing to score with: name reward models" in error
    assert """--env-kwargs '{"models": {""" in error
    assert error.count("\n") == 1


TAGGED = "<answer_1>U</answer_1>\n\n<answer_2>\nU\n\n</answer_2>\n"
ASKED = "Your answer (its tags may be left out), then an empty line; or Ctrl-D to end:\n"
TOGETHER = {"answer 1: ok": 1, "no exit in 3 of ": 1}


@pytest.mark.parametrize(
    ("typed", "options", "counts"),
    [
        (TAGGED, "--num-answers 2", {"answer 1: ok": 1, "answer 2: duplicate": 1}),
        (
            "<answer_1>U</answer_1>\n<answer_2>D</answer_2>\n",
            "--num-answers 2",
            {"Answer 2 of 2": 0, "answer 2: ok": 1},
        ),
        ("\n\nLLU\n", "", {ASKED: 4, "answer 1: ok": 1, "answer 2": 0}),
        *((moves, "", TOGETHER) for moves in ("LLU", "L L U", "L, LEFT,U")),
    ],
)
def test_what_is_typed_is_read_as_answers_and_empty_lines(
    typed: str,
    options: str,
    counts: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = play(monkeypatch, capsys, typed, *options.split())
    assert {text: out.count(text) for text in counts} == counts


def best_answer() -> tuple[str, float]:
    """The best answer to the maze of :func:`play`, and the mean of its objectives."""
    env = vpo_envs.MazeEnv()
    env.reset(seed=3)
    best = max(env.front(env.current_task), key=lambda point: sum(point.vector))
    return best.answer, sum(best.vector) / 4


def test_a_second_try_is_scored_against_the_optimum(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, optimum = best_answer()
    out = play(monkeypatch, capsys, f"DDD\n\n\n{answer}\n")
    scores = re.findall(r"^Best scalar reward so far, the mean of the objectives: (.+)$", out, flags=re.MULTILINE)
    most = f"of at most {optimum:.2f}"
    assert scores == [f"0.00 {most}, 0%.", f"{optimum:.2f} {most}, 100%. There is no better answer!"]
    assert "answer 2: ok: completion 1" in out
    assert out.index("A best answer:") > out.index("answer 2"), "the best route is drawn only at the end"


def test_a_closed_standard_input_shows_the_task_and_its_solution(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["play", "vpo/Maze-v0", "--seed", "3"]) == 0
    assert best_answer()[0] in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [one for one in text_env_ids() if one != "vpo/RewardModels-v0"])
def test_every_environment_is_played_to_its_best_answer(
    env_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("no answer at all\n\nanother\n"))
    assert main(["play", env_id, "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert "answer 2: " in out
    assert "The exact front, " in out
    assert re.search(r"^Best scalar reward so far, .+ of at most ", out, flags=re.MULTILINE)


def test_play_tells_results_between_attempts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kwargs = {"preset": "compact", "refine": True}
    monkeypatch.setattr(sys, "stdin", io.StringIO("reverse\n\n<answer_2>sort double</answer_2>\n\nsort\n\n"))
    env = make_text_env("vpo/Programs-v0", **kwargs, num_answers=3)
    env.reset(seed=3)
    command = ["play", "vpo/Programs-v0", "--seed", "3", "--num-answers", "3", "--env-kwargs", json.dumps(kwargs)]
    assert main(command) == 0
    out = capsys.readouterr().out
    first, second = (str(env.feedback(env.current_task, program)) for program in ("reverse", "sort double"))
    assert out.index(first) < out.index(second) < out.index("answer 1: ok")
    assert "a call such as" not in out
    assert "answer 3: ok" in out


def test_play_says_why_an_expression_earns_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("999 + 1000\n"))
    assert main(["play", "vpo/Countdown-v0", "--seed", "1"]) == 0
    assert "answer 1: ok (not given): hit_1 0," in capsys.readouterr().out


def test_a_terminal_gets_colour(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[33;1mG\x1b[0m" in play(monkeypatch, capsys, "DDR\n")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in play(monkeypatch, capsys, "DDR\n")


@pytest.mark.parametrize(
    ("typed", "block"),
    [
        ("a\nb\n\nc\n", "a\nb"),
        ("\n  \na\nb\n\nc\n", "a\nb"),
        ("```python\na\n\nb\n```\n\nc\n", "```python\na\n\nb\n```"),
        ("<answer>a\n\nb</answer>\n\nc\n", "<answer>a\n\nb</answer>"),
        ("a", "a"),
    ],
)
def test_a_block_ends_at_an_empty_line_outside_fences_and_tags(typed: str, block: str) -> None:
    assert read_block(io.StringIO(typed), answer_tags(1), "Your answer:") == block


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["envs", "vpo/Labyrinth-v0"], "unknown environment 'vpo/Labyrinth-v0': "),
        (["envs", "nothing"], "unknown environment 'nothing': choose one of vpo/Archive-v0, "),
        (["play", "vpo/maze-v0"], "unknown environment 'vpo/maze-v0': did you mean vpo/Maze-v0? choose one of"),
        (["envs", "Tools-v0"], "unknown environment 'Tools-v0': did you mean vpo/Tools-v0? choose one of"),
        (["play", "vpo/MazeSteps-v0"], "vpo/MazeSteps-v0 is a MazeStepsEnv, not a text environment: choose one of"),
        (["envs", "vpo/MazeSteps-v0", "--env-kwargs", '{"size": 9}'], "MazeStepsEnv takes no argument 'size'"),
        (["envs", "vpo/Maze-v0", "--index", "-1"], "index"),
        (["envs", "--env-kwargs", '{"preset": "paper"}'], "needs the id"),
        (["envs", "--import", "nope.py"], "cannot import 'nope.py': there is no such file"),
        (["play", "vpo/Maze-v0", "--env-kwargs", "{"], "must be a JSON object"),
        (["play", "vpo/Maze-v0", "--env-kwargs", '{"size": 9}'], "takes no argument 'size': it takes preset"),
        (
            ["play", "vpo/Maze-v0", "--env-kwargs", '{"preset": "compakt"}'],
            "unknown preset 'compakt' of MazeEnv: did you mean compact? choose one of",
        ),
        (["evns"], "COMMAND: invalid choice: 'evns': did you mean envs? choose one of envs, play, check, "),
        (["help"], "COMMAND: invalid choice: 'help': choose one of envs, play, check, "),
        (["play", "vpo/Maze-v0", "--sed", "1"], "unknown argument '--sed': did you mean --seed?"),
        (["play", "vpo/Maze-v0", "--frobnicate=1"], "unknown argument '--frobnicate=1': see --help"),
        (["play", "vpo/Maze-v0", "--preset", "compact"], """: --env-kwargs '{"preset": "compact"}'"""),
        (["export", "verl", "--env", "vpo/Maze-v0", "--out", "x"], "unknown argument '--env'"),
        (["check", "rewards.py"], "rewards.py is a file: name the environment or the function in it as well"),
        (["check", "no_such_module:x/Y-v0"], "cannot import 'no_such_module': ModuleNotFoundError"),
        (["play", "vpo/Maze-v0", "--env-kwargs", '{"data_seed": "x"}'], "cannot be made"),
        (["play", "vpo/Maze-v0", "--env-kwargs", '{"num_answers": 1.5}'], "integer from 1 to 1000"),
        (
            ["play", "vpo/Maze-v0", "--env-kwargs", '{"difficulty": 5}'],
            "difficulty holds new values by the name of the knob",
        ),
        (["play", "vpo/Maze-v0", "--num-answers", "0"], "at least 1"),
        (["play", "vpo/Maze-v0", "--seed", "-1"], "at least 0"),
        (["play", "vpo/MuSiQue-v0", "--env-kwargs", '{"source": "no/such.jsonl"}'], "cannot be made"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_names_that_count_up_are_drawn_together() -> None:
    names = ["hop_1", "hop_2", "hop_3", "f1", "entity_A", "entity_B"]
    assert show_objectives(names) == "hop_1 to hop_3, f1, entity_A, entity_B"


@pytest.mark.parametrize("text", ["line\n" * 1000, "x" * 5000, "x" * 5000 + "\n", "short"])
def test_a_long_text_is_cut_in_its_middle(text: str) -> None:
    short = cut(text, 100)
    if len(text) <= 100:
        assert short == text
        return
    head, left_out, tail = re.fullmatch(r"(.*)\n\[… ([\d,]+) characters …\]\n(.*)", short, flags=re.DOTALL).groups()
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) + int(left_out.replace(",", "")) == len(text)
    assert len(head) + len(tail) <= 100
