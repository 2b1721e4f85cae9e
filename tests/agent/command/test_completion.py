"""The script of ``vpo completion`` completes what bash hands to it."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess

import pytest

from vpo_agent.command import main
from vpo_envs.registration import env_ids


@pytest.fixture(scope="module")
def script() -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["completion"]) == 0
    return out.getvalue()


def completed(script: str, typed: str) -> list[str]:
    """What bash offers for the last word of ``typed``; a blank at the end begins a new word."""
    words = [*shlex.split(typed), *([""] if typed.endswith(" ") else [])]
    line = f'COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _vpo; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-uc", f"{script}\n{line}"], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("vpo co", ["compare", "completion"]),
        ("vpo train --weight-s", ["--weight-sampler"]),
        ("vpo plan --mem", ["--memory"]),
        ("vpo warm-start --rec", ["--recipe"]),
        ("vpo export v", ["verifiers", "verl"]),
        ("vpo export verl --rol", ["--rollouts"]),
        ("vpo train --method multi", ["multi_rlvr"]),
        ("vpo train --model tiny-maze-", ["tiny-maze-easy"]),
        ("vpo train --preset maze-p", ["maze-paper"]),
        ("vpo search --method be", ["best-of-n", "beam"]),
        ("vpo envs vpo/MazeS", ["vpo/MazeSteps-v0"]),
        ("vpo eval --env ", env_ids()),
        ("vpo eval runs/", []),
    ],
)
def test_the_last_word_is_completed(script: str, typed: str, offered: list[str]) -> None:
    assert sorted(completed(script, typed)) == sorted(offered)
