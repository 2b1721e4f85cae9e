"""Progress: a bar on a terminal, lines in a file, and no silence within a batch of responses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
