"""A report on a phone: nothing sticks out of the page, and figures keep a readable size."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import DRIVER, chromium
from PIL import Image

from vpo_agent.report.page import Page

pytestmark = pytest.mark.skipif(DRIVER is None, reason="needs Chromium and chromedriver: make browser")


def test_a_report_fits_a_phone(tmp_path: Path) -> None:
    Image.new("RGB", (1800, 900), "white").save(tmp_path / "wide.png")
    page = Page("Comparison of runs")
    page.paragraph("A sentence that is long enough to need several lines on the screen of a phone.")
    page.figure(tmp_path / "wide.png", "a wide figure", "Its caption.")
    page.table(["measure", "unit", "vpo", "grpo"], [["best@1 ↑", "1 answer", *["0.317 [0.313, 0.321]"] * 2]], "llrr")
    page.text("x" * 500)
    (tmp_path / "report.html").write_text(page.html(), encoding="utf-8")
    with chromium(tmp_path / "profile") as browser:
        browser.resize(390, 844)
        browser.open(tmp_path / "report.html")
        assert browser.run("return document.documentElement.scrollWidth") <= 390
        assert browser.run("return document.querySelector('img').width") > 600
        browser.resize(1280, 900)
        assert browser.run("return document.querySelector('.wide').scrollWidth") <= 1280
