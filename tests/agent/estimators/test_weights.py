"""The weights: distributed as the Dirichlet says, reproducible prompt by prompt, accurate with Sobol."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, kstest

from vpo_agent.estimators.weights import WeightSampler, draw_weights, prompt_key

SAMPLERS: list[WeightSampler] = ["iid", "sobol"]


def set_score_errors(sampler: WeightSampler, num_weights: int) -> np.ndarray[Any, Any]:
    """Return the errors of the set score, one for each of 300 prompts, on 30 random (3, 4) matrices."""
    matrices = np.random.default_rng(0).random((30, 3, 4))
    exponentials = np.random.default_rng(1).exponential(size=(100_000, 4))
    reference_weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    # One at a time, so that the 100,000 x 30 x 3 products never stand in memory together.
    reference = np.array([(reference_weights @ matrix.T).max(axis=1).mean() for matrix in matrices])
    weights = draw_weights(range(300), num_objectives=4, num_weights=num_weights, sampler=sampler)
    estimate = np.einsum("pkd,nmd->pnkm", weights, matrices).max(axis=-1).mean(axis=-1)
    return np.asarray(estimate - reference)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("alpha", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("mask", [[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 1]])
def test_moments_are_those_of_the_dirichlet(sampler: WeightSampler, alpha: float, mask: list[int]) -> None:
    prompts = 2_000
    active = np.tile(np.array(mask, dtype=bool), (prompts, 1))
    weights = draw_weights(
        range(prompts), num_objectives=4, num_weights=16, alpha=alpha, sampler=sampler, active=active
    ).reshape(-1, 4)
    count = sum(mask)
    total = alpha * count
    mean = np.array(mask) / count
    variance = mean * (1 - mean) / (total + 1)
    np.testing.assert_allclose(weights.mean(axis=0), mean, atol=0.008)
    np.testing.assert_allclose(weights.var(axis=0), variance, atol=0.004)
    pair = np.flatnonzero(mask)[:2]
    covariance = np.cov(weights[:, pair].T)[0, 1]
    assert covariance == pytest.approx(-1 / count**2 / (total + 1), abs=0.004)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("alpha", [0.3, 1.0, 3.0])
def test_the_first_weight_of_each_prompt_has_the_beta_marginal(sampler: WeightSampler, alpha: float) -> None:
    weights = draw_weights(range(4_000), num_objectives=3, num_weights=4, alpha=alpha, sampler=sampler)
    for objective in range(3):
        marginal = beta(alpha, 2 * alpha)
        # float32 rounds the very largest and smallest of alpha = 0.3 onto 1 and 0.
        assert kstest(weights[:, 0, objective].astype(np.float64), marginal.cdf).pvalue > 1e-3


def test_sobol_is_far_more_accurate_than_iid_at_equal_cost() -> None:
    iid = np.sqrt(np.mean(set_score_errors("iid", 128) ** 2))
    sobol = np.sqrt(np.mean(set_score_errors("sobol", 128) ** 2))
    assert iid == pytest.approx(0.0080, rel=0.2)
    assert sobol < iid / 4


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_set_scores_are_unbiased(sampler: WeightSampler) -> None:
    errors = set_score_errors(sampler, 16)
    # The reference itself has a standard error of about 2e-4.
    standard_error = errors.std(axis=0) / np.sqrt(len(errors))
    assert (np.abs(errors.mean(axis=0)) < 4.5 * standard_error + 5e-4).all()


@settings(max_examples=50, deadline=None)
@given(
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
    sampler=st.sampled_from(SAMPLERS),
    alpha=st.sampled_from([0.5, 1.0]),
)
def test_a_prompt_gets_the_same_weights_in_any_batch(
    keys: list[int], order: Any, sampler: WeightSampler, alpha: float
) -> None:
    def draw(chosen: list[int]) -> Any:
        return draw_weights(chosen, num_objectives=3, num_weights=8, alpha=alpha, sampler=sampler, seed=4, step=9)

    positions = list(range(len(keys)))
    order.shuffle(positions)
    together = draw(keys)
    np.testing.assert_array_equal(draw([keys[i] for i in positions]), together[positions])
    np.testing.assert_array_equal(draw(keys[:1]), together[:1])


def test_the_mask_of_one_prompt_does_not_touch_another() -> None:
    active = np.array([[True, False, True], [True, True, True]])
    masked = draw_weights([1, 2], num_objectives=3, num_weights=8, active=active)
    plain = draw_weights([1, 2], num_objectives=3, num_weights=8)
    np.testing.assert_array_equal(masked[1], plain[1])
    assert (masked[0, :, 1] == 0).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_seed_step_and_key_each_change_the_weights(sampler: WeightSampler) -> None:
    draws = [
        draw_weights([key], num_objectives=3, num_weights=4, sampler=sampler, seed=seed, step=step)
        for key in (0, 1)
        for seed in (0, 1, -1)
        for step in (0, 1)
    ]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            assert not np.isclose(one, other).all(axis=-1).any()


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    np.random.seed(0)  # noqa: NPY002 - the legacy global state is what must stay untouched
    expected = np.random.random()  # noqa: NPY002 - as above
    np.random.seed(0)  # noqa: NPY002 - as above
    first = draw_weights([5], num_objectives=3, num_weights=8)
    assert np.random.random() == expected  # noqa: NPY002 - as above
    np.testing.assert_array_equal(draw_weights([5], num_objectives=3, num_weights=8), first)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 0.02])
def test_tiny_alpha_gives_corners_and_no_empty_rows(alpha: float) -> None:
    weights = draw_weights(range(500), num_objectives=4, num_weights=16, alpha=alpha)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(weights.mean(axis=(0, 1)), 0.25, atol=0.03)
    assert np.median(weights.max(axis=-1)) > 0.99


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_single_active_objective_takes_all_the_weight(sampler: WeightSampler) -> None:
    active = np.array([[False, True, False]])
    weights = draw_weights([1], num_objectives=3, num_weights=8, sampler=sampler, active=active)
    np.testing.assert_array_equal(weights, np.broadcast_to([0.0, 1.0, 0.0], (1, 8, 3)))


def test_no_prompts_give_no_weights() -> None:
    assert draw_weights([], num_objectives=3, num_weights=8).shape == (0, 8, 3)


def test_prompt_keys_are_stable_and_distinct() -> None:
    assert prompt_key("maze") == prompt_key("maze")
    # Computed once with `hashlib.blake2b(b"maze", digest_size=8)`: a change would change the weights of every run.
    assert prompt_key("maze") == 0xDAC3F4310A091030
    assert len({prompt_key(f"prompt {i}") for i in range(1_000)}) == 1_000
    assert 0 <= prompt_key("unpaired \ud800 surrogate") < 2**64


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_weights": 0}, "num_weights must be at least 1; got 0"),
        ({"num_weights": 100}, "power of two.*got 100; use 64 or 128, or sampler='iid'"),
        ({"num_objectives": 0}, "num_objectives must be at least 1; got 0"),
        ({"alpha": 0.0}, "alpha must be finite and above 0; got 0.0"),
        ({"alpha": float("nan")}, "alpha must be finite"),
        ({"alpha": float("inf")}, "alpha must be finite"),
        ({"sampler": "halton"}, "sampler must be one of iid, sobol; got 'halton'"),
        ({"active": np.ones((2, 4), dtype=bool)}, r"active needs shape \(2, 3\).*got \(2, 4\)"),
        ({"active": np.array([[1, 1, 1], [0, 0, 0]], dtype=bool)}, "prompt 1 of 2 has none"),
        ({"keys": np.zeros(2)}, "integer dtype.*prompt_key"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"keys": [1, 2], "num_objectives": 3, "num_weights": 8} | changed
    with pytest.raises(ValueError, match=message):
        draw_weights(arguments.pop("keys"), **arguments)


def test_iid_takes_any_number_of_weights() -> None:
    assert draw_weights([1], num_objectives=3, num_weights=100, sampler="iid").shape == (1, 100, 3)
