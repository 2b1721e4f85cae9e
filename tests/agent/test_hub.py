"""``vpo push``: the folder that is published, its card, and what goes over the wire to a stand-in for the Hub."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from huggingface_hub import ModelCard
from processes import run_python

from vpo_agent.command import main
from vpo_agent.config import TrainConfig
from vpo_agent.estimators.choices import BUILT_IN
from vpo_agent.hub import EVIDENCE, WHEN_IT_HELPS
from vpo_agent.policy.language_model import LMPolicy


@pytest.fixture
def make_run(
    finished: Callable[..., tuple[TrainConfig, str]], capsys: pytest.CaptureFixture[str]
) -> Callable[..., Path]:
    """Makes a finished run and gives its folder."""

    def make(**changes: Any) -> Path:
        folder = finished(**changes)[0].runs_dir / "run"
        capsys.readouterr()
        return folder

    return make


def dry_run(run: Path, target: Path, *options: str) -> Path:
    assert main(["push", str(run), "--repo", "someone/letters", "--dry-run", str(target), *options]) == 0
    return target


def test_what_is_pushed_is_the_model_its_card_and_its_settings(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run = make_run(checkpoint_every=1)
    folder = dry_run(run, tmp_path / "out")
    names = {path.name for path in folder.iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "results.json", "tokenizer.json", "training.json"} <= names
    assert not names & {"optimizer.safetensors", "state.json", "manifest.json", "generators.json"}
    pushed, saved = LMPolicy.from_pretrained(folder), LMPolicy.from_pretrained(run / "checkpoints" / "step_000003")
    for name, value in saved.model.state_dict().items():
        assert torch.equal(value, pushed.model.state_dict()[name])
    for file in folder.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), f"{file.name} tells where the run was made"
        assert str(Path(toys.__file__).parents[1]).encode() not in file.read_bytes()


def test_the_card_states_task_method_steps_results_and_objectives(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    run = make_run()
    card = ModelCard.load(dry_run(run, tmp_path / "out") / "README.md")
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-generation"
    assert "vpo" in card.data.tags
    assert card.data.license is None
    assert card.data.base_model is None, "the initial model is a folder of this machine"
    for part in (toys.LETTERS_ID, "for 3 steps", "`vpo`", "| left |", "| learning_rate | 0.01 |"):
        assert part in card.text
    assert (run / "results.md").read_text().strip() in card.text


def test_the_card_of_a_policy_for_one_answer_and_three_says_both(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run = make_run(num_answers=[1, 3])
    card = (dry_run(run, tmp_path / "out") / "README.md").read_text()
    assert "gives 3 or 1 answers, as the prompt asks, to tasks" in card


@pytest.mark.parametrize("method", ["vpo", "grpo"])
def test_the_card_says_when_the_method_helps_and_how_sure_that_is(
    make_run: Callable[..., Path], tmp_path: Path, method: str
) -> None:
    card = (dry_run(make_run(method=method), tmp_path / "out") / "README.md").read_text()
    section = card.partition("### When the method helps\n")[2].partition("\n## ")[0]
    assert section.strip() == f"{WHEN_IT_HELPS[method]} {EVIDENCE}"
    assert "small models" in section
    assert "docs/results.md of VPO Gym" in section
    assert "](" not in section, "the page is not beside the card, so a link would be dead"


def test_every_built_in_method_has_words_for_the_card() -> None:
    assert set(WHEN_IT_HELPS) == set(BUILT_IN)


def test_the_licence_is_that_of_the_option(make_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = dry_run(make_run(), tmp_path / "out", "--license", "mit")
    assert ModelCard.load(folder / "README.md").data.license == "mit"


def test_an_earlier_checkpoint_comes_without_the_results_of_the_last(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = dry_run(make_run(checkpoint_every=1), tmp_path / "out", "--checkpoint", "2")
    assert not (folder / "results.json").exists()
    card = (folder / "README.md").read_text()
    assert "for 2 steps" in card
    assert "no evaluation of these weights" in card


def test_the_code_of_the_card_runs(make_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = dry_run(make_run(), tmp_path / "out")
    blocks = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 1
    code = blocks[0].replace("'someone/letters'", repr(str(folder)))
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["reward"].shape == (2,)


def test_adapters_of_a_local_model_are_merged_into_it(make_run: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="adapters need the lora extra, which the dev extra installs")
    run = make_run(lora_rank=2)
    folder = dry_run(run, tmp_path / "out")
    assert (folder / "model.safetensors").exists()
    assert not (folder / "adapter_config.json").exists()
    merged = LMPolicy.from_pretrained(run / "checkpoints" / "step_000003")
    for name, value in LMPolicy.from_pretrained(folder).model.state_dict().items():
        torch.testing.assert_close(value, merged.model.state_dict()[name])
    assert str(tmp_path) not in (folder / "config.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/nowhere", "--repo", "a/b"], "'runs/nowhere' does not exist: give the folder of a run"),
        (["RUN", "--repo", "a/b/c"], "--repo 'a/b/c' cannot be a name on the Hub"),
        (["RUN", "--repo", "a/b", "--checkpoint", "77"], "has no checkpoint 77"),
        (["RUN", "--repo", "a/b", "--dry-run", "RUN"], "already exists"),
    ],
)
def test_what_cannot_be_pushed_is_said_in_one_line(
    make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    run = make_run()
    assert main(["push", *(str(run) if argument == "RUN" else argument for argument in arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_damaged_checkpoint_is_not_pushed(
    make_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run()
    model = run / "checkpoints" / "step_000003" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    assert main(["push", str(run), "--repo", "a/b", "--dry-run", str(tmp_path / "out")]) == 2
    assert "is damaged (model.safetensors does not match its SHA-256" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- over the wire ---


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub as an upload of small files needs; what it was sent is in ``server.calls``."""

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length else b"".join(self._chunks())
        self.server.calls.append((self.path, self.headers.get("Authorization"), body))  # type: ignore[attr-defined]
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        if self.headers.get("Authorization") != "Bearer right":
            self._answer(401, {"error": "Invalid username or password."})
        elif self.path == "/api/repos/create":
            self._answer(200, {"url": f"{url}/someone/letters", "id": "someone/letters", "name": "someone/letters"})
        elif "/preupload/" in self.path:
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            self._answer(200, {"files": files})
        elif "/commit/" in self.path:
            done = {"commitUrl": f"{url}/someone/letters/commit/0", "commitOid": "0" * 40, "success": True}
            self._answer(200, done)
        else:
            self._answer(200, {})

    def do_GET(self) -> None:
        self._answer(404, {"error": "nothing here"})

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[Any]:
    """The stand-in, on a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.calls = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


AWAY = """
import runpy, sys
from huggingface_hub import constants
# The client reads them when it is imported, which it already is where processes are forked.
constants.ENDPOINT, constants.HF_HUB_OFFLINE = sys.argv.pop(1), False
runpy.run_module("vpo_agent.command", run_name="__main__")
"""


def push(run: Path, port: int, token: str) -> subprocess.CompletedProcess[str]:
    """Push from a process of its own, whose client has another address."""
    arguments = ["push", str(run), "--repo", "someone/letters", "--private", "--import", toys.__file__]
    return run_python(["-c", AWAY, f"http://127.0.0.1:{port}", *arguments], env={"HF_TOKEN": token})


@pytest.mark.slow
def test_the_files_reach_the_hub(make_run: Callable[..., Path], hub: Any, tmp_path: Path) -> None:
    run = make_run()
    done = push(run, hub.server_address[1], "right")
    assert done.returncode == 0, done.stderr
    assert f"pushed to http://127.0.0.1:{hub.server_address[1]}/someone/letters" in done.stdout
    ((_, _, made),) = [call for call in hub.calls if call[0] == "/api/repos/create"]
    # Clients before and after the Hub had more than two kinds of visibility.
    assert "private" in (json.loads(made).get("private") and "private", json.loads(made).get("visibility"))
    ((_, _, commit),) = [call for call in hub.calls if "/commit/" in call[0]]
    entries = [json.loads(line) for line in commit.splitlines()]
    files = {entry["value"]["path"]: entry["value"] for entry in entries if entry["key"] == "file"}
    expected = dry_run(run, tmp_path / "out")
    assert files.keys() == {path.name for path in expected.iterdir()}
    for path in expected.iterdir():
        assert base64.b64decode(files[path.name]["content"]) == path.read_bytes(), path.name


@pytest.mark.slow
def test_a_wrong_token_is_one_line(make_run: Callable[..., Path], hub: Any) -> None:
    done = push(make_run(), hub.server_address[1], "wrong")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: cannot push to 'someone/letters' (")
    assert "401" in line
    assert "hf auth login" in line
