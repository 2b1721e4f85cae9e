"""The gallery shows what the environments give now."""

from __future__ import annotations

import re
from typing import Any

import pytest
from paths import ROOT

from vpo_agent.command import gallery
from vpo_envs.core import AnswerTimeout, ScorerFailure
from vpo_envs.registration import env_ids, make_text_env, text_env_ids
from vpo_envs.tasks.tools.task import FORMAT
from vpo_envs.wording import cut

PAGE = ROOT / "docs" / "gallery.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("env_id", env_ids())
def test_the_examples_of_an_environment_are_those_that_it_gives(env_id: str) -> None:
    try:
        made = gallery.section(env_id, env_id in text_env_ids())
    except (ScorerFailure, AnswerTimeout) as error:
        pytest.skip(f"this machine cannot score {env_id}: {error}")
    assert made in TEXT, "run python -m vpo_agent.command.gallery > docs/gallery.md"


def test_the_gallery_begins_with_what_is_shared_and_names_every_environment_once() -> None:
    assert TEXT.startswith(gallery.HEADING + "\n" + gallery.shared_section())
    named = [line.removeprefix("## ") for line in TEXT.splitlines() if line.startswith("## ")]
    assert named == ["Every text environment", *env_ids()]


def test_no_markup_of_the_source_is_in_the_page() -> None:
    assert not re.search(r":[a-z]+:`|(?<!`)``\w", TEXT)
    assert "the module's table" not in TEXT


@pytest.mark.parametrize("kwargs", [{}, {"preset": "conflict"}], ids=str)
def test_a_cut_prompt_keeps_the_answer_format(kwargs: dict[str, Any]) -> None:
    env = make_text_env("vpo/Tools-v0", **kwargs)
    for prompt in [env.prompt(env.task(i), 3) for i in range(20)]:
        assert re.findall(r"</?\w+>", cut(prompt)) == re.findall(r"</?\w+>", prompt)
        assert FORMAT in cut(prompt)


def test_a_fence_is_longer_than_those_inside() -> None:
    assert gallery.fenced("a\n````\nb").startswith("`````text\n")
