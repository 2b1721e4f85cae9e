"""``vpo explore`` in a browser: weights by mouse and keyboard, what a screen reader hears, and hostile answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import AXE, DRIVER, Browser, chromium
from pools import maze_pool

from vpo_agent.bench.sample import Written
from vpo_agent.command import main
from vpo_agent.explore.page import explore_runs
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.sampling import sample_pool
from vpo_envs import Status
from vpo_envs.registration import make_text_env
from vpo_envs.text import format_answers

pytestmark = pytest.mark.skipif(DRIVER is None, reason="needs Chromium and chromedriver: make browser")

SPECIALISTS, COMPROMISE = np.eye(3), np.full(3, 0.4)
HOSTILE = "</script><img src=x onerror='window.hacked = 1'><svg onload='window.hacked = 1'>"


def pool_of(answers: list[tuple[str, Any]], m: int, method: str) -> Pool:
    """A pool without an environment: two tasks, each with the same answers."""
    vectors = np.array([vector for _, vector in answers], dtype=np.float32)
    rewards = np.broadcast_to(vectors.reshape(-1, m, vectors.shape[1]), (2, len(answers) // m, m, vectors.shape[1]))
    texts = tuple(format_answers([text for text, _ in answers[at : at + m]], m) for at in range(0, len(answers), m))
    d = vectors.shape[1]
    return Pool(
        rewards=rewards.copy(),
        status=np.zeros(rewards.shape[:3], dtype=np.int8),
        active=np.ones((2, d), dtype=bool),
        scalar_weights=np.full((2, d), 1 / d),
        indices=np.arange(2),
        objectives=("fast", "cheap", "good", "kind", "calm")[:d],
        fronts=(np.concatenate([np.eye(d), np.full((1, d), 0.4)]),) * 2,
        responses=(texts, texts),
        source={"method": method, "seed": 0},
    )


def page_of(folder: Path, *pools: Pool) -> Path:
    paths = [folder / f"{number}.npz" for number in range(len(pools))]
    for path, pool in zip(paths, pools, strict=True):
        pool.save(path)
    explore_runs(paths, out=folder / "page.html")
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three specialists of one policy beside three equal compromises of the other, under three objectives."""
    vpo = pool_of([("race", SPECIALISTS[0]), ("save", SPECIALISTS[1]), ("polish", SPECIALISTS[2])], 3, "vpo")
    grpo = pool_of([("a bit of each", COMPROMISE)] * 3, 1, "grpo")
    return page_of(tmp_path_factory.mktemp("three"), vpo, grpo)


def panels(browser: Browser) -> list[list[str]]:
    """Name, score and drawn answer of each panel."""
    script = (
        "return [...document.querySelectorAll('.panel')].map((panel) => ['h3', '.score', '.answer']"
        ".map((part) => panel.querySelector(part).textContent))"
    )
    found: list[list[str]] = browser.run(script)
    return found


def focused(browser: Browser) -> str:
    return str(browser.run("return document.activeElement.id || document.activeElement.getAttribute('role') || ''"))


def test_the_first_screen_shows_the_point_before_anything_is_touched(browser: Browser, three: Path) -> None:
    browser.resize(1366, 860)
    browser.open(three)
    assert browser.text("#finding") == (
        "On this task, as the weighting changes, vpo wins with 3 different answers and grpo has one answer for all of "
        "them. Mean score over all weightings: vpo 0.61, grpo 0.40, best possible 0.61; mean of the 2 tasks on this "
        "page: vpo 0.61, grpo 0.40, best possible 0.61."
    )
    script = "return [...document.querySelectorAll('.panel')].map((panel) => panel.querySelectorAll('.area').length)"
    assert browser.run(script) == [3, 1, 4]
    assert browser.run("return document.querySelector('.plane').getBoundingClientRect().bottom < innerHeight")
    assert browser.console() == []


