"""Process credit: against its formula written out, and against the exact gradient of a small policy."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from vpo_agent.estimators import advantages, standardise
from vpo_agent.estimators.weights import draw_weights


def batch(prompts: int = 3, rollouts: int = 6, answers: int = 3, longest: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Return rewards, weights and potentials of answers of different lengths, some of them missing."""
    rng = np.random.default_rng(0)
    rewards = torch.from_numpy(rng.random((prompts, rollouts, answers, 2)))
    weights = torch.from_numpy(draw_weights(range(prompts), num_objectives=2, num_weights=8)).double()
    potentials = rng.random((prompts, rollouts, answers, longest + 1))
    lengths = rng.integers(0, longest + 1, (prompts, rollouts, answers))
    potentials[np.arange(longest + 1) > lengths[..., None]] = np.nan
    return rewards, weights, torch.from_numpy(potentials)


def by_hand(scores: list[list[float]], potentials: list[list[list[list[float]]]]) -> dict[tuple[int, ...], float]:
    """Return the advantage of each token of each answer, by (prompt, rollout, answer, token)."""
    tokens = {
        (p, i, s, j): values[j]
        for p, group in enumerate(potentials)
        for i, rollout in enumerate(group)
        for s, values in enumerate(rollout)
        for j in range(len(values) - 1)
        if not math.isnan(values[j + 1])
    }
    known, gains = {}, {}
    for (p, i, s, j), value in tokens.items():
        alike = [other for (q, _, t, k), other in tokens.items() if (q, t, k) == (p, s, j)]
        known[p, i, s, j] = value - sum(alike) / len(alike)
        gains[p, i, s, j] = scores[p][i] - sum(scores[p]) / len(scores[p])
    left = {}
    for (p, i, s, j), gain in gains.items():
        same = [key for key in tokens if key[2] == s]
        slope = sum(gains[key] * known[key] for key in same) / sum(known[key] ** 2 for key in same)
        left[p, i, s, j] = gain - slope * known[p, i, s, j]
    out = {}
    for key, value in left.items():
        group = [other for place, other in left.items() if place[0] == key[0]]
        out[key] = value / (math.sqrt(sum(other**2 for other in group) / len(group)) + 1e-6)
    return out


def test_the_advantages_of_tokens_are_those_of_the_formula() -> None:
    rewards, weights, potentials = batch()
    result = advantages(rewards, method="vpo_process", weights=weights, potentials=potentials)
    plain = advantages(rewards, method="vpo", weights=weights)
    torch.testing.assert_close(result.scores, plain.scores)
    torch.testing.assert_close(result.advantages, plain.advantages)
    assert result.credit is not None
    assert result.credit.shape == (3, 6, 3, 5)
    expected = by_hand(plain.scores.tolist(), potentials.tolist())
    of_tokens = result.advantages[..., None, None] + result.credit
    for place, value in expected.items():
        assert float(of_tokens[place]) == pytest.approx(value, abs=1e-9)
    written = torch.zeros_like(result.credit, dtype=torch.bool)
    written[tuple(torch.tensor(list(expected)).T)] = True
    assert not result.credit[~written].any()


def test_with_one_answer_and_fixed_weights_it_is_the_credit_of_grpo() -> None:
    rewards, _, potentials = batch(answers=1)
    settings = {"scalar_weights": [0.25, 0.75], "potentials": potentials}
    result = advantages(rewards, method="grpo_process", **settings)
    fixed = torch.tensor([0.25, 0.75]).double().expand(3, 1, 2)
    drawn = advantages(rewards, method="vpo_process", weights=fixed, potentials=potentials)
    assert result.credit is not None
    assert drawn.credit is not None
    torch.testing.assert_close(result.advantages, standardise(rewards[:, :, 0] @ fixed[0, 0], torch.ones(3, 6) > 0))
    torch.testing.assert_close(result.credit, drawn.credit)


