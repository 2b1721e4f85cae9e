"""``vpo eval --endpoint``: the pool, tables and figures of a local policy, from a model that is elsewhere."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import toys
from processes import PythonProcess
from scripted_endpoint import Body, Reply, letters, scripted
from served import served

from vpo_agent.command import main
from vpo_agent.measure.pool import Pool
from vpo_agent.policy.language_model import LMPolicy

SMALL = ["--env", toys.LETTERS_ID, "--eval-prompts", "3", "--k", "5", "--max-new-tokens", "14"]


def asked(url: str, *options: str) -> list[str]:
    return ["eval", "--endpoint", url, "--model", "letters", *SMALL, *options]


def test_a_served_model_gives_the_pool_of_the_local_one(letters_model: Path, tmp_path: Path) -> None:
    size = ["--eval-prompts", "40", "--k", "9", "--num-answers", "3"]
    local, remote = tmp_path / "local", tmp_path / "remote"
    assert main(["eval", str(letters_model), *SMALL, *size, "--device", "cpu", "--out", str(local)]) == 0
    policy = LMPolicy.from_pretrained(letters_model, device="cpu")
    with served(policy, "letters") as server:
        assert main(asked(server.base_url, *size, "--out", str(remote))) == 0
    assert {file.name for file in remote.iterdir()} == {file.name for file in local.iterdir()}
    assert [file.name for file in tmp_path.glob("*.jsonl")] == []
    ours, theirs = (Pool.load(folder / "pool.npz") for folder in (local, remote))
    assert theirs.rewards.shape == ours.rewards.shape == (40, 3, 3, 2)
    for name in ("env", "env_kwargs", "split", "num_answers", "tasks", "temperature", "max_new_tokens", "seed"):
        assert theirs.source[name] == ours.source[name], name
    np.testing.assert_array_equal(theirs.scalar_weights, ours.scalar_weights)
    # Each holds 360 letters, drawn independently by the same model.
    mine, other = (pool.rewards.reshape(-1, 2) for pool in (ours, theirs))
    noise = np.sqrt((mine.var(axis=0) + other.var(axis=0)) / len(mine))
    assert (np.abs(mine.mean(axis=0) - other.mean(axis=0)) < 4 * noise).all()
    assert ours.tokens is not None
    assert theirs.tokens is not None
    assert theirs.tokens.mean() == pytest.approx(ours.tokens.mean(), rel=0.05)
    results = json.loads((remote / "eval.json").read_text())
    assert results["source"]["endpoint"] == server.base_url
    assert results["source"]["usage"]["completion_tokens"] == theirs.tokens.sum()


def test_what_it_cost_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted() as endpoint:
        assert main(asked(endpoint.url, "--out", str(tmp_path / "out"))) == 0
    shown = capsys.readouterr()
    assert "model letters; temperature 1; cost in tokens: 21 read, 60 generated." in shown.out
    assert "15/15" in shown.err


def test_what_was_sampled_is_kept_and_used_by_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    kept = tmp_path / "out.unfinished.jsonl"
    options = ["--out", str(out), "--concurrency", "1", "--retries", "1"]

    def script(body: Body, number: int) -> Reply | Body:
        return Reply(503, "gone", {"Retry-After-Ms": "1"}) if number in (2, 3) else letters(body)

    with scripted(script) as endpoint:
        assert main(asked(endpoint.url, *options)) == 2
        said = capsys.readouterr().err
        assert f"(gone), 2 times in a row; 10 of 15 answers are saved in {str(kept)!r}" in said
        assert not out.exists()
        assert kept.exists()
        assert main(asked(endpoint.url, *options)) == 0
        assert f"10 of 15 answers are in {str(kept)!r}" in capsys.readouterr().err
        assert len(endpoint.requests) == 5
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_answers_to_other_requests_are_said_and_outlive_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "out.unfinished.jsonl"
    options = ["--out", str(tmp_path / "out"), "--concurrency", "1", "--retries", "0"]

    def script(body: Body, number: int) -> Reply | Body:
        return Reply(401) if number == 2 else letters(body)

    with scripted(script) as endpoint:
        assert main(asked(endpoint.url, *options)) == 2
        assert "10 of 15 answers are saved" in capsys.readouterr().err
        assert main(asked(endpoint.url, *options, "--temperature", "0.5")) == 0
        said = capsys.readouterr().err
        assert f"{str(kept)!r} has 10 answers to other requests, none to this one" in said
        assert f"{str(kept)!r} keeps 10 answers to other requests" in said
        assert main(asked(endpoint.url, *options)) == 0
        assert "10 of 15 answers are in" in capsys.readouterr().err
        assert len(endpoint.requests) == 3 + 3 + 1
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("body", [b"[", b"X-"], ids=["body", "headers"])
def test_a_server_that_drips_bytes_ends_the_command(
    body: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--reply-timeout", "0.3", "--timeout", "60", "--retries", "0"]
    with scripted(lambda *_: Reply(forever=body, pace=0.02)) as endpoint:
        assert main(asked(endpoint.url, *limits, "--out", str(tmp_path / "out"))) == 2
    assert "did not finish its reply within 0.3 s" in capsys.readouterr().err


def wait_until_saved(journal: Path, answers: int) -> None:
    """Wait for answers whose requests have ended: the next request may start before they are saved."""
    end = time.monotonic() + 60
    while not journal.exists() or len(journal.read_text().splitlines()) <= answers:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_ctrl_c_keeps_what_was_sampled(tmp_path: Path) -> None:
    never, second = threading.Event(), threading.Event()

    def script(body: Body, number: int) -> Reply | Body:
        if number == 0:
            return letters(body)
        second.set()
        return Reply(after=never, sent=0)

    program = "import toys, sys; from vpo_agent.command import main; sys.exit(main())"
    with scripted(script) as endpoint:
        command = asked(endpoint.url, "--concurrency", "1", "--out", str(tmp_path / "out"))
        process = PythonProcess(["-c", program, *command])
        with process.stdout, process.stderr:
            assert second.wait(300)
            wait_until_saved(tmp_path / "out.unfinished.jsonl", 5)
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait() == 130
        never.set()
    assert "5 of 15 answers are saved in" in said
    assert "Traceback" not in said
    assert (tmp_path / "out.unfinished.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["runs/some"], "'runs/some' does not apply to a model behind an endpoint: leave it out"),
        (["--device", "cpu"], "--device does not apply to a model behind an endpoint"),
        (["--sample-batch", "8"], "--sample-batch does not apply"),
        (["--api-key-env", "NO_SUCH_KEY"], "--api-key-env NO_SUCH_KEY: this environment variable is not set"),
        (["--timeout", "0"], "--timeout must be a number of seconds above 0, got '0'"),
        (["--reply-timeout", "-1"], "--reply-timeout must be a number of seconds above 0, got '-1'"),
        (["--concurrency", "0"], "--concurrency must be from 1 to 1024, got 0"),
        (["--api", "soap"], "--api"),
        (["--endpoint", "here"], "an endpoint must be the base of an API"),
        (["--out", "."], "'.' is not the name of a folder that can be replaced: choose another --out"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_sentence(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted() as endpoint:
        assert main(asked(endpoint.url, "--out", str(tmp_path / "out"), *options)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert endpoint.requests == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "nothing to evaluate: give a run, a model or a sample file, or --endpoint URL"),
        (["tiny-maze", "--model", "m"], "--model applies only to a model behind an --endpoint: leave it out"),
        (["--endpoint", "http://127.0.0.1:9/v1", "--model", "m"], "--endpoint needs --env, such as --env vpo/Maze-v0"),
    ],
)
def test_what_is_missing_is_said(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", *argv]) == 2
    assert message in capsys.readouterr().err


def test_models_are_listed_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(models={"data": [{"id": "small"}, {"id": "large"}]}) as endpoint:
        assert main(["eval", "--endpoint", endpoint.url, *SMALL]) == 2
    assert "--endpoint needs --model, a name such as small, large" in capsys.readouterr().err
