"""`vpo train --prompts --rewards`: from a file and functions to a run that every other command reads."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import toys
from paths import ROOT
from scripted_endpoint import scripted
from transformers import AutoTokenizer

from vpo_agent.command import main
from vpo_agent.command.options import parse_job
from vpo_agent.config import env_options, read_run_config
from vpo_agent.measure.pool import Pool
from vpo_agent.presets import ALL
from vpo_agent.runs.continuing import resume_options
from vpo_envs import from_functions
from vpo_envs.common import imports
from vpo_envs.common.imports import FUNCTIONS_ID

REWARDS = """
def letter(response, wanted): return response.count(wanted) / 6
def brief(completions, **kwargs): return [1 - len(text) / 3 for text in completions]
"""
OPTIONS = [
    "--prompts",
    "rows.jsonl",
    "--rewards",
    "own_rewards.py:letter,brief",
    "--columns",
    "prompt=text,answer=good",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    rows = [{"text": f"write {i}", "wanted": "ab"[i % 2], "good": "ab"[i % 2] * 3} for i in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forget()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def forget() -> None:
    sys.modules.pop("own_rewards", None)
    imports._asked.clear()


def train(model: Path, *options: str) -> list[str]:
    short = "--steps 2 --prompts-per-step 2 --rollouts-per-prompt 4 --num-answers 1 --max-new-tokens 8 --kl-coef 0"
    held_out = "--name own --eval-prompts 2 --eval-answers 6"
    return ["train", *OPTIONS, "--model", str(model), *short.split(), *held_out.split(), *options]


def test_a_file_and_functions_train_and_the_run_is_evaluated_again(
    folder: Path, letters_model: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(train(letters_model, "--range", "brief=-1,1")) == 0
    saved = json.loads((folder / "runs" / "own" / "config.json").read_text())["run"]
    assert saved["env"] == FUNCTIONS_ID
    assert saved["imports"] == ["own_rewards.py"]
    assert saved["env_kwargs"] == {
        "source": "rows.jsonl",
        "rewards": "own_rewards.py:letter,brief",
        "columns": {"prompt": "text", "answer": "good"},
        "ranges": {"brief": [-1.0, 1.0]},
    }
    forget()
    capsys.readouterr()
    again = ["eval", "runs/own", "--k", "6", "--eval-prompts", "2", "--out", "found"]
    assert main(again) == 2
    assert "trust it: add --trust source,rewards --import own_rewards.py\n" in capsys.readouterr().err
    assert "own_rewards" not in sys.modules
    (folder / "moved").mkdir()
    (folder / "own_rewards.py").rename(folder / "moved" / "own_rewards.py")
    assert main([*again, "--trust", "source,rewards", "--import", "moved/own_rewards.py"]) == 0
    assert json.loads((folder / "found" / "eval.json").read_text())["objectives"] == ["letter", "brief"]


WATCHED = """
import json
def watched(completions, completion_ids, trainer_state, wanted):
    with open("seen.jsonl", "a") as file:
        print(json.dumps([completions, completion_ids, trainer_state.global_step, trainer_state.max_steps]), file=file)
    return [text.count(letter) / 6 for text, letter in zip(completions, wanted)]
def counted(completions, wanted, completion_ids, **_):
    rows = zip(completions, wanted, completion_ids)
    return [min(1.0, text.count(letter) / 9 + len(ids) / 90) for text, letter, ids in rows]
