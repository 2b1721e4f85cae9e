"""Text as tokens come in: whole characters, spaces between words, and stop strings."""

from __future__ import annotations

import pytest
import toys
from hypothesis import given
from hypothesis import strategies as st

from vpo_agent.serve.text import GrowingText

BPE = toys.bpe_tokenizer()
LETTERS = toys.letters_tokenizer()


def pieces(text: GrowingText, ids: list[int]) -> list[str]:
    """What a stream of the tokens releases."""
    out = []
    for token in ids:
        text.push(token)
        out.append(text.release())
        if text.stopped:
            return out
    text.push(last=True)
    return [*out, text.release(last=True)]


def cut(whole: str, stop: list[str], keep: bool) -> str:
    """The text up to the stop string that ends first begins."""
    found = [(whole.index(s), s) for s in stop if s in whole]
    return whole[: min(found)[0]] + (min(found)[1] if keep else "") if found else whole


@given(text=st.text(max_size=40))
def test_the_pieces_of_a_stream_make_up_the_text(text: str) -> None:
    ids = BPE(text, add_special_tokens=False)["input_ids"]
    assert "".join(pieces(GrowingText(BPE, [], (), False), ids)) == text


@given(
    text=st.text("ab<é", max_size=30),
    stop=st.lists(st.text("ab<é", min_size=1, max_size=4), max_size=3),
    keep=st.booleans(),
)
def test_a_stream_ends_at_the_first_stop_string(text: str, stop: list[str], keep: bool) -> None:
    # One character a token, so that no two stop strings are complete at the same time unless they end alike.
    stop = [s for s in stop if not any(s != other and (s in other or other in s) for other in stop)]
    ids = [token for character in text for token in BPE(character, add_special_tokens=False)["input_ids"]]
    ends = [text.find(s) + len(s) for s in stop if s in text]
    first = text[: min(ends)] if ends else text
    assert "".join(pieces(GrowingText(BPE, [], tuple(stop), keep), ids)) == cut(first, stop, keep)


def test_no_part_of_a_stop_string_is_released_before_it_is_complete() -> None:
    ids = [BPE(character)["input_ids"][0] for character in "ab</an</answer>c"]
    released = pieces(GrowingText(BPE, [], ("</answer>",), False), ids)
    assert "".join(released) == "ab</an"
    assert released[:7] == ["a", "b", "", "", "", "", "</an"]


def test_a_character_of_several_tokens_comes_whole() -> None:
    ids = BPE("ü🙂", add_special_tokens=False)["input_ids"]
    assert len(ids) == 6
    assert [piece for piece in pieces(GrowingText(BPE, [], (), False), ids) if piece] == ["ü", "🙂"]


def test_bytes_that_are_no_character_come_at_the_end() -> None:
    ids = BPE("🙂", add_special_tokens=False)["input_ids"][:2]
    assert "".join(pieces(GrowingText(BPE, [], (), False), ids)) == BPE.decode(ids)


@pytest.mark.parametrize(("before", "text"), [("<answer>", " a b"), ("", "a b")])
def test_words_behind_a_prompt_keep_the_space_before_them(before: str, text: str) -> None:
    prompt = LETTERS(before)["input_ids"]
    growing = GrowingText(LETTERS, prompt, (), False)
    assert "".join(pieces(growing, LETTERS("a b")["input_ids"])) == text
