"""Answer sets in text: ``<answer_1>…</answer_1>`` to ``<answer_m>…</answer_m>``; plain ``<answer>`` where m is 1."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache


@lru_cache(maxsize=64)
def answer_tags(num_answers: int) -> tuple[tuple[str, str], ...]:
    """Opening and closing tag of each of ``num_answers`` answers."""
    if num_answers == 1:
        return (("<answer>", "</answer>"),)
    return tuple((f"<answer_{i}>", f"</answer_{i}>") for i in range(1, num_answers + 1))


def split_answers(response: str, num_answers: int) -> list[str | None]:
    """What stands inside each of the wanted tags, by position; ``None`` where no complete tag is.

    Of several complete blocks with one tag the last counts, so a draft in the reasoning does no harm. A block runs from
    an opening tag to the next closing one, with no second opening tag between. Text outside tags is never an answer.
    The time is linear in the length of the response.
    """
    return [
        None if span is None else response[span[0] + len(opening) : span[1] - len(closing)]
        for span, (opening, closing) in zip(answer_spans(response, num_answers), answer_tags(num_answers), strict=True)
    ]


def answer_spans(response: str, num_answers: int) -> list[tuple[int, int] | None]:
    """Where each answer stands, tags included: first character and the one after the last; ``None`` where it lacks."""
    spans: list[tuple[int, int] | None] = []
    for opening, closing in answer_tags(num_answers):
        start = response.rfind(opening, 0, max(0, response.rfind(closing)))
        end = response.find(closing, start + len(opening)) + len(closing)
        spans.append(None if start < 0 else (start, end))
    return spans


def format_answers(answers: Sequence[str | None], num_answers: int | None = None) -> str:
    """The inverse of :func:`split_answers`: answers in their tags, one a line; missing ones are left out.

    Args:
        answers: What stands inside each tag, in order; at most ``num_answers`` of them.
        num_answers: m, which decides the names of the tags; ``len(answers)`` where ``None``.
    """
    tags = answer_tags(len(answers) if num_answers is None else num_answers)
    blocks = [
        f"{opening}{text}{closing}" for (opening, closing), text in zip(tags, answers, strict=False) if text is not None
    ]
    return "\n".join(blocks)


ARTICLES = re.compile(r"\b(a|an|the)\b")
DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_tokens(text: str) -> tuple[str, ...]:
    """The words of an answer after SQuAD's normalisation (Rajpurkar et al., 2016).

    Lower case, ASCII punctuation dropped, the articles a, an and the dropped, split at blanks. May be empty.
    """
    return tuple(ARTICLES.sub(" ", text.lower().translate(DROP_PUNCTUATION)).split())


def count_tokens(tokens: Sequence[str]) -> dict[str, int]:
    """How often each token occurs, in the form that :func:`token_f1` compares with."""
    counts: dict[str, int] = {}
    for token in tokens:
        counts[token] = counts.get(token, 0) + 1
    return counts


def token_f1(answer: Sequence[str], gold: Mapping[str, int]) -> float:
    """F1 of the multisets of tokens, in [0, 1]; where one of them is empty, 1 if both are and else 0.

    Args:
        answer: Normalised tokens of the answer.
        gold: Counts of the gold answer's tokens, from :func:`count_tokens`.
    """
    gold_size = sum(gold.values())
    if not answer or not gold_size:
        return float(not answer and not gold_size)
    left = dict(gold)
    common = 0
    for token in answer:
        if left.get(token, 0):
            left[token] -= 1
            common += 1
    # 2PR / (P + R) with P = common / answer and R = common / gold.
    return 2 * common / (len(answer) + gold_size)


LETTERS_WITHOUT_ACCENT = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "\N{LATIN SMALL LETTER DOTLESS I}": "i",
        "ħ": "h",
        "ŧ": "t",
    }
)
"""Letters that Unicode does not decompose into a plain one and a mark."""


def fold_accents(text: str) -> str:
    """Lower case without accents: compatibility forms decomposed, marks dropped, ø to o, ß to ss and so on."""
    if text.isascii():
        return text.lower()
    plain = [letter for letter in unicodedata.normalize("NFKD", text) if unicodedata.category(letter) != "Mn"]
    return "".join(plain).casefold().translate(LETTERS_WITHOUT_ACCENT)


class _Punctuation(dict[int, str]):
    """A table for ``str.translate``: underscores become blanks, punctuation of any script goes, the rest stays."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        dropped = letter in string.punctuation or unicodedata.category(letter).startswith("P")
        self[code] = "" if dropped else letter
        return self[code]


_PUNCTUATION = _Punctuation({ord("_"): " "})


def normalise_name(text: str) -> str:
    """A name in the form in which names are compared.

    Underscores become blanks, accents are folded, letters lower case, articles and punctuation dropped, blanks made
    single. Where nothing would be left (a band called "The The"), the articles stay.
    """
    return _normal_short_name(text) if len(text) <= SHORT_NAME else _normal_name(text)


SHORT_NAME = 64
"""Names up to this length are remembered: the rollouts of one prompt give the same ones again and again."""


def _normal_name(text: str) -> str:
    words = fold_accents(text).translate(_PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", words).split()) or " ".join(words.split())


_normal_short_name = lru_cache(maxsize=65_536)(_normal_name)


def read_tag(text: str, name: str) -> str | None:
    """What stands in the last complete ``<name>…</name>`` of a text; ``None`` where there is none.

    As with answers, a block runs from an opening tag to the next closing one with no second opening tag between.
    """
    opening, closing = f"<{name}>", f"</{name}>"
    start = text.rfind(opening, 0, max(0, text.rfind(closing)))
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.index(closing, start)]


def condition_prompt(prompt: str, names: Sequence[str], descriptions: Sequence[str], weights: Sequence[float]) -> str:
    """Return the prompt with a weighting of the objectives stated before it.

    Args:
        prompt: The prompt.
        names: Names of the objectives that count.
        descriptions: What each rewards.
        weights: Weight of each, summing to 1.
    """
    lines = [
        f"- {name}: {100 * weight:.4g} % ({description})"
        for name, description, weight in zip(names, descriptions, weights, strict=True)
    ]
    return "\n".join(["What you write is judged by these goals, with these weights:", *lines, "", prompt])