def test_dragging_the_point_changes_who_wins(browser: Browser, three: Path) -> None:
    browser.resize(1366, 860)
    browser.open(three)
    width = browser.run("return document.querySelector('.plane svg').getBoundingClientRect().width")
    # From the middle far beyond the right-hand corner, where the third objective has all the weight.
    browser.drag(".plane svg", (0, 0), (width * 0.6, width * 0.6))
    assert panels(browser) == [
        ["vpo", "1.00", "polish"],
        ["grpo", "0.40", "a bit of each"],
        ["Exact front", "1.00", "(an answer that is not known here)"],
    ]
    assert browser.run("return document.getElementById('weight-2').value") == "100"


def test_the_keyboard_alone_moves_the_weights_and_changes_the_task(browser: Browser, three: Path) -> None:
    browser.open(three)
    browser.press("right")
    assert browser.run("return document.getElementById('task').value") == "1"
    browser.press("left")
    assert browser.run("return document.getElementById('task').value") == "0"
    seen = []
    while "slider" not in seen:
        browser.press("tab")
        seen.append(focused(browser))
    assert [name for name in seen if name] == [
        "task",
        "next",
        "weight-0",
        "weight-1",
        "weight-2",
        "equal",
        "tour",
        "slider",
    ]
    browser.press("2")
    assert panels(browser)[0] == ["vpo", "1.00", "save"]
    browser.press("up")
    assert browser.text(".slider .share") == "3\u00a0%"
    browser.press("0")
    assert panels(browser)[1][1] == "0.40"
    browser.run("document.getElementById('weight-0').focus()")
    browser.press("right", "right")
    assert browser.run("return document.getElementById('weight-0').value") == "35"


def test_a_screen_reader_hears_names_values_and_the_winner(browser: Browser, three: Path) -> None:
    browser.open(three)
    browser.press("tab")
    browser.run("equalWeights()")
    browser.run("moveOne(1, 1)")
    browser.wait("return document.getElementById('status').textContent.includes('cheap 100')")
    said = browser.text("#status").replace("\u00a0", " ")
    assert said == (
        "Task 1. fast 0 %, cheap 100 %, good 0 %. vpo: answer C, 1.00; grpo: answer B, 0.40; "
        "Exact front: answer C, 1.00."
    )
    nodes = [(node["role"]["value"], node["name"]["value"]) for node in browser.accessibility_tree() if "name" in node]
    named = {role: {name for one, name in nodes if one == role} for role, _ in nodes}
    assert {"fast", "cheap", "good", "Weights of fast, cheap, good"} <= named["slider"]
    assert {"Previous task", "Next task", "Only cheap counts"} <= named["button"]
    assert {"vpo", "grpo", "Exact front"} <= named["article"]
    silent = [role for role, name in nodes if role in ("button", "slider", "combobox", "radio", "image") and not name]
    assert silent == []


def test_a_letter_of_the_table_moves_the_weights_to_where_it_wins(browser: Browser, three: Path) -> None:
    browser.open(three)
    browser.click("#answers tbody tr:nth-child(4) button")
    assert panels(browser)[0][2] == "polish"
    assert browser.run("return document.querySelectorAll('#answers tr.won').length") == 2


def test_the_map_of_the_score_and_the_number_of_answers_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
    vpo = pool_of([("race", SPECIALISTS[0]), ("save", SPECIALISTS[1])], 1, "vpo")
    browser.open(page_of(tmp_path, vpo))
    assert browser.text(".about") == "1 answer wins somewhere"
    browser.run("document.querySelector('#counts input[value=\"2\"]').click()")
    assert browser.text(".about") == "2 answers win somewhere"
    browser.run("document.querySelector('#modes input[value=score]').click()")
    assert browser.run("return document.querySelectorAll('.band').length") > 10


