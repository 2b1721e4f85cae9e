"""A pool whose answers cannot be read says so, with the reason and a response."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pools import random_pool

from vpo_agent.measure.measures import measures
from vpo_agent.measure.notices import notices
from vpo_envs import Status


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
