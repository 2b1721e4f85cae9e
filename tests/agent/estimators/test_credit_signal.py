"""Signal and noise of the gradient that credit gives, on a policy small enough for the exact gradient.

A chain writes three answers, each one of five and drawn given the answer before; three answers are worth one objective
each, two are worth nothing. The signal of an estimate is the part of its mean along the exact gradient of the expected
set score, so a bias away from it does not count; the noise is the root of its total variance over groups of eight.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from vpo_agent.estimators import advantages
from vpo_agent.estimators.weights import draw_weights

M, SYMBOLS, D, G, GROUPS = 3, 5, 3, 8, 3000
KINDS = ("none", "prefix", "marginal", "own", "prefix+own", "prefix+0.5*own")


def exact_gradient(logits: Tensor, vectors: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of the expected set score at the logits (m, symbols before, symbols), by enumeration."""
    logits = logits.clone().requires_grad_(True)
    logs = logits.log_softmax(-1)
    sets = torch.tensor(list(itertools.product(range(SYMBOLS), repeat=M)))
    before = torch.cat([torch.zeros(len(sets), 1, dtype=torch.long), sets[:, :-1]], dim=1)
    chances = logs[torch.arange(M), before, sets].sum(dim=1).exp()
    worth = torch.einsum("nmd,kd->nmk", vectors[sets], weights).amax(dim=1).mean(dim=1)
    (gradient,) = torch.autograd.grad((chances * worth).sum(), logits)
    return gradient


def signal_to_noise(seed: int) -> dict[str, tuple[float, float, float]]:
    """Return for each kind of credit the ratio for the whole gradient, for the last answer's, and the cosine."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(M, SYMBOLS, SYMBOLS, generator=generator, dtype=torch.float64)
    vectors = torch.eye(SYMBOLS, D, dtype=torch.float64)
    weights = torch.from_numpy(draw_weights([0], num_objectives=D, num_weights=16)).double()
    exact, chances = exact_gradient(logits, vectors, weights[0]), logits.softmax(-1)
    answers = torch.zeros(GROUPS, G, M, dtype=torch.long)
    before = torch.zeros_like(answers)
    for s in range(M):
        before[..., s] = answers[..., s - 1] if s else 0
        drawn = torch.multinomial(chances[s, before[..., s].flatten()], 1, generator=generator)
        answers[..., s] = drawn.view(GROUPS, G)
    result = {}
    for kind in KINDS:
        options = {"coefficient": 0.0} if kind == "none" else {"credit": kind}
        given = advantages(vectors[answers], method="vpo_credit", weights=weights.expand(GROUPS, -1, -1), **options)
        assert given.credit is not None
        pulls = given.advantages[..., None] + given.credit
        moved = torch.eye(SYMBOLS, dtype=torch.float64)[answers] - chances[torch.arange(M), before]
        estimates = torch.zeros(GROUPS, M, SYMBOLS, SYMBOLS, dtype=torch.float64)
        rows = torch.arange(GROUPS)[:, None, None], torch.arange(M).expand_as(before), before
        estimates.index_put_(rows, moved * pulls[..., None] / G, accumulate=True)

        def ratio(part: Tensor, along: Tensor) -> float:
            mean = part.flatten(1).mean(dim=0)
            noise = (part.flatten(1) - mean).square().sum(dim=1).mean().sqrt()
            return float(mean @ along.flatten() / along.norm() / noise)

        mean = estimates.mean(dim=0)
        cosine = float((mean * exact).sum() / mean.norm() / exact.norm())
        result[kind] = (ratio(estimates, exact), ratio(estimates[:, -1], exact[-1]), cosine)
    return result


@pytest.fixture(scope="module", params=range(3))
def measured(request: pytest.FixtureRequest) -> dict[str, tuple[float, float, float]]:
    return signal_to_noise(request.param)


def test_prefix_credit_has_more_signal_in_the_same_direction(measured: dict[str, tuple[float, float, float]]) -> None:
    (plain, plain_last, _), (prefix, prefix_last, cosine) = measured["none"], measured["prefix"]
    assert prefix > 1.05 * plain
    assert prefix_last > 1.3 * plain_last, "it acts on the answers that have others before them"
    assert cosine > 0.98


def test_own_credit_has_more_signal_but_another_direction(measured: dict[str, tuple[float, float, float]]) -> None:
    assert measured["own"][0] > 1.2 * measured["none"][0]
    assert measured["own"][2] < measured["prefix"][2]
    assert measured["marginal"][0] > 1.1 * measured["none"][0]


def test_prefix_and_own_credit_together_beat_either_one(measured: dict[str, tuple[float, float, float]]) -> None:
    for part in (0, 1):
        assert measured["prefix+own"][part] > max(measured["prefix"][part], measured["own"][part])
    assert measured["prefix+0.5*own"][2] > measured["prefix+own"][2], "less of a second objective, less bias"