"""


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model that writes an answer to each of the prompts."""
    tokenizer = toys.bpe_tokenizer()
    model = toys.tiny_model("qwen3", tokenizer, scale=1.0, max_position_embeddings=512)
    tags = "Answer between these tags:\n<answer> your answer </answer>"
    toys.teach(model, tokenizer, [(f"write {i}\n\n{tags}", "<answer>aab</answer>") for i in range(40)], steps=60)
    folder = tmp_path_factory.mktemp("writer")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_functions_get_tokens_and_state_in_training_and_where_a_run_is_evaluated(
    folder: Path, writer: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own_rewards.py").write_text(WATCHED)
    tokenizer = AutoTokenizer.from_pretrained(writer)
    rewards = ["--rewards", "own_rewards.py:watched,counted"]

    def seen() -> set[tuple[int, int]]:
        """Return the steps, of how many, that the function has seen since the last call, with the right tokens."""
        rows = [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]
        (folder / "seen.jsonl").unlink()
        for texts, ids, *_ in rows:
            assert ids == tokenizer(texts, add_special_tokens=False)["input_ids"]
        return {(step, steps) for _, _, step, steps in rows}

    assert main([*train(writer), *rewards, "--max-new-tokens", "24", "--scorer-threads", "2"]) == 0
    assert seen() == {(0, 2), (1, 2), (2, 2)}
    forget()
    assert (
        main([*train(writer), *rewards, "--max-new-tokens", "24", "--scorer-threads", "2", "--resume", "--steps", "3"])
        == 0
    )
    assert seen() == {(0, 3), (2, 3), (3, 3)}
    forget()
    trusted = ["--trust", "source,rewards", "--import", "own_rewards.py", "--k", "6", "--eval-prompts", "2"]
    assert main(["eval", "runs/own", *trusted, "--checkpoint", "base", "--out", "initial"]) == 0
    assert seen() == {(0, 3)}
    forget()
    assert main(["eval", "runs/own", *trusted, "--out", "last"]) == 0
    assert seen() == {(3, 3)}
    forget()
    model = ["eval", str(writer), *OPTIONS, *rewards, "--k", "2", "--max-new-tokens", "24", "--out", "model"]
    capsys.readouterr()
    assert main(model) == 2
    assert (
        "it reads 'trainer_state', which belongs to a training run, and there is none here" in capsys.readouterr().err
    )
    forget()
    assert main([*model, "--rewards", "own_rewards.py:counted"]) == 0
    warm = ["warm-start", *OPTIONS, *rewards, "--model", str(writer), "--out", "base", "--steps", "2"]
    forget()
    assert main([*warm, "--eval-every", "1", "--eval-prompts", "2", "--eval-answers", "6", "--batch", "4"]) == 0
    assert seen() == {(0, 2), (1, 2), (2, 2)}


def test_an_endpoint_has_no_tokens_and_is_asked_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own_rewards.py").write_text(WATCHED)
    with scripted() as endpoint:
        asked = ["eval", "--endpoint", endpoint.url, "--model", "x", *OPTIONS[:2], *OPTIONS[4:]]
        assert main([*asked, "--rewards", "own_rewards.py:counted"]) == 2
        assert not endpoint.requests
    assert "it reads 'completion_ids', which a model's tokenizer makes, and no model" in capsys.readouterr().err


def test_ranges_are_measured_once_and_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = parse_job([*OPTIONS, "--model", "tiny-maze", "--range", "measured"], description="", presets=ALL)
    low, high = job.config.env_kwargs["ranges"]["letter"]
    assert low == 0
    assert high >= 0.5, "the good answers have three letters of six"
    assert "measured ranges: letter 0 to " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: words[2:], "--rewards needs --prompts as well"),
        (lambda words: words[:2], "--prompts needs --rewards as well"),
        (lambda words: [*words, "--env", "vpo/Maze-v0"], "--env and --rewards are mutually exclusive"),
        (lambda words: words, "--rewards needs --model: a pretrained model such as models/SmolLM2"),
        (lambda words: [*words, "--preset", "maze-compact"], "--preset maze-compact is for another environment"),
        (lambda words: [*words[:-1], "prompt"], "--columns must be like prompt=question,answer=solution; got 'prompt'"),
        (lambda words: [*words, "--range", "low"], "--range must be like 0,1 or NAME=0,1 or measured, got 'low'"),
    ],
)
def test_what_is_missing_is_said(change: Callable[[list[str]], list[str]], message: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        parse_job(change(list(OPTIONS)), description="", presets=ALL)


def test_the_commands_that_sample_take_a_file_where_they_take_a_number(
    folder: Path, letters_model: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(letters_model), *OPTIONS, "--k", "2", "--max-new-tokens", "8", "--out", "found"]) == 0
    source = json.loads((folder / "found" / "eval.json").read_text())["source"]
    assert source["env_kwargs"]["columns"] == {"prompt": "text", "answer": "good"}
    assert main(["eval", str(letters_model), *OPTIONS[2:], "--prompts", "4"]) == 2
    assert "--prompts is a file: for a number of prompts give --eval-prompts 4" in capsys.readouterr().err


def test_an_environment_is_named_by_options_that_make_it_again(folder: Path) -> None:
    words = [
        *OPTIONS,
        "--range",
        "brief=-1,1",
        "--env-kwargs",
        '{"source": "whole:rows.jsonl"}',
        "--model",
        "tiny-maze",
    ]
    config = parse_job(words, description="", presets=ALL).config
    again = env_options(config.env, config.env_kwargs, config.imports)
    assert again[:2] == ["--prompts", "whole:rows.jsonl"]
    assert parse_job([*again, "--model", "tiny-maze"], description="", presets=ALL).config == config
    assert env_options("vpo/Maze-v0", {"preset": "compact"}, ["mine"]) == [
        *("--env", "vpo/Maze-v0"),
        *("--env-kwargs", '{"preset": "compact"}', "--import", "mine"),
    ]


