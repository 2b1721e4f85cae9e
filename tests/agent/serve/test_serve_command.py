"""``vpo serve`` as a command: it starts, ends at Ctrl-C, and says what is wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from paths import ROOT
from processes import heed_interrupts

from vpo_agent.command import main

pytest.importorskip("starlette", reason="serving needs the serve extra, which the dev extra installs")
pytest.importorskip("uvicorn", reason="serving needs the serve extra, which the dev extra installs")

PATIENCE = 120
"""Seconds that a process may take."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(bpe_model: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "vpo_agent.command", "serve", str(bpe_model), "--port", "0", "--device", "cpu"]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heed_interrupts}
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **settings) as process:
        try:
            line = process.stdout.readline()
            url = re.fullmatch(
                rf"serving {bpe_model.name} \(cpu\) on (http://127\.0\.0\.1:\d+)/v1; Ctrl-C stops it\n", line
            )
            assert url, line
            with urllib.request.urlopen(f"{url[1]}/health", timeout=PATIENCE) as response:
                assert response.status == 200
            process.send_signal(number)
            _, complaints = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert complaints == ""
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGTERM)


def test_a_port_in_use_is_said(bpe_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(bpe_model), "--port", str(port), "--device", "cpu"]) == 2
    complaint = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port" in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["runs/nowhere"], "there is no run or model in 'runs/nowhere': give a run folder"),
        (["tiny-maze", "--checkpoint", "3"], "'tiny-maze' is not the folder of a run"),
        (["tiny-maze", "--port", "70000"], "--port must be from 0 to 65535, got 70000"),
        (["tiny-maze", "--rows", "0"], "--rows must be from 1 to 4096, got 0"),
        (["tiny-maze", "--device", "abacus"], "unknown device 'abacus'"),
        (["tiny-maze", "--host", "no such host", "--device", "cpu"], "cannot listen on 'no such host'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_package_that_is_missing_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("vpo_agent.serve")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "tiny-maze"]) == 2
    assert "serving a policy needs the package uvicorn: pip install 'vpo-gym[serve]'" in capsys.readouterr().err


def test_a_host_that_others_reach_is_warned_of(
    bpe_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ends the server as soon as it would run.
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    for host, warned in (("0.0.0.0", True), ("127.0.0.1", False), ("localhost", False)):
        assert main(["serve", str(bpe_model), "--host", host, "--port", "0", "--device", "cpu"]) == 0
        assert ("lets any machine" in capsys.readouterr().err) == warned
