"""Files, headings and imports that the documents name exist."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from vpo_agent.command import make_parser
from vpo_agent.command.options import settings_parser
from vpo_agent.presets import ALL

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
FOLDERS = "leaderboard|vpo_agent|vpo_envs|envs_data|examples|studies|benchmarks|docs|tests"
PATH = re.compile(rf"(?<![\w/.])(?:{FOLDERS})/[\w./-]*\w(?![\w*])")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_of_a_table_has_the_cells_of_its_head(page: Path) -> None:
    cells = 0
    for line in BLOCK.sub("", page.read_text(encoding="utf-8")).splitlines():
        # A bar in code divides cells as well, unless it is escaped.
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.lstrip().startswith("|") else 0
        assert not (cells and bars) or bars == cells, line
        cells = bars


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_exists(page: Path) -> None:
    missing = [path for path in PATH.findall(page.read_text(encoding="utf-8")) if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_a_snippet_imports_from_us_exists(page: Path) -> None:
    for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("vpo_", "envs_data")):
                try:
                    module = importlib.import_module(str(node.module))
                except ValueError as error:
                    # An adapter of a package that is installed for `make adapters` only.
                    if " needs " not in str(error):
                        raise
                    continue
                assert not [name.name for name in node.names if not hasattr(module, name.name)]


def test_a_snippet_with_imports_uses_no_name_that_it_does_not_define(tmp_path: Path) -> None:
    for page in PAGES:
        for number, (language, code) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            if language == "python" and re.match(r"(#.*\n)?(import|from) ", code):
                (tmp_path / f"{page.stem}_{number}.py").write_text(code, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    found = subprocess.run([*ruff, str(tmp_path)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def commands(page: Path) -> list[str]:
    """The calls of ``vpo`` in the shell blocks of a page that are whole: no placeholder such as … or NAME=."""
    blocks = [code for language, code in BLOCK.findall(page.read_text(encoding="utf-8")) if language == "sh"]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("vpo ") and "…" not in line]


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands(page)])
def test_every_command_that_is_shown_is_accepted(line: str) -> None:
    words = shlex.split(line.partition(" | ")[0].partition(" > ")[0], comments=True)
    parser = make_parser()
    chosen = parser.parse_args(words[1:])
    if words[1] == "train":
        settings_parser("vpo train", "", ALL, next(iter(ALL))).parse_args(chosen.options)