def test_the_worked_example_passes_its_check() -> None:
    place = ROOT / "examples" / "own_rewards"
    rewards = f"{place / 'rewards.py'}:facts,warm,brief"
    from_functions(place / "tickets.jsonl", rewards, columns={"prompt": "ticket"}).check_scorers()
    assert main(["check", rewards, "--prompts", str(place / "tickets.jsonl"), "--columns", "prompt=ticket"]) == 0


def test_mistakes_are_found_before_torch_is_loaded(
    folder: Path, letters_model: Path, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "own_rewards.py").write_text("def letter(response, wanted): response.count(wanted)\ndef brief(): pass\n")
    options = [*OPTIONS[:3], "own_rewards.py:letter", *OPTIONS[4:]]
    own = ["train", *options, "--steps", "1"]
    missing = str(folder / "missing")
    maze = ["--env", "vpo/Maze-v0"]
    models = '{"models": {"judge": "no/such"}}'
    endpoint = f"http://127.0.0.1:{unused_port}/v1"
    commands = {
        "the reward letter is None for every answer": [*own, "--model", str(letters_model)],
        f"cannot load the model '{missing}'": ["train", *maze, "--model", missing],
        "cannot load the model 'no/such'": ["warm-start", *maze, "--model", "no/such", "--out", "warm"],
        "reward model 'no/such' cannot be loaded": ["train", "--env", "vpo/RewardModels-v0", "--env-kwargs", models],
        f"the endpoint {endpoint} cannot be reached (Connection refused)\n": [
            *("eval", "--endpoint", endpoint, *maze, "--model", "x"),
        ],
        f"'{missing}' does not exist": ["eval", missing, *maze],
        "'./missing' does not exist": ["search", "./missing", *maze],
        "'./gone' does not exist": ["serve", "./gone"],
    }
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for message, words in commands.items():
        script = (
            f"import sys; from vpo_agent.command import main; code = main({words!r}); "
            "assert 'torch' not in sys.modules; sys.exit(code)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert message in done.stderr
        assert done.returncode == 2, done.stderr


def test_the_commands_that_a_training_names_work_as_printed(
    folder: Path, letters_model: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(train(letters_model)) == 0
    out = capsys.readouterr().out
    show = shlex.split(re.search(r"show the answers, their rewards and the reasons: (.*)", out)[1])
    base = shlex.split(re.search(r"with (vpo warm-start .*?)(\. The first response|$)", out, re.MULTILINE)[1])
    forget()
    assert main(show[show.index("show") :]) == 0
    shown = capsys.readouterr()
    assert "write " in shown.out, "the prompts"
    assert "not shown" not in shown.err
    forget()
    config = read_run_config(folder / "runs" / "own", stated=["source", "rewards"])
    assert main(["train", *resume_options(config, "own"), "--steps", "3"]) == 0
    forget()
    assert main([*base[1:], "--steps", "1", "--eval-prompts", "1", "--max-new-tokens", "8"]) == 0
    saved = re.search(r"train it with: (.*)", capsys.readouterr().out)[1]
    forget()
    words = shlex.split(saved)
    job = parse_job(words[words.index("train") + 1 :], description="", presets=ALL)
    assert job.config.model == "runs/base"


def test_a_small_file_is_asked_once_and_that_is_said(
    folder: Path, letters_model: Path, no_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (folder / "rows.jsonl").read_text().splitlines()
    (folder / "rows.jsonl").write_text("\n".join(rows + rows))
    own = [str(letters_model), *OPTIONS, "--max-new-tokens", "8"]
    assert main(["eval", *own, "--k", "2", "--eval-prompts", "30", "--out", "found"]) == 0
    said = re.search(
        r"the split test has (\d+) tasks, so all of them are used instead of 30\n", capsys.readouterr().out
    )
    different = int(said[1])
    pool = Pool.load(folder / "found" / "pool.npz")
    assert len(pool.indices) == len(set(pool.tasks)) == different < 30
    forget()
    assert main(["search", *own, "--method", "best-of-n", "--iterations", "2", "--out", "searched"]) == 0
    assert f"the split test has {different} tasks, so all of them are used instead of 20\n" in capsys.readouterr().out
    assert len((folder / "searched" / "letters0.jsonl").read_text().splitlines()) == different
