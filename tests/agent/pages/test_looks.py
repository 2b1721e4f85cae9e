from __future__ import annotations

import pytest

from vpo_agent.estimators import available_estimators
from vpo_agent.pages.figure_style import GREY, KNOWN, PALETTE, looks


@pytest.mark.parametrize("label", ["vpo", "VPO", "vpo-seed3"])
def test_a_method_looks_the_same_beside_any_other_and_in_any_place(label: str) -> None:
    alone = looks([label])
    assert looks(["ours", "grpo", label])[2] == looks([label, "grpo"])[0] == alone[0] == looks(["vpo"])[0]


def test_registered_methods_are_told_apart() -> None:
    names = available_estimators()
    assert set(KNOWN) <= set(names), "no label of a study"
    assert len(set(looks(names))) == len(names)


def test_a_label_of_its_own_takes_the_look_of_its_method_unless_that_is_shown() -> None:
    assert looks(["after"], ["grpo"]) == looks(["grpo"])
    beside = looks(["vpo", "vpo with credit"], ["vpo", "vpo"])
    assert beside[0].colour != beside[1].colour


def test_unknown_labels_take_free_colours_first() -> None:
    shown = looks(["grpo", *"abcdefg"])
    assert {look.colour for look in shown[:6]} == set(PALETTE)
    assert len(set(shown)) == 8


def test_a_model_before_training_is_grey_whatever_it_is_trained_with_later() -> None:
    labels = ["before", "base", "base, 3 answers a rollout", "baseline-free"]
    *grey, other = looks(labels, ["vpo"] * 4)
    assert {look.colour for look in grey} == {GREY}
    assert len({look.marker for look in grey}) == 3
    assert other == looks(["vpo"])[0]
