"""``studies/refine.py``: it trains, searches and counts, in its smallest form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies_by_path import STUDIES, load_study


@pytest.mark.slow
@pytest.mark.usefixtures("own_registry")
def test_the_study_of_feedback_trains_searches_and_keeps_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(STUDIES)  # where Python looks first when it runs the program
    refine = load_study("refine")
    monkeypatch.setattr(refine, "ANSWERS", 12)
    monkeypatch.setattr(refine, "TOKENS", 240)
    form = {"seeds": [0], "methods": ["rejection"], "model": "tiny-programs"}
    form |= {"warm_steps": 1, "training_tokens": 1, "tasks": 3}
    refine.run(form, tmp_path / "policies", tmp_path / refine.DATA)
    data = json.loads((tmp_path / refine.DATA).read_text(encoding="utf-8"))
    assert data["form"] == form
    assert len(data["functions"]) == 3
    assert {method: [*searches] for method, searches in data["solved_at"].items()} == {
        method: [*refine.SEARCHES] for method in ("base", "rejection")
    }
    assert {len(tokens) for searches in data["solved_at"].values() for [tokens] in searches.values()} == {3}
    policies = {f"{method}-{told}-0" for method in ("base", "rejection") for told in ("told", "untold")}
    assert {folder.name for folder in (tmp_path / "policies").iterdir()} == policies

    kept = tmp_path / "policies" / "base-untold-0" / "best-of-n.json"
    kept.write_text("[1, null, 5000]", encoding="utf-8")
    refine.run(form, tmp_path / "policies", tmp_path / refine.DATA)
    again = json.loads((tmp_path / refine.DATA).read_text(encoding="utf-8"))
    assert again["solved_at"].pop("base")["best-of-n"] == [[1, None, 5000]]
    assert again["solved_at"]["rejection"] == data["solved_at"]["rejection"]
