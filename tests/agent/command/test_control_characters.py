"""What models wrote, names and files reach a terminal, Markdown and pages without characters that command or hide."""

from __future__ import annotations

import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import toys
from pools import maze_pool, save_run
from tqdm import tqdm

from vpo_agent.command import main
from vpo_agent.command.parser import exit_status
from vpo_agent.measure.pool import Pool
from vpo_agent.pages.page import Page, markdown_table
from vpo_agent.progress import bare, progress_bar, visible_streams
from vpo_envs.common.wording import HIDDEN

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\u200b\ufeff\r\x08\x7f\U000e0041\ud83d"
LINK = "![x](http://evil.example/a) <img src=x> <!-- [a]: http://b"


def is_clean(text: str) -> bool:
    return HIDDEN.search(text) is None


def hostile_pool(path: Path, seed: int) -> Path:
    """A pool whose answers hold every kind of character that a terminal obeys."""
    pool = maze_pool(seed)
    assert pool.responses is not None
    rows = tuple(tuple(text.replace("<answer_1>", f"<answer_1>{ATTACK}") for text in row) for row in pool.responses)
    replace(pool, responses=rows).save(path)
    return path


@pytest.mark.parametrize("command", ["show", "eval", "explore", "compare"])
def test_a_command_shows_the_codes_of_what_answers_hide(
    command: str,
    tmp_path: Path,
    no_figures: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [hostile_pool(tmp_path / f"{number}.npz", number) for number in range(1 + (command == "compare"))]
    assert main([command, *map(str, paths)]) == 0
    printed = capsys.readouterr()
    assert is_clean(printed.out)
    assert is_clean(printed.err)
    if command == "show":
        assert r"\x1b]0;owned\x07" in printed.out
        assert r"\u202egnp.exe" in printed.out
    written = [file for file in tmp_path.rglob("*") if file.suffix in (".html", ".md")]
    assert all(is_clean(file.read_text()) for file in written)
    # In the data of a page, whose text is JSON.
    assert not any(re.search(r"(?<!\\)\\u(001b|202e|200b|2066)", file.read_text()) for file in written)
    assert written


@pytest.mark.parametrize("field", ["env", "model", "method", "split", "run", "dtype"])
def test_names_in_a_pool_have_no_hidden_characters(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = maze_pool(0)
    for value in ("vpo\x1b[2J", "a\nb", "a\u202eb"):
        replace(pool, source={**pool.source, field: value}).save(tmp_path / "pool.npz")
        assert main(["eval", str(tmp_path / "pool.npz")]) == 2
        said = capsys.readouterr().err
        assert f"its source has {field}=" in said
        assert is_clean(said)
    names = ("gold\x1b[2J", *pool.objectives[1:])
    replace(pool, objectives=names).save(tmp_path / "pool.npz")
    with pytest.raises(ValueError, match="its objectives have names with characters that are not seen"):
        Pool.load(tmp_path / "pool.npz")


def test_names_of_files_are_shown_with_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[2J\u202eb\nc"
    for command in ("show", "eval", "explore", "compare", "search", "serve", "bench"):
        assert main([command, str(tmp_path / name)]) == 2
        assert is_clean(capsys.readouterr().err)
    save_run(tmp_path / name, maze_pool(0))
    assert main(["compare", str(tmp_path / name), str(tmp_path / name)]) in (0, 2)
    printed = capsys.readouterr()
    assert is_clean(printed.out)
    assert is_clean(printed.err)


def test_errors_are_shown_with_codes(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(toys.LettersEnv):
        def __init__(self, **options: Any) -> None:
            raise ValueError(f"{ATTACK}no")

    gym.register("hostile/Failing-v0", entry_point=Failing)
    try:
        assert main(["envs", "hostile/Failing-v0"]) == 2
    finally:
        gym.registry.pop("hostile/Failing-v0")
    said = capsys.readouterr().err
    assert is_clean(said)
    assert "no" in said


def test_streams_are_as_before_after_a_command() -> None:
    former = sys.stdout, sys.stderr

    def fail() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        exit_status(fail)
    assert (sys.stdout, sys.stderr) == former


def test_bars_move_the_cursor_and_lines_between_them_do_not() -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    out, err = Terminal(), Terminal()
    with redirect_stdout(out), redirect_stderr(err), visible_streams():
        assert sys.stdout.isatty()
        assert bare(sys.stderr) is err
        with progress_bar(f"label{ATTACK}", 2) as bar:
            bar.update()
            bar.write(f"one{ATTACK}")
            tqdm.write(f"two{ATTACK}", file=sys.stderr)
        print("\x1b[2J", "three", file=sys.stderr)
        sys.stderr.writelines(["\x07", "four"])
    assert "\r" in err.getvalue(), "a bar is drawn again at the beginning of its line"
    for text in ("two", "three", "four", "label"):
        assert text in err.getvalue()
    assert is_clean(out.getvalue())
    assert is_clean(err.getvalue().replace("\r", "").replace("\x1b[A", ""))


def test_names_in_markdown_begin_nothing_and_stay_in_their_cell() -> None:
    table = markdown_table(["a|b", f"c{ATTACK}"], [[LINK, "x\ny"], ["`|`", "1"]], "lr")
    assert is_clean(table)
    lines = table.split("\n")
    assert len(lines) == 4
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines)
    page = Page(LINK)
    page.paragraph(LINK + ATTACK)
    page.listing([LINK + "\n# heading"])
    page.fold(LINK)
    for text in (table, page.markdown()):
        assert "](" not in text
        assert re.search(r"<[a-z!]", text) is None
    assert "\n# heading" not in page.markdown()
    assert is_clean(page.markdown())
    assert is_clean(page.html())
    assert "<img" not in page.html()


def test_names_of_agents_in_results_are_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        result = {
            "task_name": f"task{ATTACK}",
            "trial_name": "t",
            "agent_info": {"name": f"agent\n# {LINK}{ATTACK}"},
            "verifier_result": {"rewards": {f"reward|\n{LINK}{ATTACK}": 1.0, "other": 0.5}},
            "exception_info": {"exception_type": f"Error\n# {ATTACK}"},
        }
        (folder / "result.json").write_text(json.dumps(result))
    assert main(["eval", "--harbor", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert is_clean(printed)
    assert "\n# " not in printed
    assert "](" not in printed
