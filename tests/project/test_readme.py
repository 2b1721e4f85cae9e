"""README and results stay short, and the README's Python code runs as it stands."""

import re
from pathlib import Path

import pytest
from paths import ROOT
from processes import run_python

README = ROOT / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_readme_shows_code_and_stays_short() -> None:
    assert BLOCKS
    assert len(README.read_text(encoding="utf-8").split()) <= 1000


def test_the_results_stay_short() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    text = re.sub(r"<!-- table: .*?<!-- end -->|```.*?```", "", text, flags=re.DOTALL)
    words = re.sub(r"<!-- .*? -->|\]\([^)]*\)", "", text).split()
    assert len([word for word in words if re.search("[a-z]", word, re.IGNORECASE)]) <= 1500


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_readme_runs_in_a_fresh_process(block: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block, encoding="utf-8")
    done = run_python([str(script)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