def test_tokens_after_the_one_mistake_are_not_blamed_for_it() -> None:
    """Of four rollouts with the same start one gives half away at its second token: the others play on perfectly."""
    potentials = torch.ones(1, 4, 1, 5, dtype=torch.float64)
    potentials[0, 0, 0, 2:] = 0.5
    rewards = torch.tensor([0.5, 1, 1, 1], dtype=torch.float64).view(1, 4, 1, 1)
    result = advantages(rewards, method="grpo_process", potentials=potentials)
    assert result.credit is not None
    tokens = (result.advantages[..., None, None] + result.credit)[0, :, 0]
    blamed = tokens[0].abs() / tokens.abs().max()
    assert (blamed[:2] == 1).all()
    assert float(blamed[2:].max()) < 0.3 * float(standardise(rewards[..., 0, 0], torch.ones(1, 4) > 0).abs().max())


def test_groups_of_equal_scores_and_invalid_rollouts_get_nothing() -> None:
    rewards, weights, potentials = batch()
    rewards[0] = rewards[0, :1]
    valid = torch.ones(3, 6, dtype=torch.bool)
    valid[1, 2] = False
    given = {"method": "vpo_process", "weights": weights, "valid": valid}
    result = advantages(rewards, potentials=potentials, **given)
    assert result.credit is not None
    assert not result.advantages[0].any()
    assert not result.credit[0].any()
    assert not result.credit[1, 2].any()
    # What an invalid rollout wrote does not count in the means either.
    changed = potentials.clone()
    changed[1, 2] += 1
    again = advantages(rewards, potentials=changed, **given)
    assert again.credit is not None
    torch.testing.assert_close(again.credit, result.credit)


def test_regrets_are_the_falls_of_the_potential_less_their_means() -> None:
    rewards, weights, potentials = batch()
    result = advantages(rewards, method="vpo_process", weights=weights, potentials=potentials, credit="regret")
    assert result.credit is not None
    falls = potentials.diff(dim=-1).numpy()
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of means over nothing
        centred = falls - np.nanmean(falls, axis=1, keepdims=True)
    expected = centred / (np.sqrt(np.nanmean(centred**2, axis=(1, 2, 3), keepdims=True)) + 1e-6)
    written = ~np.isnan(falls)
    of_tokens = (result.advantages[..., None, None] + result.credit).numpy()
    np.testing.assert_allclose(of_tokens[written], expected[written], atol=1e-9)
    # They tell moves apart also where all scores are equal.
    rewards[0] = rewards[0, :1]
    again = advantages(rewards, method="vpo_process", weights=weights, potentials=potentials, credit="regret")
    assert again.credit is not None
    assert not again.advantages[0].any()
    np.testing.assert_allclose(again.credit[0].numpy()[written[0]], expected[0][written[0]], atol=1e-9)


def test_missing_or_misshapen_potentials_are_refused() -> None:
    rewards, weights, potentials = batch()
    with pytest.raises(ValueError, match="vpo_process needs the potentials of unfinished responses"):
        advantages(rewards, method="vpo_process", weights=weights)
    with pytest.raises(ValueError, match=r"potentials need shape \(3, 6, 3\)"):
        advantages(rewards, method="vpo_process", weights=weights, potentials=potentials[:, :2])
    for wrong in (math.inf, math.nan):
        broken = potentials.clone()
        broken[1, 2, 0, :3] = 0.5
        broken[1, 2, 0, 1] = wrong
        message = "finite, and NaN only after the end of an answer; those of prompt 1, rollout 2, answer 0 are"
        with pytest.raises(ValueError, match=message):
            advantages(rewards, method="vpo_process", weights=weights, potentials=broken)
        valid = torch.ones(3, 6, dtype=torch.bool)
        valid[1, 2] = False
        result = advantages(rewards, method="vpo_process", weights=weights, potentials=broken, valid=valid)
        assert result.credit is not None
        assert result.credit.isfinite().all()
    with pytest.raises(ValueError, match="credit must be 'return' or 'regret'; got 'all'"):
        advantages(rewards, method="vpo_process", weights=weights, potentials=potentials, credit="all")


