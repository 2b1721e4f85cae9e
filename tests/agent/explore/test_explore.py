"""``vpo explore``: what the page holds, that no answer can act on it, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import maze_pool, random_pool, save_run

from vpo_agent.command import main
from vpo_agent.explore import page as explore
from vpo_agent.explore.page import explore_runs
from vpo_envs import Status
from vpo_envs.common.wording import visible
from vpo_envs.registration import make_text_env
from vpo_envs.text import split_answers


class Page(HTMLParser):
    """Collects the elements of a page and the text of its scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.scripts: list[str] = []
        self.policy = ""
        self._in_script = False
        self.feed(path.read_text(encoding="utf-8"))
        self.data: dict[str, Any] = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")
        said = dict(attrs)
        if said.get("http-equiv") == "Content-Security-Policy":
            self.policy = said["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def saved(folder: Path, *pools: Any) -> list[Path]:
    paths = [folder / f"{number}.npz" for number in range(len(pools))]
    for path, pool in zip(paths, pools, strict=True):
        pool.save(path)
    return paths


def two_pools() -> tuple[Any, Any]:
    return maze_pool(0), maze_pool(1, answers=1, rollouts=12, method="grpo")


def test_a_run_and_a_pool_file_become_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vpo, grpo = two_pools()
    run = save_run(tmp_path / "vpo", vpo)
    (other,) = saved(tmp_path, grpo)
    out = tmp_path / "new" / "page.html"
    assert main(["explore", str(run), str(other), "--out", str(out), "--eval-prompts", "3"]) == 0
    assert f"{out} shows 3 tasks and 2 runs in " in capsys.readouterr().out
    data = Page(out).data
    assert data["policies"] == ["vpo", "grpo"]
    assert data["environment"] == "vpo/Maze-v0"
    assert [one["index"] for one in data["tasks"]] == [0, 1, 2]
    assert (data["size"], data["counts"]) == (12, [3, 12]), "one rollout of three answers, and all"
    assert data["notes"] == ["The first 3 tasks of 5, not selected."]


def test_every_answer_keeps_its_text_its_rewards_and_its_status(tmp_path: Path) -> None:
    pools = two_pools()
    explore_runs(saved(tmp_path, *pools), out=tmp_path / "page.html")
    for place, task in enumerate(Page(tmp_path / "page.html").data["tasks"]):
        for pool, answers in zip(pools, task["answers"], strict=True):
            m = pool.rewards.shape[2]
            written = [text for one in pool.responses[place] for text in split_answers(one, m)]
            assert [task["texts"][text]["text"] for _, text in answers] == written
            rewards = np.array([task["vectors"][vector] for vector, _ in answers])
            np.testing.assert_allclose(rewards, pool.rewards[place].reshape(rewards.shape), atol=1e-4)
            codes = [Status[task["texts"][text]["status"].upper()] for _, text in answers]
            assert codes == pool.status[place].ravel().tolist()


def test_the_task_tells_how_its_answers_are_drawn(tmp_path: Path) -> None:
    explore_runs(saved(tmp_path, maze_pool(0)), out=tmp_path / "page.html")
    task = Page(tmp_path / "page.html").data["tasks"][0]
    board = task["drawing"]["board"]
    paths = [one["drawing"]["path"] for one in task["texts"] if one["drawing"]]
    assert len(paths) > 3
    for path in paths:
        symbols = [board[y][x] for x, y in path]
        assert symbols[0] == "S"
        assert "#" not in symbols
        assert all(abs(x - u) + abs(y - v) <= 1 for (x, y), (u, v) in pairwise(path))
    answers = [task["texts"][text]["drawing"]["path"] for _, text in task["front"]]
    ends = {board[y][x] for *_, (x, y) in answers}
    assert ends == {"E"}, "every answer of the front reaches the exit"


def test_the_front_has_its_points_with_the_answers_that_attain_them(tmp_path: Path) -> None:
    explore_runs(saved(tmp_path, *two_pools()), out=tmp_path / "page.html")
    env = make_text_env("vpo/Maze-v0", preset="compact", split="test", num_answers=3)
    for task in Page(tmp_path / "page.html").data["tasks"]:
        found = {(*task["vectors"][vector], task["texts"][text]["text"]) for vector, text in task["front"]}
        points = env.front(env.task(task["index"]))
        assert found == {(*(round(value, 4) for value in point.vector), point.answer) for point in points}


def test_inactive_objectives_are_left_out_of_a_task(tmp_path: Path) -> None:
    pool = replace(random_pool(), responses=tuple(("<answer_1>x</answer_1>",) * 4 for _ in range(3)))
    explore_runs(saved(tmp_path, pool), out=tmp_path / "page.html")
    data = Page(tmp_path / "page.html").data
    assert [one["active"] for one in data["tasks"]] == [[0, 1, 2], [0, 1], [0, 1, 2]]
    assert {len(vector) for vector in data["tasks"][1]["vectors"]} == {2}
    assert data["notes"][-1] == (
        "Prompts and the answers of the exact fronts are not shown: the sample file does not state its environment."
    )


def test_runs_that_differ_in_their_seed_alone_are_told_apart(tmp_path: Path) -> None:
    paths = saved(tmp_path, maze_pool(0), maze_pool(1), maze_pool(1))
    explore_runs(paths, out=tmp_path / "page.html")
    assert Page(tmp_path / "page.html").data["policies"] == ["vpo, seed 0", "vpo, seed 1 (2)", "vpo, seed 1 (3)"]
    explore_runs(paths[:2], ["before", "after"], tmp_path / "page.html")
    assert Page(tmp_path / "page.html").data["policies"] == ["before", "after"]


ATTACK = "</script><img src=x onerror=alert(1)><!-- <script> \ud800 \u2028"


def test_nothing_that_a_model_wrote_becomes_part_of_the_page(tmp_path: Path) -> None:
    pool = maze_pool(0)
    texts = tuple(tuple(f"<answer_1>{ATTACK}</answer_1>" for _ in row) for row in pool.responses or ())
    hostile = replace(pool, responses=texts, source={**pool.source, "method": visible(ATTACK)})
    explore_runs(saved(tmp_path, pool), ["clean"], tmp_path / "clean.html")
    explore_runs(saved(tmp_path, hostile), [ATTACK], tmp_path / "hostile.html")
    clean, page = Page(tmp_path / "clean.html"), Page(tmp_path / "hostile.html")
    assert page.tags == clean.tags
    assert "img" not in page.tags
    assert page.scripts[1] == clean.scripts[1]
    assert visible(ATTACK) in [one["text"] for one in page.data["tasks"][0]["texts"]]
    assert page.data["policies"] == [visible(ATTACK)]


def test_the_page_may_load_nothing_and_runs_its_own_script_alone(tmp_path: Path) -> None:
    explore_runs(saved(tmp_path, maze_pool(0)), out=tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    rules = dict(rule.strip().partition(" ")[::2] for rule in page.policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].startswith("'sha256-")
    assert "unsafe" not in page.policy
    assert set(page.tags) & {"img", "link", "iframe", "object", "embed"} == set()


def test_the_page_replaces_an_earlier_one_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pool,) = saved(tmp_path, maze_pool(0))
    out = tmp_path / "page.html"
    assert main(["explore", str(pool), "--out", str(out), "--eval-prompts", "1"]) == 0
    assert main(["explore", str(pool), "--out", str(out), "--eval-prompts", "2"]) == 0
    assert len(Page(out).data["tasks"]) == 2
    other = tmp_path / "thesis.html"
    other.write_text("<p>a thesis", encoding="utf-8")
    capsys.readouterr()
    for place, message in ((other, "holds something other than a page of vpo explore"), (tmp_path, "is a folder")):
        assert main(["explore", str(pool), "--out", str(place)]) == 2
        assert message in capsys.readouterr().err
    assert other.read_text(encoding="utf-8") == "<p>a thesis"


def changed(**source: Any) -> Any:
    pool = two_pools()[1]
    return replace(pool, source={**pool.source, **source})


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: random_pool(), [], "have different objectives"),
        (lambda: replace(two_pools()[1], responses=None), [], "holds rewards without the texts of the answers"),
        (lambda: changed(), ["--labels", "a"], "got 1 label for 2 runs: give one per run"),
        (lambda: changed(), ["--eval-prompts", "0"], "must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, options: list[str], message: str
) -> None:
    paths = saved(tmp_path, maze_pool(0), make())
    assert main(["explore", *map(str, paths), "--out", str(tmp_path / "page.html"), *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_what_the_page_of_an_unknown_environment_lacks_is_said_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = maze_pool(0)
    elsewhere = replace(pool, source={**pool.source, "env": "own/Elsewhere-v0"})
    run = save_run(tmp_path / "vpo", elsewhere, env="menu.py:own/Elsewhere-v0")
    assert main(["explore", str(run), "--out", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(str(tmp_path / "page.html"))
    for part in ("warning: Prompts and the answers", "unknown environment 'own/Elsewhere-v0'", "--import menu.py"):
        assert part in said.err
    task = Page(tmp_path / "page.html").data["tasks"][0]
    assert {task["texts"][text]["text"] for _, text in task["front"]} == {explore.UNKNOWN}


def test_a_long_answer_is_cut_whatever_tags_it_holds_and_its_path_is_drawn_whole(tmp_path: Path) -> None:
    pool = maze_pool(0, prompts=1, rollouts=1, answers=1)
    moves = "Rb1 " * 500
    route = replace(pool, responses=((f"<answer>{moves}</answer>",),))
    tags = replace(pool, responses=((f"<answer>{'<think>x</think>' * 100_000}</answer>",),))
    explore_runs(saved(tmp_path, route, tags), out=tmp_path / "page.html")
    task = Page(tmp_path / "page.html").data["tasks"][0]
    first, second = (task["texts"][answers[0][1]] for answers in task["answers"])
    assert first["drawing"]["says"].split() == ["route", *"R" * 500]
    assert all(len(one["text"]) < 700 and " characters …]" in one["text"] for one in (first, second))


def test_a_page_that_would_be_too_large_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = saved(tmp_path, maze_pool(0))
    explore_runs(paths, out=tmp_path / "page.html", prompts=2)
    monkeypatch.setattr(explore, "MAX_BYTES", (tmp_path / "page.html").stat().st_size + 100)
    with pytest.raises(ValueError, match=r"with 5 tasks, more than .*, such as --eval-prompts 4"):
        explore_runs(paths, out=tmp_path / "page.html")
    assert len(Page(tmp_path / "page.html").data["tasks"]) == 2, "the earlier page is kept"
