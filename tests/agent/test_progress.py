"""Progress: a bar on a terminal, lines in a file, and no silence within a batch of responses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from processes import run_python

from vpo_agent import progress as module
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.progress import progress, progress_bar


def test_in_a_file_each_state_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_S", 0)
    with progress_bar("outer", 2) as outer:
        for _ in range(2):
            with progress_bar("inner", 3, leave=False) as inner:
                inner.update(2)
            outer.update()
    said = capsys.readouterr().err
    assert "\r" not in said
    assert "\x1b" not in said
    lines = said.splitlines()
    assert [line.split("%")[0].split() for line in lines if line.startswith("outer")][-1] == ["outer:", "100"]
    assert any(line.startswith("inner:  67%") for line in lines)


def test_a_short_phase_shows_nothing_and_a_long_one_its_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(progress(range(3), "short", "part")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    for name in ("LINE_S", "SHORT_S"):
        monkeypatch.setattr(module, name, 0)
    assert list(progress(range(3), "long", "part")) == [0, 1, 2]
    assert "long: 100%" in capsys.readouterr().err


def test_a_bar_moves_while_one_batch_is_sampled(
    letters_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINE_S", 0)
    policy = LMPolicy.from_pretrained(str(letters_model), device="cpu")
    policy.sample(["ab"] * 4, rollouts=5, num_answers=2, max_new_tokens=12, label="sampling")
    counts = [int(one) for one in re.findall(r"(\d+)/20", capsys.readouterr().err)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3
    assert all(0 <= one <= 20 for one in counts)


def test_a_thread_that_still_prints_when_the_command_ends_does_not_crash_python() -> None:
    script = """
import io, sys, threading
from vpo_agent.progress import visible_streams

class Slow(io.StringIO):
    def write(self, text):
        if threading.current_thread() is thread:
            writing.set()
            ended.wait()
        return super().write(text)

writing, ended = threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: print("text"))
former, sys.stdout = sys.stdout, Slow()
with visible_streams():
    thread.start()
    writing.wait()
others = [dict(one=number) for number in range(1000)]  # in the memory that was freed
ended.set()
thread.join()
print(sys.stdout.getvalue(), end="", file=former)
"""
    for _ in range(3):
        done = run_python(["-c", script])
        assert (done.returncode, done.stdout) == (0, "text\n"), done.stderr