@pytest.mark.parametrize("d", [1, 2, 5])
def test_any_other_number_of_objectives_has_sliders_and_a_line(browser: Browser, tmp_path: Path, d: int) -> None:
    browser.open(
        page_of(tmp_path, pool_of([(name, vector) for name, vector in zip("abcde", np.eye(d), strict=False)], 1, "vpo"))
    )
    browser.run(f"document.querySelector('#counts input[value=\"{d}\"]')?.click()")
    assert browser.run("return document.querySelectorAll('.slider').length") == d
    browser.run(f"moveOne({d - 1}, 1)")
    assert panels(browser)[0] == ["vpo", "1.00", "abcde"[d - 1]]
    assert browser.run("return document.querySelectorAll('.triangle').length") == 0
    assert browser.console() == []


def test_a_maze_is_drawn_with_its_routes(browser: Browser, tmp_path: Path) -> None:
    pool = maze_pool(0, prompts=2)
    browser.open(page_of(tmp_path, pool))
    label = browser.run("return document.querySelector('.board').getAttribute('aria-label')")
    assert label.startswith("Maze with the route ")
    assert set(label.removeprefix("Maze with the route ").split()) <= set("UDLR")
    assert browser.run("return document.querySelectorAll('.chosen .line').length") == 2


def test_a_policy_that_earns_nothing_wins_nowhere_and_its_status_is_said(browser: Browser, tmp_path: Path) -> None:
    vpo = pool_of([("race", SPECIALISTS[0]), ("save", SPECIALISTS[1]), ("polish", SPECIALISTS[2])], 3, "vpo")
    late = pool_of([("too late", np.zeros(3))] * 3, 1, "grpo")
    late.status[:] = Status.TIMED_OUT
    browser.open(page_of(tmp_path, vpo, late))
    assert "vpo wins with 3 different answers and grpo earns nothing." in browser.text("#finding")
    panel = "return [...document.querySelectorAll('.panel')][1].querySelector(arguments[0]).textContent"
    assert browser.run(panel, ".about") == "no answer earns anything"
    assert browser.run(panel, "figcaption") == "0earns nothing (timed out), 3 of 3"
    assert browser.run("return document.querySelectorAll('#all tr')[2].lastChild.textContent") == "0.0"
    assert "3 of 3, never wins" in browser.text("#answers tbody tr:last-child")


def test_the_lines_of_a_program_stay_apart_in_the_table(browser: Browser, tmp_path: Path) -> None:
    program = "def add(a, b):\n    return a + b"
    browser.open(page_of(tmp_path, pool_of([(program, SPECIALISTS[0])], 1, "vpo")))
    shown = browser.run("return [...document.querySelectorAll('#answers code')].map((code) => code.innerText)")
    assert program in shown


def test_an_answer_that_is_markup_is_shown_and_not_run(browser: Browser, tmp_path: Path) -> None:
    pool = pool_of([(HOSTILE, SPECIALISTS[0])], 1, HOSTILE)
    browser.open(page_of(tmp_path, replace(pool, source={**pool.source, "env": HOSTILE})))
    assert panels(browser)[0] == [HOSTILE, "0.62", HOSTILE]
    assert browser.run("return [window.hacked, document.images.length]") == [None, 0]
    # Even markup that had become part of the page would not run.
    browser.run("document.body.insertAdjacentHTML('beforeend', arguments[0])", HOSTILE)
    browser.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 1'}))")
    assert browser.run("return window.hacked") is None
    assert any("Content Security Policy" in message for message in browser.console())


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: make browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1366])
def test_axe_finds_no_barrier(browser: Browser, tmp_path: Path, scheme: str, width: int) -> None:
    page = page_of(tmp_path, maze_pool(0, prompts=2), maze_pool(1, prompts=2, answers=1, rollouts=12, method="grpo"))
    browser.resize(width, 860)
    browser.prefer(prefers_color_scheme=scheme)
    browser.open(page)
    assert browser.violations() == []
    browser.run("document.body.insertAdjacentHTML('beforeend', '<button></button>')")
    assert [found.split()[0] for found in browser.violations()] == ["button-name"]
    browser.prefer(prefers_color_scheme="light")
    browser.resize(1366, 860)


