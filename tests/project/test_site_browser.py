"""The site in a browser: the playground scores picks as the rewards say, and pages fit a phone and a desktop."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import AXE, DRIVER, Browser, chromium
from paths import ROOT

from vpo_envs.registration import make_text_env

sys.path.insert(0, str(ROOT / "docs" / "site"))

import gallery
import playground
import stage
import template

DRAWN = (0.9, 0.2, 0.6, 0.4)
"""What the page is given for random numbers, over and over."""
VIEWS = list(product((390, 1300), ("light", "dark")))


@pytest.fixture(scope="module")
def rounds() -> list[dict[str, Any]]:
    return playground.rounds()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if DRIVER is None:
        pytest.skip("needs Chromium and chromedriver: make browser")
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, rounds: list[dict[str, Any]]) -> Path:
    file = tmp_path_factory.mktemp("playground") / "playground.html"
    playground.write_playground(file, rounds)
    return file


def play(browser: Browser, page: Path) -> None:
    """Open the page with known random numbers."""
    browser.open(page)
    browser.run("let n = 0; Math.random = () => arguments[0][n++ % arguments[0].length]", DRAWN)


def pick(browser: Browser, *letters: str) -> None:
    for letter in letters:
        browser.run("document.querySelectorAll('.pick')[arguments[0]].click()", "ABCDEF".index(letter))


def weights(number: int, d: int) -> np.ndarray:
    """The weighting of a round of d objectives, after other numbers have been drawn."""
    drawn = -np.log(1 - np.array([DRAWN[(number + i) % len(DRAWN)] for i in range(d)]))
    return drawn / drawn.sum()


def test_the_answers_earn_what_is_shown(rounds: list[dict[str, Any]]) -> None:
    for shown in rounds:
        env = make_text_env(shown["environment"], preset=playground.PLAYED[shown["environment"]])
        assert 4 <= len(shown["answers"]) <= 6
        task = next(task for task in map(env.task, range(playground.TASKS)) if env.prompt(task, 1) == shown["prompt"])
        vectors, _, _ = env.score_answers(task, [answer["text"] for answer in shown["answers"]])
        earned = np.array(vectors)[:, np.flatnonzero(env.active(task))]
        assert np.allclose(earned, [answer["vector"] for answer in shown["answers"]], atol=1e-4)


def test_a_pick_is_scored_under_the_hidden_weights_against_the_best_and_the_best_mean(
    browser: Browser, page: Path, rounds: list[dict[str, Any]]
) -> None:
    play(browser, page)
    drawn, sums = 0, np.zeros(3)
    for number, shown in enumerate(rounds[:3], start=1):
        assert browser.text(".panel .score") == ""
        pick(browser, "B")
        rewards = np.array([answer["vector"] for answer in shown["answers"]])
        scores = rewards @ weights(drawn, rewards.shape[1])
        drawn += rewards.shape[1]
        best, mean = scores.argmax(), rewards.mean(axis=1).argmax()
        assert browser.text("#finding") == (
            f"You picked B: {scores[1]:.2f}. The best here is {'ABCDEF'[best]} with {scores[best]:.2f}; "
            f"the best mean, {'ABCDEF'[mean]}, has {scores[mean]:.2f}."
        )
        sums += scores[[1, mean, best]]
        totals = browser.run("return [...document.querySelectorAll('#totals td')].map((cell) => cell.textContent)")
        assert totals == [f"{total / number:.2f}" for total in sums]
        browser.click("#next")


def test_three_picks_count_by_the_best_of_them(browser: Browser, page: Path, rounds: list[dict[str, Any]]) -> None:
    play(browser, page)
    browser.run("document.querySelector('[name=count][value=\"3\"]').click()")
    pick(browser, "A", "B", "B", "C")
    assert browser.text("#finding") == "Pick 3 answers."
    pick(browser, "D")
    scores = [np.dot(answer["vector"], weights(0, 3)) for answer in rounds[0]["answers"]]
    assert browser.text("#finding").startswith(f"You picked A, C, D: {max(scores[0], scores[2], scores[3]):.2f}. ")


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_the_playground_fits_and_loads_nothing(browser: Browser, page: Path, width: int, scheme: str) -> None:
    browser.prefer(prefers_color_scheme=scheme)
    browser.resize(width, 900)
    browser.open(page)
    pick(browser, "A")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.console() == []
    assert not AXE.exists() or browser.violations() == []


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the start page, the gallery and a page of an environment."""
    pages, built = tmp_path_factory.mktemp("pages"), tmp_path_factory.mktemp("built")
    shutil.copytree(template.DOCS / "explore", pages / "explore")
    shutil.copytree(template.DOCS / "images", pages / "images")
    (pages / "index.md").write_text(stage.landing(), encoding="utf-8")
    environments = (template.DOCS / "environments.md").read_text(encoding="utf-8")
    (pages / "environments.md").write_text(gallery.with_gallery(environments), encoding="utf-8")
    shutil.copy(template.DOCS / "maze.md", pages)
    # The links to other pages, which are not there, are warnings.
    build = [sys.executable, "-m", "sphinx", "-Q", "-c", str(template.DOCS / "site"), str(pages), str(built)]
    subprocess.run(build, check=True)
    return built


