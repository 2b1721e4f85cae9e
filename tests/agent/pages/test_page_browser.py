"""A report on a phone: nothing sticks out of the page, and figures keep a readable size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import AXE, DRIVER, Browser, chromium
from PIL import Image

from vpo_agent.pages.page import Page

pytestmark = pytest.mark.skipif(DRIVER is None, reason="needs Chromium and chromedriver: make browser")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser the size of a phone, with a report in it."""
    Image.new("RGB", (1800, 900), "white").save(tmp_path / "wide.png")
    page = Page("Comparison of runs")
    page.paragraph("A sentence that is long enough to need several lines on the screen of a phone.")
    page.figure(tmp_path / "wide.png", "a wide figure", "Its caption.")
    page.table(["measure", "unit", "vpo", "grpo"], [["best@1 ↑", "1 answer", *["0.317 [0.313, 0.321]"] * 2]], "llrr")
    (tmp_path / "report.html").write_text(page.html(), encoding="utf-8")
    with chromium(tmp_path / "profile") as opened:
        opened.resize(390, 844)
        opened.open(tmp_path / "report.html")
        yield opened


def test_a_report_fits_a_phone(browser: Browser) -> None:
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    assert browser.run("return document.querySelector('img').width") > 600
    browser.resize(1280, 900)
    assert browser.run("return document.querySelector('.wide').scrollWidth") <= 1280


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: make browser")
def test_axe_finds_no_barrier_and_the_keyboard_moves_a_wide_figure(browser: Browser) -> None:
    assert browser.violations() == []
    browser.press("tab", "right")
    browser.wait("return document.activeElement.scrollLeft > 0")