# Signal and noise on a policy whose gradient is known exactly: a text of four letters, each drawn by its place and the
# letter before. Each letter keeps a share of the reward, all of it, a half or nothing, by its place.

LENGTH, SYMBOLS, G, GROUPS = 4, 3, 8, 2000


@pytest.fixture(scope="module", params=range(3))
def measured(request: pytest.FixtureRequest) -> dict[str, tuple[float, float]]:
    """For no process credit and each kind of it the signal-to-noise ratio, and the cosine with the exact gradient."""
    generator = torch.Generator().manual_seed(request.param)
    shares = torch.stack([torch.tensor([1.0, 0.5, 0.0])[torch.randperm(3, generator=generator)] for _ in range(LENGTH)])
    texts = torch.tensor(list(itertools.product(range(SYMBOLS), repeat=LENGTH)))
    logits = torch.randn(LENGTH, SYMBOLS, SYMBOLS, generator=generator, dtype=torch.float64).requires_grad_(True)
    logs = logits.log_softmax(-1)
    earlier = torch.cat([torch.zeros(len(texts), 1, dtype=torch.long), texts[:, :-1]], dim=1)
    chances = logs[torch.arange(LENGTH), earlier, texts].sum(dim=1).exp()
    worth = shares.double()[torch.arange(LENGTH), texts].prod(dim=1)
    (exact,) = torch.autograd.grad((chances * worth).sum(), logits)

    drawn = texts[torch.multinomial(chances.detach(), GROUPS * G, replacement=True, generator=generator)]
    before = torch.cat([torch.zeros(len(drawn), 1, dtype=torch.long), drawn[:, :-1]], dim=1)
    kept = shares.double()[torch.arange(LENGTH), drawn].cumprod(dim=1)
    # The best completion keeps all that is left.
    potentials = torch.cat([torch.ones(len(drawn), 1), kept], dim=1).view(GROUPS, G, 1, LENGTH + 1)
    rewards = kept[:, -1].view(GROUPS, G, 1, 1)
    moved = torch.eye(SYMBOLS, dtype=torch.float64)[drawn] - logits.detach().softmax(-1)[torch.arange(LENGTH), before]

    def quality(pulls: Tensor) -> tuple[float, float]:
        each = torch.zeros(GROUPS, LENGTH, SYMBOLS, SYMBOLS, dtype=torch.float64)
        places = torch.arange(GROUPS).repeat_interleave(G)[:, None], torch.arange(LENGTH).expand_as(before), before
        each.index_put_(places, moved * pulls.reshape(-1, LENGTH, 1) / G, accumulate=True)
        mean = each.mean(dim=0)
        noise = (each - mean).flatten(1).square().sum(dim=1).mean().sqrt()
        along = float((mean * exact).sum() / exact.norm())
        return along / float(noise), along / float(mean.norm())

    plain = advantages(rewards, method="grpo").advantages
    result = {"none": quality(plain[..., None].expand(GROUPS, G, LENGTH))}
    for credit in ("return", "regret"):
        given = advantages(rewards, method="grpo_process", potentials=potentials, credit=credit)
        assert given.credit is not None
        result[credit] = quality(plain[..., None] + given.credit[:, :, 0])
    print({kind: tuple(round(value, 3) for value in pair) for kind, pair in result.items()})
    return result


def test_returns_keep_the_direction_without_more_noise(measured: dict[str, tuple[float, float]]) -> None:
    assert measured["return"][0] > 0.98 * measured["none"][0]
    assert measured["return"][1] > measured["none"][1] > 0.9


def test_regrets_have_far_less_noise_but_another_direction(measured: dict[str, tuple[float, float]]) -> None:
    assert measured["regret"][0] > 1.5 * measured["return"][0]
    assert 0.6 < measured["regret"][1] < measured["return"][1]
