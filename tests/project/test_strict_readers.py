"""JSON and TOML have one reader, so that what is strict there is strict everywhere."""

from __future__ import annotations

import re

from paths import ROOT

READERS = re.compile(
    r"json\.loads?\(|JSONDecoder\(|\braw_decode\(|tomllib\.loads?\(|yaml\.|pickle\.loads?\(|Unpickler\(|np\.load\("
)
KNOWN = {
    "envs_data/parsing.py": "the reader",
    "vpo_envs/checking/elsewhere.py": "pickles that this process and its own child write to each other",
    "vpo_envs/sandbox/values.py": "what a program printed: numbers of any length, and limited in bytes",
    "vpo_envs/sandbox/zygote.py": "runs inside the sandbox, where no package can be imported",
    "vpo_envs/tasks/tools/task.py": "calls in an answer, one after the other in a text, read strictly there",
}
"""Files with readers of their own, and why."""


def test_no_other_place_reads_json_toml_or_pickles() -> None:
    found = {
        str(file.relative_to(ROOT))
        for package in ("envs_data", "vpo_envs", "vpo_agent")
        for file in (ROOT / package).rglob("*.py")
        if READERS.search(file.read_text(encoding="utf-8"))
    }
    assert found == set(KNOWN)
