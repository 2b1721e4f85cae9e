"""The sampling loop on logits that are given."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import toys
from scipy.stats import chisquare

from vpo_agent.policy.decoding import ClosingTag, Decoder, Row, uniform_numbers

PROBABILITIES = np.array([0.05, 0.4, 0.1, 0.3, 0.15])


class FixedRows:
    """Stands in for the model: every row always has the same logits."""

    open = True
    leaving_share = 8

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.kept: list[list[int]] = []
        self.sizes: list[int] = []
        self.dtype = dtype

    def join(self, prompts: Any, which: Sequence[int]) -> torch.Tensor:
        return torch.from_numpy(np.log(PROBABILITIES)).to(self.dtype).expand(len(which), -1)

    def append(self, tokens: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(tokens))
        return self.join(None, tokens.tolist())

    def keep(self, order: Sequence[int]) -> None:
        self.kept.append(list(order))


def row(seed: int = 0, **settings: Any) -> Row:
    return Row(**{"limit": 1, "uniforms": uniform_numbers(np.random.SeedSequence(seed)), **settings})


def decode(
    rows: list[Row], ending: Sequence[int] = (), *, look_every: int = 1, dtype: torch.dtype = torch.float32
) -> FixedRows:
    cache = FixedRows(dtype)
    decoder = Decoder(cache, ending, look_every=look_every)  # type: ignore[arg-type]  # it stands in for the real one
    decoder.join(None, range(len(rows)), rows)  # type: ignore[arg-type]  # so no prompts are needed
    decoder.run()
    return cache


def test_top_p_draws_from_the_smallest_set_of_that_probability() -> None:
    rows = [row(seed, top_p=(0.75, 1.0)[seed % 2]) for seed in range(4000)]
    decode(rows)
    narrow, wide = (np.bincount([one.tokens[0] for one in rows[i::2]], minlength=5) for i in (0, 1))
    expected = np.array([0, 0.4, 0, 0.3, 0.15]) / 0.85 * 2000
    assert narrow[[0, 2]].sum() == 0
    assert chisquare(narrow[[1, 3, 4]], expected[[1, 3, 4]]).pvalue > 1e-3
    assert chisquare(wide, PROBABILITIES * 2000).pvalue > 1e-3


def test_each_row_has_its_own_temperature() -> None:
    rows = [row(seed, limit=3, temperature=(0.0, 0.5, 1.0)[seed % 3]) for seed in range(3000)]
    decode(rows)
    assert {token for one in rows[::3] for token in one.tokens} == {1}
    for first, temperature in ((1, 0.5), (2, 1.0)):
        powered = PROBABILITIES ** (1 / temperature)
        found = np.bincount([token for one in rows[first::3] for token in one.tokens], minlength=5)
        assert chisquare(found, powered / powered.sum() * 3000).pvalue > 1e-3
        expected = np.log(powered / powered.sum())
        for one in rows[first : first + 30 : 3]:
            np.testing.assert_allclose(one.log_probs, expected[one.tokens], rtol=1e-5)


def test_a_row_ends_at_an_end_token_its_stop_rule_or_its_limit() -> None:
    rows = [
        row(uniforms=iter([0.02, 0.99, 0.3]), limit=9, stop=lambda tokens: tokens[-1] == 4),
        row(uniforms=iter([0.3, 0.3, 0.5]), limit=3),
        row(uniforms=iter([0.02, 0.02, 0.3]), limit=2),
    ]
    decode(rows, ending=[2])
    assert [one.tokens for one in rows] == [[0, 4], [1, 1, 2], [0, 0]]
    assert [one.finish_reason for one in rows] == ["stop", "stop", "length"]


def test_ended_rows_leave_when_they_are_an_eighth_and_the_last_rows_take_their_places() -> None:
    rows = [row(limit=limit) for limit in (5, 2, 5, 5, 5, 5, 5, 5, 1, 5, 3, 4, 5, 5, 5, 5)]
    cache = decode(rows)
    # One of 16 has ended after the first step, which is too few; two after the second.
    assert cache.sizes == [16, 14, 14, 12]
    assert cache.kept[0] == [0, 14, 2, 3, 4, 5, 6, 7, 15, 9, 10, 11, 12, 13]
    assert [len(one.tokens) for one in rows] == [one.limit for one in rows]
    assert cache.kept[-1] == []


@pytest.mark.parametrize("look_every", [2, 8, 50])
def test_rows_are_the_same_however_often_the_host_looks(look_every: int) -> None:
    def rows() -> list[Row]:
        rules = [lambda tokens: False, lambda tokens: tokens[-2:] == [1, 3], lambda tokens: len(tokens) == 11]
        return [row(seed, limit=3 + seed % 40, stop=rules[seed % 3]) for seed in range(200)]

    expected, found = rows(), rows()
    steps = len(decode(expected, ending=[0]).sizes)
    cache = decode(found, ending=[0], look_every=look_every)
    assert [(one.tokens, one.log_probs, one.finish_reason) for one in found] == [
        (one.tokens, one.log_probs, one.finish_reason) for one in expected
    ]
    assert {one.finish_reason for one in found} == {"stop", "length"}
    # RowCache are looked at, and leave, once in so many tokens.
    assert len(cache.kept) <= -(-(steps + 1) // look_every)


def test_a_finite_stream_of_numbers_lasts_to_the_limit_of_its_row() -> None:
    rows = [row(limit=limit, uniforms=iter([0.3] * limit)) for limit in (3, 10, 17)]
    decode(rows, look_every=8)
    assert [one.tokens for one in rows] == [[1] * limit for limit in (3, 10, 17)]


def test_probabilities_of_bfloat16_logits_are_computed_in_float32() -> None:
    rows = [row(seed, limit=5) for seed in range(50)]
    decode(rows, dtype=torch.bfloat16)
    rounded = torch.from_numpy(np.log(PROBABILITIES)).bfloat16().double()
    expected = torch.log_softmax(rounded, -1).numpy()
    for one in rows:
        np.testing.assert_allclose(one.log_probs, expected[one.tokens], rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_row_ends_exactly_where_its_text_holds_its_tag(seed: int) -> None:
    tokenizer = toys.bpe_tokenizer()
    tokenizer.add_tokens(["></", "wer>!", "answer", "b></answer>"])
    rng, closing = random.Random(seed), ("</answer>", "</answer_3>", "</answer_12>")[seed]
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], skip_special_tokens=True)
    few = [token for token, text in enumerate(texts) if not text or text in closing or ">" in text]
    tag, ends = ClosingTag(tokenizer, closing, texts), 0
    for _ in range(60):
        start, cut = rng.randrange(len(closing)), rng.randrange(len(closing))
        said = rng.choice(["<" + closing[:cut], closing[start:], closing, closing[:cut] + " " + closing[cut:]])
        # Whole tags, cut differently, broken tags and pieces.
        halves = tokenizer([said[:cut], said[cut:]], add_special_tokens=False)["input_ids"]
        tokens = [*halves[0], *rng.choices(few, k=rng.randrange(2)), *halves[1], *rng.choices(few, k=3)]
        whole = [tokenizer.decode(tokens[:end], skip_special_tokens=True) for end in range(len(tokens) + 1)]
        found = next((end for end in range(1, len(tokens) + 1) if tag(tokens[:end])), None)
        assert found == next((end for end, text in enumerate(whole) if closing in text), None), whole[-1]
        ends += found is not None
    assert 3 < ends < 60


def test_the_numbers_of_a_row_do_not_depend_on_how_they_are_fetched() -> None:
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([3, 1])))
    numbers = uniform_numbers(np.random.SeedSequence([3, 1]))
    assert [next(numbers) for _ in range(100)] == [rng.random(dtype=np.float32) for _ in range(100)]
