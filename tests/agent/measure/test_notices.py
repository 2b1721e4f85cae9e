"""Advice about a pool: that answers earn nothing or cannot be read, and what training from it can gain."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from paths import ROOT
from pools import maze_pool, random_pool

from vpo_agent.measure.measures import measures
from vpo_agent.measure.notices import (
    FOUND,
    LITTLE,
    MUCH,
    RARE,
    REACHED,
    about_rewards,
    good_rewards,
    no_signal,
    notices,
    prospects,
)
from vpo_agent.measure.pool import Pool
from vpo_agent.measure.summary import summarise
from vpo_envs import Status
from vpo_envs.registration import make_text_env
from vpo_envs.text import with_reply


@pytest.mark.parametrize(
    ("tokens", "notice"),
    [
        (
            64,
            "100% of the responses were cut at --max-new-tokens 64, and 100% of the answers cannot be read: allow more",
        ),
        (63, "100% of the answers cannot be read"),
        (None, "100% of the answers cannot be read"),
    ],
)
def test_answers_that_cannot_be_read_are_said_with_one_response(tokens: int | None, notice: str) -> None:
    pool = random_pool()
    shape = pool.rewards.shape[:2]
    unread = replace(
        pool,
        status=np.full_like(pool.status, Status.MISSING),
        tokens=None if tokens is None else np.full(shape, tokens, np.int32),
        responses=tuple(tuple("<think> hm" for _ in range(shape[1])) for _ in range(shape[0])),
        source={"max_new_tokens": 64},
    )
    assert notices(unread) == [f"{notice}. The first response: '<think> hm'"]
    assert notices(replace(unread, responses=None)) == [notice]
    replied = replace(unread, responses=((with_reply("<open>a</open>", "b"),) * shape[1],) * shape[0])
    assert notices(replied) == [f"{notice}. The first response: '<open>a</open>\\n<reply>b</reply>\\n'"]


def test_responses_that_are_cut_are_said_though_most_answers_are_read() -> None:
    pool = random_pool(answers=3)
    status = np.zeros_like(pool.status)
    status[..., -1] = Status.MISSING
    cut = replace(
        pool, status=status, tokens=np.full(pool.rewards.shape[:2], 64, np.int32), source={"max_new_tokens": 64}
    )
    notice = "100% of the responses were cut at --max-new-tokens 64, and 33% of the answers cannot be read: allow more"
    assert notices(cut) == [notice]
    assert notices(replace(cut, tokens=cut.tokens - 1)) == [], "they have ended by themselves"


def test_answers_that_are_read_need_no_notice() -> None:
    pool = random_pool()
    cut = np.full(pool.rewards.shape[:2], 64, np.int32)
    assert notices(replace(pool, status=np.zeros_like(pool.status), tokens=cut)) == []


@pytest.mark.parametrize(("factor", "shift"), [(3, 0), (1, -0.5)])
def test_rewards_that_leave_the_unit_interval_are_named_and_have_no_hypervolume(factor: float, shift: float) -> None:
    pool = random_pool(fronts=False)
    rewards = pool.rewards.copy()
    rewards[..., 1] = factor * rewards[..., 1] + shift
    (notice,) = notices(replace(pool, rewards=rewards, status=np.zeros_like(pool.status)))
    low, high = rewards[..., 1].min(), rewards[..., 1].max()
    assert notice.startswith(f"rewards leave [0, 1]: silver ({low:g} to {high:g}). ")
    assert "hypervolume" in {one.name for one in measures(pool)}
    assert "hypervolume" not in {one.name for one in measures(replace(pool, rewards=rewards))}


def flat_pool(vectors: list[list[float]], **changes: object) -> Pool:
    """Six prompts with the same six answers each, of which an answer is a response."""
    rewards = np.array(vectors, dtype=np.float32)[None, :, None].repeat(6, axis=0)
    n, answers, _, d = rewards.shape
    pool = Pool(
        rewards=rewards,
        status=np.zeros((n, answers, 1), np.int8),
        active=np.ones((n, d), bool),
        scalar_weights=np.full((n, d), 1 / d),
        indices=np.arange(n),
        objectives=("gold", "silver", "bronze")[:d],
        fronts=None,
        source={"max_new_tokens": 8},
    )
    return replace(pool, **changes)  # type: ignore[arg-type]


def test_where_nothing_is_earned_the_way_out_is_a_warm_start_and_not_more_tokens() -> None:
    pool = maze_pool(prompts=2)
    source = {**pool.source, "model": "runs/untrained", "max_new_tokens": 16}
    untrained = replace(pool, rewards=np.zeros_like(pool.rewards), status=np.full_like(pool.status, 1), source=source)
    (notice,) = notices(untrained)
    options = """--env vpo/Maze-v0 --env-kwargs '{"preset": "compact"}' --model runs/untrained --out runs/base"""
    assert f"teach the model the task first, with vpo warm-start {options}" in notice
    assert "allow more" not in notice
    assert prospects(summarise(untrained)) == []
    (without_teacher,) = notices(replace(untrained, source={**source, "env": "vpo/RewardModels-v0"}))
    assert "start from a model that answers some prompts right" in without_teacher
    cut = replace(untrained, tokens=np.full(pool.rewards.shape[:2], 16, np.int32))
    assert "; or, where a response makes sense up to where --max-new-tokens 16 cuts it, allow more" in notices(cut)[0]


def test_what_training_can_gain_is_said_in_words() -> None:
    opposite, spread = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], [[0.9, 0.1], [0.1, 0.9], [0.2, 0.2]]
    serving = [[0.7, 0.7], [0.2, 0.1], [0, 0]]
    assert "one answer serves all weightings" in prospects(summarise(flat_pool(serving * 7)))[0]
    assert prospects(summarise(flat_pool(serving))) == [], "three answers tell too little of a model"
    assert "a vector gains nothing: three of these answers" in prospects(summarise(flat_pool(opposite * 7)))[0]
    lopsided = flat_pool([*spread, [0.6, 0.5]])
    assert prospects(summarise(lopsided)) == [], "a set of three, beside the best scalar reward, scores most"
    (alike, *_) = prospects(summarise(flat_pool([[0.5, 0.2]] * 4)))
    assert alike.startswith("for 100% of the prompts all responses earn the same")
    front = tuple(np.array([[0.5, 0.5]]) for _ in range(6))
    near = prospects(summarise(flat_pool([[0.5, 0.5], [0.5, 0.49]], fronts=front)))
    assert "one response scores 0.49" in near[-1]
    assert "so training has next to nothing to gain: choose harder tasks" in near[-1]


def test_it_is_said_whether_a_search_has_room_above_the_model() -> None:
    def prompts(right: int) -> Pool:
        """Pool of 40 prompts with 25 answers each, the first of which is right for ``right`` of them."""
        rewards = np.zeros((40, 25, 1, 2), dtype=np.float32)
        rewards[:right, 0] = 1
        rewards[:, 1:, :, 0] = 0.1
        flat = flat_pool([[0, 0]])
        many = {"rewards": rewards, "status": np.zeros((40, 25, 1), dtype=np.int8), "indices": np.arange(40)}
        shapes = {"active": np.ones((40, 2), dtype=bool), "scalar_weights": np.full((40, 2), 0.5), "tasks": None}
        return replace(flat, **many, **shapes, objectives=("a", "b"), responses=None, fronts=(np.ones((1, 2)),) * 40)

    covers, edge, beyond = (prospects(summarise(prompts(right))) for right in (40, 24, 4))
    own = prospects(summarise(replace(prompts(24), fronts=None), threshold=0.9))
    assert covers[-1].startswith(
        "25 answers of the model together score 1.000, and the exact fronts allow 1.000, so a search over 25"
    )
    assert edge == own, "without an exact front, --threshold says what passes"
    assert edge == [
        "right answers are rare and within reach: one answer solves 2% of the prompts, and one of 25 answers solves "
        "60%, so training on sets can make a search better than the model, with --search-budget 25 or --method max_at_k"
    ]
    assert beyond[0].startswith(
        "right answers are hardly in reach: one answer solves 0% of the prompts, and one of 25 answers solves 10%"
    )
    assert beyond[0].endswith("; look with --k 128 first"), "another size of the same pool may say otherwise"
    points = np.array([[1.0, 0], [0, 1], [0.6, 0.6]])
    rare = replace(prompts(24), fronts=(points,) * 40)
    (advice,) = prospects(summarise(rare, threshold=0.9))
    assert advice.endswith("model, with --search-budget 25 or --method max_at_k"), "also where objectives conflict"
    compromise = np.full((40, 25, 1, 2), 0.6)
    *_, missed = prospects(summarise(replace(rare, rewards=compromise)))
    assert missed.startswith(
        "objectives conflict, and answers for some objectives are rare: 25 answers together score 0.6"
    )
    assert missed.endswith("with --method vpo or multi_rlvr")
    many = prompts(24)
    wide = replace(
        many, rewards=np.pad(many.rewards, ((0, 0), (0, 104), (0, 0), (0, 0))), status=np.zeros((40, 129, 1), np.int8)
    )
    assert "with --search-budget 128 or" in prospects(summarise(wide))[0], "no larger budget is accepted"


CONFLICT = np.array([[1.0, 0], [0, 1], [0.6, 0.6]])
"""A front with two specialists and a compromise."""


def conflicting(prompts_with: list[int]) -> Pool:
    """A pool of 20 prompts with 25 answers each, of which the points of a front are found on so many prompts."""
    rewards = np.zeros((20, 25, 1, 2), dtype=np.float32)
    for number, (point, prompts) in enumerate(zip(CONFLICT, prompts_with, strict=True)):
        rewards[:prompts, number] = point
    return replace(
        flat_pool([[0, 0]]),
        rewards=rewards,
        status=np.zeros((20, 25, 1), dtype=np.int8),
        active=np.ones((20, 2), dtype=bool),
        scalar_weights=np.full((20, 2), 0.5),
        indices=np.arange(20),
        objectives=("a", "b"),
        fronts=(CONFLICT,) * 20,
    )


def test_where_objectives_conflict_and_all_answers_are_near_the_front_no_search_is_advised() -> None:
    """One answer seldom is the compromise, as on the maze, and that alone is no reason to train for a search."""
    for compromises in (16, 2):
        (advice,) = prospects(summarise(conflicting([20, 17, compromises])))
        assert re.fullmatch(
            r"25 answers of the model together score 0\.7\d\d, and the exact fronts allow 0\.7\d\d, so a search over "
            r"25 answers has little to gain from training; train for fewer answers, such as --search-budget 3",
            advice,
        )
    (advice,) = prospects(summarise(conflicting([20, 20, 20])))
    assert "a search over 25 answers has nothing to gain" in advice


def test_where_the_compromise_is_found_and_specialists_are_rare_vpo_or_multi_rlvr_are_advised() -> None:
    (found,) = prospects(summarise(conflicting([2, 2, 18])))
    assert found.startswith("objectives conflict, and answers for some objectives are rare: 25 answers together")
    assert found.endswith("so training can make a search better than the model, with --method vpo or multi_rlvr")
    (seldom,) = prospects(summarise(conflicting([2, 2, 12])))
    assert seldom.startswith("right answers are rare and within reach")
    assert seldom.endswith("with --search-budget 25 or --method max_at_k")


def test_the_page_states_the_bounds_of_the_notices() -> None:
    page = (ROOT / "docs" / "when_a_vector_pays.md").read_text(encoding="utf-8")
    section = page.partition("## Measure the headroom")[2].partition("\n## ")[0]
    near, far = (f"{1 - share:g}".lstrip("0") for share in (LITTLE, MUCH))
    rare, reached, found = (f"{share:g}".lstrip("0") for share in (RARE, REACHED, FOUND))
    assert f"have more than {near} of the utility of the exact front" in section
    assert f"have between {far} and {near} of the utility of the exact front" in section
    assert f"pass@1 is above {rare} or pass@128 is at least {found}" in section
    assert f"pass@1 is at most {rare} and pass@128 is at least {reached}" in section
    assert f"pass@128 is below {reached}" in section


def test_where_the_scorer_failed_that_is_said_and_nothing_of_the_model() -> None:
    pool = flat_pool([[0, 0], [0, 0]])
    failed = replace(pool, status=np.full_like(pool.status, Status.INVALID))
    assert notices(failed) == ["the scorer failed for 12 of the 12 answers: vpo show says why"]
    assert about_rewards(failed, np.zeros((1, 2))) == []


def test_rewards_that_teach_nothing_are_named() -> None:
    pool = flat_pool([[x, x / 2, 0.25] for x in (0.1, 0.4, 0.9, 0.3)])
    assert about_rewards(pool) == [
        "bronze (0.25) has one value for all answers, so it teaches nothing",
        "some rewards are copies of others and count twice: silver of gold",
    ]
    never = flat_pool([[x, 0, (0.7 * x) % 0.3] for x in (0.1, 0.4, 0.9, 0.3)])
    assert about_rewards(never) == ["silver is never earned by the model, so it teaches nothing yet"]
    assert about_rewards(never, np.array([[1, 0.5, 1.0]])) == about_rewards(never)
    unused = replace(never, active=never.active & np.array([True, False, True]))
    assert about_rewards(unused) == ["silver counts for no answer"]
    (bad,) = about_rewards(never, np.array([[1, 0, 1.0]]))
    assert bad == "silver is never earned, not even by good answers: see vpo check"


def test_a_run_without_a_signal_is_said_to_have_moved_nothing() -> None:
    pool, row = flat_pool([[1.0, 0.0]]), {"groups_without_signal": 4}
    (line,) = no_signal([row] * 3, 4, pool)
    assert line.startswith("no group had a signal in any of the 3 steps, so the model did not change: start from")
    assert no_signal([row, {"groups_without_signal": 3}], 4, pool) == no_signal([], 4, pool) == []


def test_the_rewards_of_demonstrations_are_the_good_ones() -> None:
    good = good_rewards(make_text_env("vpo/Maze-v0", preset="compact"))
    assert good is not None
    assert (good.max(axis=0) > 0).all()
    assert good_rewards(make_text_env("vpo/RewardModels-v0")) is None
