"""Which tokens belong to which answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from hypothesis import given, settings
from hypothesis import strategies as st

from vpo_agent.policy.samples import Samples
from vpo_agent.rollouts.spans import token_credit, token_ends

TOKENIZER = toys.bpe_tokenizer()


def samples_of(*responses: str, tokenizer: Any = TOKENIZER) -> Samples:
    rows = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in responses]
    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = True
    prompts = torch.ones(1, 1, dtype=torch.long)
    texts = [tokenizer.decode(row) for row in rows]
    return Samples(
        prompts, prompts.bool(), ids, mask, torch.zeros(ids.shape), texts, torch.zeros(len(rows), dtype=torch.bool), 1.0
    )


def credited_text(response: str, answers: int) -> list[str]:
    """The text of the tokens that get the credit of each answer."""
    samples = samples_of(response)
    credit = torch.arange(1.0, answers + 1)[None]
    spread = token_credit(TOKENIZER, samples.ids, samples.mask, credit)[0]
    return [TOKENIZER.decode(samples.ids[0][spread == s].tolist()) for s in range(1, answers + 1)]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            "so. <answer_1>a</answer_1> then <answer_2>the maze</answer_2>",
            ["<answer_1>a</answer_1>", "<answer_2>the maze</answer_2>"],
        ),
        (
            "<answer_1>ä – é 🙂</answer_1><answer_2></answer_2>!",
            ["<answer_1>ä – é 🙂</answer_1>", "<answer_2></answer_2>"],
        ),
        ("<answer_2>late</answer_2> <answer_1>draft", ["", "<answer_2>late</answer_2>"]),
        ("<answer_1>draft</answer_1> no, <answer_1>b</answer_1>", ["<answer_1>b</answer_1>", ""]),
        ("no answer at all", ["", ""]),
    ],
)
def test_the_tokens_of_an_answer_are_those_of_its_text(response: str, expected: list[str]) -> None:
    for credited, wanted in zip(credited_text(response, 2), expected, strict=True):
        # A token at either end may hold a blank or a neighbour's character too.
        assert wanted in credited
        assert len(credited) - len(wanted) <= 2


def test_padding_and_other_tokens_get_nothing() -> None:
    samples = samples_of("<answer>a</answer>", "well then, what of this: <answer>the maze and the answer</answer>")
    spread = token_credit(TOKENIZER, samples.ids, samples.mask, torch.tensor([[1.0], [-2.0]]))
    assert not spread[~samples.mask].any()
    assert (spread[0][samples.mask[0]] == 1).all()
    assert (spread[1][:5] == 0).all()
    assert set(spread[1].tolist()) == {0.0, -2.0}


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(["the maze", "answer", "a", " ", "é", "🙂", "\n\n", "</answer>"]), max_size=120))
def test_token_ends_are_the_lengths_of_decoded_prefixes(pieces: list[str]) -> None:
    ids = TOKENIZER("".join(pieces), add_special_tokens=False)["input_ids"]
    end_of = token_ends(TOKENIZER, ids)
    assert [end_of(place) for place in range(len(ids))] == [
        len(TOKENIZER.decode(ids[: place + 1], skip_special_tokens=True)) for place in range(len(ids))
    ]


def test_a_long_response_is_decoded_in_time_linear_in_its_length() -> None:
    class Counting:
        """Counts the tokens that are decoded."""

        tokens = 0

        def decode(self, ids: list[int], **settings: Any) -> str:
            self.tokens += len(ids)
            return TOKENIZER.decode(ids, **settings)

    decoded = []
    for words in (100, 1000):
        samples = samples_of("so " * words + "<answer_1>a</answer_1>" + " the maze" * words + "<answer_2>b</answer_2>")
        counting = Counting()
        token_credit(counting, samples.ids, samples.mask, torch.ones(1, 2))
        decoded.append(counting.tokens / samples.ids.shape[1])
    assert decoded[1] < 2 * decoded[0]
    assert decoded[1] < 5