@pytest.fixture(scope="module", params=["compact", "conflict"])
def replying(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The explorer and the transcripts of responses in which the archive replies, the best three answers of tasks."""
    folder = tmp_path_factory.mktemp("replying")
    env = make_text_env("vpo/Archive-v0", preset=request.param, num_answers=3, split="test")
    texts = [format_answers([point.answer for point in env.front(env.task(index))], 3) for index in range(2)]
    sampling = {"rollouts": 2, "max_new_tokens": 99, "temperature": 1.0, "seed": [0], "source": {"method": "vpo"}}
    pool = sample_pool(env, Written(texts), range(2), **sampling)
    explorer = page_of(folder, pool)
    assert main(["show", str(folder / "0.npz")]) == 0
    return explorer, folder / "0.html"


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: make browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_replies_stand_apart_from_what_the_model_wrote(
    browser: Browser, replying: tuple[Path, Path], scheme: str, width: int
) -> None:
    browser.resize(width, 860)
    browser.prefer(prefers_color_scheme=scheme)
    for page in replying:
        browser.open(page)
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        shown = browser.run("return document.querySelector('.panel pre').innerText.split('\\n')")
        assert shown[0].startswith("<open>")
        assert shown[1].startswith("reply ")
        assert not browser.run("return /[\\ue000\\ue001]/.test(document.querySelector('main').innerText)")
        colour = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
        assert browser.run(colour, ".panel pre .reply") != browser.run(colour, ".panel pre")
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.violations() == []
        assert browser.console() == []
    browser.prefer(prefers_color_scheme="light")
    browser.resize(1366, 860)


def test_the_status_of_an_answer_stands_on_one_line(browser: Browser, tmp_path: Path) -> None:
    env = make_text_env("vpo/Archive-v0", preset="compact", num_answers=3, split="test")
    sampling = {"rollouts": 1, "max_new_tokens": 9, "temperature": 1.0, "seed": [0], "source": {"method": "vpo"}}
    far = range(10**9, 10**9 + 1)  # Its number fills the line.
    sample_pool(env, Written(["nothing"]), far, **sampling).save(tmp_path / "pool.npz")
    assert main(["show", str(tmp_path / "pool.npz")]) == 0
    browser.resize(390, 860)
    browser.open(tmp_path / "pool.html")
    text = "const range = document.createRange(); range.selectNodeContents(document.querySelector('.answers h2'));"
    assert browser.run(f"{text} return [range.toString(), range.getClientRects().length]") == ["missing", 1]
    browser.resize(1366, 860)


@pytest.mark.parametrize("width", [320, 768])
def test_the_page_fits_a_narrow_screen(browser: Browser, tmp_path: Path, width: int) -> None:
    page = page_of(tmp_path, maze_pool(0), maze_pool(1, answers=1, rollouts=12, method="grpo"))
    browser.resize(width, 800)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.resize(1366, 860)


def test_the_address_keeps_the_view(browser: Browser, three: Path) -> None:
    browser.open(three, "#i=2&w=0-100-0")
    assert browser.run("return document.getElementById('task').value") == "1"
    assert panels(browser)[0][2] == "save"
    browser.run("moveOne(0, 1)")
    browser.wait("return location.hash === '#i=2&w=100-0-0'")
    browser.open(three, "#i=99&w=x")
    assert browser.run("return document.getElementById('task').value") == "0"


def test_a_tour_moves_the_weights_until_the_reader_does(browser: Browser, three: Path) -> None:
    browser.open(three)
    browser.click("#tour")
    browser.wait("return Number(document.getElementById('weight-0').value) > 62")
    assert browser.run("equalWeights(); return document.getElementById('tour').ariaPressed") == "false"
    assert browser.run("return document.getElementById('weight-1').value") == "33"
