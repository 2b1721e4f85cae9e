"""The prime-rl adapter where prime-rl is not installed, or has another form."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], r"^training with prime-rl needs prime-rl, which is not on PyPI: install it from its repository$"),
        (
            ["__init__.py", "orchestrator/__init__.py", "orchestrator/algo.py"],
            r"^training with prime-rl needs its version 0\.8\.0, and another or a part of it is installed "
            r"\(cannot import name 'ALGORITHM_CLASSES' from .*\): install it from its repository$",
        ),
    ],
    ids=["absent", "another version"],
)
def test_it_is_one_sentence(files: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "prime_rl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "vpo_agent.adapters.prime_rl", raising=False)
    if files:
        for file in files:
            path = tmp_path / "prime_rl" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        monkeypatch.syspath_prepend(tmp_path)
    else:
        monkeypatch.setitem(sys.modules, "prime_rl", None)
    with pytest.raises(ValueError, match=said):
        importlib.import_module("vpo_agent.adapters.prime_rl")
    for name in [name for name in sys.modules if name.partition(".")[0] == "prime_rl"]:
        del sys.modules[name]
