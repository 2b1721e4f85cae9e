"""Every environment has a page on one template, and what a page shows is what the environment gives."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from paths import ROOT

from vpo_envs.core import AnswerTimeout, ScorerFailure
from vpo_envs.registration import make_text_env, text_env_ids

sys.path.insert(0, str(ROOT / "docs" / "site"))

import template


def text_of(name: str) -> str:
    return (template.DOCS / f"{name}.md").read_text(encoding="utf-8")


def test_every_text_environment_has_a_page() -> None:
    pages = {shown[0].env_id for shown in template.PAGES.values()}
    assert pages == {*text_env_ids()}


@pytest.mark.parametrize("name", template.PAGES)
def test_a_page_follows_the_template_and_holds_what_is_generated(name: str) -> None:
    text = text_of(name)
    outside_of_fences = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^## (.*)$", outside_of_fences, flags=re.MULTILINE) == [*template.HEADINGS]
    assert f'gym.make("{template.PAGES[name][0].env_id}"' in text
    try:
        assert text == template.filled(name, text), "write it again: python docs/site/template.py"
    except (ScorerFailure, AnswerTimeout) as error:
        pytest.skip(f"this machine cannot score the answers of {name}: {error}")


@pytest.mark.parametrize("name", template.PAGES)
def test_the_answers_of_an_example_compete(name: str) -> None:
    for shown in template.PAGES[name]:
        try:
            task = template.competing(shown)
        except (ScorerFailure, AnswerTimeout) as error:
            pytest.skip(f"this machine cannot score the answers of {name}: {error}")
        (_, first, one), (_, second, other) = task.answers[:2]
        assert first != second
        env = make_text_env(shown.env_id, preset=shown.preset)
        if one:
            vectors, _, _ = env.score_answers(env.task(shown.task), [first, second])
            active = env.active(env.task(shown.task))
            np.testing.assert_allclose(np.array(vectors)[:, active], [one, other], atol=1e-6)
            beats = [any(a > b for a, b in zip(*pair, strict=True)) for pair in ((one, other), (other, one))]
            # Of a program, one is right and serves everybody.
            assert beats == [True, name != "programs"]
