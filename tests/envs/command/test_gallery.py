"""The gallery shows what the environments give now."""

from __future__ import annotations

import pytest
from paths import ROOT

from vpo_envs.command import gallery
from vpo_envs.core import AnswerTimeout, ScorerFailure
from vpo_envs.registration import env_ids, text_env_ids

PAGE = ROOT / "docs" / "gallery.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("env_id", env_ids())
def test_the_examples_of_an_environment_are_those_that_it_gives(env_id: str) -> None:
    try:
        made = gallery.section(env_id, env_id in text_env_ids())
    except (ScorerFailure, AnswerTimeout) as error:
        pytest.skip(f"this machine cannot score {env_id}: {error}")
    assert made in TEXT, "run python -m vpo_envs.command.gallery > docs/gallery.md"


def test_the_gallery_begins_with_what_is_shared_and_names_every_environment_once() -> None:
    assert TEXT.startswith(gallery.HEADING + "\n" + gallery.shared_section())
    named = [line.removeprefix("## ") for line in TEXT.splitlines() if line.startswith("## ")]
    assert named == ["Every text environment", *env_ids()]


def test_a_fence_is_longer_than_those_inside() -> None:
    assert gallery.fenced("a\n````\nb").startswith("`````text\n")
