"""Closing tags found token by token are those that the decoded text holds."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import toys

from vpo_agent.policy.closing import ClosingTag, Matcher

TAGS = ["</answer>", "</answer_3>", "</answer_12>"]


def texts_of(tokenizer: Any) -> list[str]:
    return tokenizer.batch_decode([[token] for token in range(len(tokenizer))], skip_special_tokens=True)


def pieces(tokenizer: Any) -> list[int]:
    """The tokens that have something of a tag, special ones included."""
    shown = texts_of(tokenizer)
    return [token for token, text in enumerate(shown) if not text or any(text in tag or ">" in text for tag in TAGS)]


@pytest.mark.parametrize("seed", range(3))
def test_a_row_may_end_exactly_where_its_text_holds_its_tag(seed: int) -> None:
    tokenizer = toys.bpe_tokenizer()
    tokenizer.add_tokens(["></", "wer>!", "answer"])
    rng = random.Random(seed)
    few, shown = pieces(tokenizer), texts_of(tokenizer)
    tags = [ClosingTag(tokenizer, TAGS[row % 3], shown) for row in range(3)]
    rows, length = 60, 120

    def sequence(tag: str) -> list[int]:
        """Tokens of whole tags, cut differently, broken tags and pieces."""
        tokens: list[int] = []
        while len(tokens) < length:
            start = rng.randrange(len(tag))
            cut = rng.randrange(start, len(tag))
            text = rng.choice(["<" + tag[:cut], tag[start:], tag, tag[:cut] + " " + tag[cut:]])
            halves = [text[:cut], text[cut:]]
            tokens += [token for half in halves for token in tokenizer(half, add_special_tokens=False)["input_ids"]]
            tokens += rng.choices(few, k=rng.randrange(3))
        return tokens[:length]

    sequences = [sequence(rng.choice(TAGS)) for _ in range(rows)]
    matcher = Matcher()
    matcher.join([tags[row % 3] for row in range(rows // 2)], len(shown), torch.device("cpu"))
    matcher.join([tags[row % 3] for row in range(rows // 2, rows)], len(shown), torch.device("cpu"))
    found = torch.stack([matcher.may_end(tokens) for tokens in torch.tensor(sequences).T], dim=1)
    ends = 0
    for row, tokens in enumerate(sequences):
        tag = tags[row % 3]
        for place in range(length):
            # The text since the last place at which a tag may have ended: there the row is over, or the tag was none.
            before = found[row, :place].nonzero()
            start = int(before[-1]) + 1 if len(before) else 0
            text = tokenizer.decode(tokens[start : place + 1], skip_special_tokens=True)
            assert bool(found[row, place]) == (TAGS[row % 3] in text), text
            ends += tag(tokens[: place + 1])
    assert ends > rows


def test_rows_that_stay_keep_their_states_and_other_rules_are_always_asked() -> None:
    texts = ["<", "/", "a>", "b"]
    tag = ClosingTag(None, "</a>", texts)
    matcher = Matcher()
    matcher.join([tag, tag, lambda tokens: False], 4, torch.device("cpu"))
    assert matcher.may_end(torch.tensor([0, 3, 3])).tolist() == [False, False, True]
    matcher.keep(torch.tensor([2, 0]))
    assert matcher.may_end(torch.tensor([1, 1])).tolist() == [True, False]
    matcher.join([tag], 4, torch.device("cpu"))
    assert matcher.may_end(torch.tensor([2, 2, 2])).tolist() == [True, True, False]


def test_a_special_token_within_a_tag_is_no_text_and_a_refuted_tag_begins_anew() -> None:
    texts = ["<", "/", "a>", ""]
    matcher = Matcher()
    matcher.join([ClosingTag(None, "</a>", texts)], 4, torch.device("cpu"))
    said = [0, 1, 3, 2, 2, 0, 3, 1, 2]
    found = [bool(matcher.may_end(torch.tensor([token]))) for token in said]
    assert [place for place, ended in enumerate(found) if ended] == [3, 8]