@pytest.mark.slow
def test_no_page_of_the_site_is_wider_than_the_window(browser: Browser, tmp_path: Path) -> None:
    """Of the whole site; a table that is wider scrolls by itself, also with the keyboard."""
    pages, built = tmp_path / "pages", tmp_path / "built"
    stage.main(pages)
    build = [sys.executable, "-m", "sphinx", "-Q", "-c", str(template.DOCS / "site"), str(pages), str(built)]
    subprocess.run(build, check=True)
    found = sorted(page for page in built.rglob("*.html") if "_static" not in page.parts)
    assert len(found) > len(list(template.DOCS.glob("*.md")))
    wide: list[str] = []
    scrolling: set[str] = set()
    for page in found:
        browser.open(page)
        for width in (390, 1300):
            browser.resize(width, 900)
            browser.run("markScrollers()")
            if browser.run("return document.documentElement.scrollWidth") > width:
                wide.append(f"{page.relative_to(built)} at {width}")
            scrollers = browser.run(
                "return [...document.querySelectorAll('.table-wrapper')]"
                ".filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.tabIndex)"
            )
            assert set(scrollers) <= {0}, f"{page} has a table that the keyboard cannot scroll"
            if scrollers:
                scrolling.add(page.stem)
    assert wide == []
    assert {"results_tables", "more_results"} <= scrolling
    browser.resize(1300, 900)
    browser.open(built / "more_results.html")
    assert not AXE.exists() or browser.violations() == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
@pytest.mark.parametrize("name", ["index", "environments", "maze"])
def test_pages_of_the_site_fit_and_axe_finds_nothing(
    browser: Browser, site: Path, name: str, width: int, scheme: str
) -> None:
    browser.prefer(prefers_color_scheme=scheme)
    browser.resize(width, 900)
    browser.console()
    browser.open(site / f"{name}.html")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    overlaps = browser.run(
        "const boxes = [...document.querySelectorAll('.card')].map((card) => card.getBoundingClientRect());"
        "return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) =>"
        " a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length"
    )
    assert overlaps == 0
    assert browser.console() == []
    assert not AXE.exists() or browser.violations() == []


@pytest.mark.parametrize("width", [390, 1300])
def test_the_explorer_on_the_start_page_is_live_and_shown_whole(browser: Browser, site: Path, width: int) -> None:
    browser.resize(width, 900)
    browser.open(site / "index.html")
    browser.wait("return document.querySelector('iframe.hero').style.height")
    with browser.frame("iframe.hero"):
        browser.wait("return document.getElementById('finding')?.textContent")
        assert browser.text("#finding").startswith("On this task, as the weighting changes, VPO ")
        browser.wait("return document.documentElement.scrollHeight <= innerHeight")
