"""Potentials of responses, against the environment's own value of each beginning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import toys

from vpo_agent.policy.samples import Samples
from vpo_agent.rollouts.collect import Rollouts
from vpo_agent.rollouts.potentials import response_potentials
from vpo_agent.rollouts.spans import token_credit
from vpo_envs import MazeEnv, VectorTextEnv
from vpo_envs.tasks.maze import MazeOutcome
from vpo_envs.text import format_answers

TOKENIZER = toys.bpe_tokenizer()
LANES = MazeEnv(preset="embedded", num_answers=3)
WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(3), (1, 16))


def rollouts_of(env: VectorTextEnv[Any, Any, Any], *responses: str) -> Rollouts:
    """Responses to the first task, token by token as the tokenizer writes them."""
    rows = [TOKENIZER(text, add_special_tokens=False)["input_ids"] for text in responses]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    mask = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    prompt = torch.ones(1, 1, dtype=torch.long)
    over = torch.zeros(len(rows), dtype=torch.bool)
    samples = Samples(prompt, prompt.bool(), ids, mask, torch.zeros(ids.shape), list(responses), over, 1.0)
    task = env.task(0)
    batch = env.score_batch([task] * len(rows), responses)
    return Rollouts([task], samples, batch.rewards[None], batch.status[None], "", 0.0, 0.0)


def routes() -> list[str]:
    return LANES.demonstrations(LANES.task(0), np.random.default_rng(0), 3)


def test_each_potential_is_the_value_of_what_stands_before_its_token() -> None:
    a, b, c = routes()
    response = f"Let me see. {format_answers([a, b], 3)} <answer_3>{c[: len(c) // 2]}"
    rollouts = rollouts_of(LANES, format_answers([a, b, c]), response)
    found = response_potentials(LANES, TOKENIZER, rollouts, WEIGHTS)[0, 1]
    task = LANES.task(0)
    ids = rollouts.samples.ids[1][rollouts.samples.mask[1]].tolist()
    tags = [(f"<answer_{s}>", f"</answer_{s}>") for s in (1, 2, 3)]
    starts = [response.index(opening) for opening, _ in tags]
    stops = [response.index(closing) + len(closing) if closing in response else len(response) for _, closing in tags]
    seen = [0, 0, 0]
    for place in range(len(ids)):
        before, behind = TOKENIZER.decode(ids[:place]), TOKENIZER.decode(ids[: place + 1])
        inside = [s for s in range(3) if len(behind) > starts[s] and len(before) < stops[s]]
        if not inside:
            continue
        (s,) = inside
        partial, begun, _ = before[starts[s] + len(tags[s][0]) :].partition("<")
        # Once the closing tag has begun, nothing is left to choose.
        done, written = ([a, b, c][: s + 1], None) if begun else ([a, b, c][:s], partial)
        value = LANES.prefix_value(task, done, written, WEIGHTS[0])
        assert found[s, seen[s]] == pytest.approx(value, abs=1e-6)
        seen[s] += 1
    assert min(seen) > 3
    scores = [LANES.prefix_value(task, [a, b][: s + 1], None, WEIGHTS[0]) for s in range(3)]
    assert [found[s, seen[s]] for s in range(3)] == pytest.approx(scores, abs=1e-6)
    assert np.isnan(found[np.arange(found.shape[1]) > np.array(seen)[:, None]]).all()


def test_credit_of_tokens_has_the_same_places() -> None:
    a, b, c = routes()
    rollouts = rollouts_of(LANES, f"well {format_answers([a, b], 3)}<answer_3>{c[:9]}")
    found = response_potentials(LANES, TOKENIZER, rollouts, WEIGHTS)[0]
    numbers = torch.arange(1.0, found[..., 1:].size + 1).view(found[..., 1:].shape)
    spread = token_credit(TOKENIZER, rollouts.samples.ids, rollouts.samples.mask, numbers)[0]
    assert spread[spread > 0].tolist() == numbers[0][torch.from_numpy(~np.isnan(found[0, :, 1:]))].tolist()


def test_a_missing_answer_has_no_potentials_and_a_response_without_any_has_none() -> None:
    found = response_potentials(LANES, TOKENIZER, rollouts_of(LANES, "nothing here"), WEIGHTS)
    assert found.shape == (1, 1, 3, 2)
    assert np.isnan(found).all()


class Pessimist(MazeEnv):
    """It holds every beginning for worthless."""

    def prefix_outcomes(self, task: Any, partial: str) -> list[MazeOutcome]:
        return [self.evaluate(task, "")]


class Waverer(MazeEnv):
    """It forgets what a route can still become at every second character."""

    def prefix_outcomes(self, task: Any, partial: str) -> Any:
        return super().prefix_outcomes(task, partial if len(partial) % 2 else "")


class Swapper(MazeEnv):
    """It exchanges gold and diamonds of one whole route of three, which is worth the same on average."""

    def prefix_front(self, task: Any, partial: str) -> Any:
        front = super().prefix_front(task, partial)
        return front[:, [1, 0, 2]] if partial == routes()[1] else front


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("kind", [Pessimist, Waverer, Swapper])
def test_values_that_disagree_with_scores_are_an_error(kind: type[MazeEnv], noise: float) -> None:
    env = kind(preset="embedded", num_answers=3)
    message = f"prefix_front of {kind.__name__} disagrees with the scores: the answer .[A-Z]+"
    alike = (WEIGHTS + WEIGHTS[..., [1, 0, 2]]) / 2
    with pytest.raises(ValueError, match=message):
        response_potentials(env, TOKENIZER, rollouts_of(env, format_answers(routes())), alike, noise=noise)


@pytest.mark.parametrize(
    ("front", "found"),
    [
        (np.full((1, 3), np.nan), "nan to nan"),
        (np.array([[0.2, 1.5, 0.3]]), "0.2 to 1.5"),
        (np.array([[0.2, -np.inf, 0.3]]), "-inf to 0.3"),
        (np.ones((1, 2)), r"shape \(1, 2\)"),
        (np.ones((0, 3)), r"shape \(0, 3\)"),
        (np.ones(3), r"shape \(3,\)"),
    ],
)
def test_values_that_are_no_rewards_are_an_error(
    front: np.ndarray, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = MazeEnv.prefix_front
    # Only some beginnings have such values.
    monkeypatch.setattr(
        MazeEnv, "prefix_front", lambda env, task, partial: front if len(partial) > 7 else exact(env, task, partial)
    )
    message = rf"MazeEnv must give at least one vector of 3 rewards in \[0, 1\]; for the beginning .* gives {found}$"
    with pytest.raises(ValueError, match=message):
        response_potentials(LANES, TOKENIZER, rollouts_of(LANES, format_answers(routes())), WEIGHTS)


def test_noise_is_reproducible_and_of_the_given_size() -> None:
    rollouts = rollouts_of(LANES, format_answers(routes()))
    exact, noisy, again, other = (
        response_potentials(LANES, TOKENIZER, rollouts, WEIGHTS, noise=noise, seed=seed)[0, 0]
        for noise, seed in ((0.0, 0), (0.1, 0), (0.1, 0), (0.1, 1))
    )
    assert np.array_equal(noisy, again, equal_nan=True)
    errors = (noisy - exact)[~np.isnan(exact)]
    assert not np.allclose(noisy, other, equal_nan=True)
    # What is finished is scored, not valued.
    ends = (~np.isnan(exact)).sum(axis=1) - 1
    assert np.array_equal(noisy[range(3), ends], exact[range(3), ends])
    distinct = np.unique(errors[errors != 0].round(9))
    assert len(distinct) > 30
    assert abs(distinct.mean()) < 0.05
    assert 0.07 < distinct.std() < 0.13
