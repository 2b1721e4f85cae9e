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
from processes import PATIENCE, forked_python, run_python

from vpo_agent.command import main
from vpo_envs.libraries import install_command

pytest.importorskip("starlette", reason="serving needs the serve extra, which the dev extra installs")
pytest.importorskip("uvicorn", reason="serving needs the serve extra, which the dev extra installs")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(bpe_model: Path, number: signal.Signals) -> None:
    command = [forked_python(), "-m", "vpo_agent.command", "serve", str(bpe_model), "--port", "0", "--device", "cpu"]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **settings) as process:
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
    assert complaints == ("stopped\n" if number == signal.SIGINT else "")
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
        (["runs/nowhere"], "'runs/nowhere' does not exist: give the folder of a run"),
        (["tiny-maze-easy", "--checkpoint", "3"], "'tiny-maze-easy' is not the folder of a run"),
        (["tiny-maze-easy", "--port", "70000"], "--port must be from 0 to 65535, got 70000"),
        (["tiny-maze-easy", "--rows", "0"], "--rows must be from 1 to 4096, got 0"),
        (["tiny-maze-easy", "--device", "abacus"], "unknown device 'abacus'"),
        (["tiny-maze-easy", "--host", "no such host", "--device", "cpu"], "cannot listen on 'no such host'"),
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


# Stands in for a machine with a GPU and vLLM: the executable prints what it is called with.
ON_A_GPU = """
import sys, torch
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 4
from vpo_agent.command import main
sys.exit(main(sys.argv[1:]))
"""


def serve_on_a_gpu(folder: Path, *arguments: str, installed: bool = True) -> subprocess.CompletedProcess[str]:
    if installed:
        (folder / "vllm").write_text('#!/bin/sh\nprintf "%s\\n" "gpu $CUDA_VISIBLE_DEVICES" "$@"\n')
        (folder / "vllm").chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "4,5,6,7"}
    return run_python(["-c", ON_A_GPU, "serve", *arguments], env=environment)


def test_on_a_gpu_vllm_serves_the_folder_of_the_policy(bpe_model: Path, tmp_path: Path) -> None:
    done = serve_on_a_gpu(tmp_path, str(bpe_model), "--port", "0", "--rows", "9", "--device", "cuda:2")
    assert (done.returncode, done.stderr) == (0, "")
    said, gpu, *arguments = done.stdout.splitlines()
    port = re.fullmatch(rf"serving {bpe_model.name} \(vLLM\) on http://127\.0\.0\.1:(\d+)/v1; Ctrl-C stops it", said)
    assert port, said
    assert gpu == "gpu 6"
    assert arguments == [
        *["serve", str(bpe_model), "--served-model-name", bpe_model.name, "default"],
        *["--host", "127.0.0.1", "--port", port[1], "--max-num-seqs", "9", "--dtype", "bfloat16"],
        *["--generation-config", "vllm", "--default-chat-template-kwargs", '{"enable_thinking": false}'],
    ]


def test_vllm_serves_adapters_over_their_base(bpe_model: Path, tmp_path: Path) -> None:
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    (adapters / "adapter_config.json").write_text(f'{{"r": 12, "base_model_name_or_path": "{bpe_model}"}}')
    done = serve_on_a_gpu(tmp_path, str(adapters), "--served-name", "mine", "--dtype", "float32", "--engine", "vllm")
    arguments = done.stdout.splitlines()[2:]
    assert arguments[:8] == [
        *["serve", str(bpe_model), "--enable-lora", "--max-lora-rank", "16"],
        *["--lora-modules", f"mine={adapters}", f"default={adapters}"],
    ]
    assert arguments[arguments.index("--dtype") + 1] == "float32"


def test_vllm_that_is_asked_for_in_vain_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = serve_on_a_gpu(tmp_path, "tiny-maze-easy", "--engine", "vllm", "--port", "0", installed=False)
    assert done.returncode == 2
    assert "--engine vllm needs the command vllm on the PATH: pip install" in done.stderr
    assert main(["serve", "tiny-maze-easy", "--engine", "vllm", "--device", "cpu", "--port", "0"]) == 2
    assert "--engine vllm needs a GPU: use --engine native" in capsys.readouterr().err


def test_a_package_that_is_missing_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("vpo_agent.serve")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "tiny-maze-easy"]) == 2
    assert f"serving a policy needs the package uvicorn: {install_command('serve')}" in capsys.readouterr().err


def test_a_host_that_others_reach_is_warned_of(
    bpe_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ends the server as soon as it would run.
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    for host, warned in (("0.0.0.0", True), ("127.0.0.1", False), ("localhost", False)):
        assert main(["serve", str(bpe_model), "--host", host, "--port", "0", "--device", "cpu"]) == 0
        assert ("lets any machine" in capsys.readouterr().err) == warned
