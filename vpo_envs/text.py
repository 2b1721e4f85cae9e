"""Answer tags (``<answer_1>`` to ``<answer_m>``, or ``<answer>`` if m is 1), replies inside a response, text matching,
and shared sentences.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from vpo_envs.common.thoughts import MASK, find_thoughts

Message = Mapping[str, str]
"""A message of a chat, with ``role`` and ``content``."""
Prompt = str | Sequence[Message]
"""What a model is asked: a text, or the messages of a chat."""


def as_messages(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt as the messages of a chat; a text is the user's."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [dict(message) for message in prompt]


def as_text(prompt: Prompt) -> str:
    """Return a prompt as a text, in which the messages of a chat are separated by empty lines."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(message["content"] for message in prompt if message["content"])


@lru_cache(maxsize=64)
def answer_tags(num_answers: int) -> tuple[tuple[str, str], ...]:
    """Return the opening and closing tag of each of ``num_answers`` answers."""
    if num_answers == 1:
        return (("<answer>", "</answer>"),)
    return tuple((f"<answer_{i}>", f"</answer_{i}>") for i in range(1, num_answers + 1))


def end_tags(numbers: Collection[int]) -> list[str]:
    """Return the tags that end responses of these numbers of answers, without those inside a longer response."""
    return sorted({answer_tags(m)[-1][1] for m in numbers if m in (1, max(numbers))})


REPLY_START, REPLY_END = "\ue000", "\ue001"
"""Characters of Unicode's private use that enclose an environment's reply inside a response."""
_MARKS = str.maketrans("", "", REPLY_START + REPLY_END)
_REPLY = re.compile(f"{REPLY_START}([^{REPLY_END}]*){REPLY_END}")
_CALL = re.compile(r"<([a-z][a-z0-9_]*)>((?:(?!<\1>).)*)</\1>\s*\Z", re.DOTALL)


class Call(NamedTuple):
    """What a model asks its environment in the middle of a response, as ``<open>Ada Holm</open>``."""

    tag: str
    """Name of the tag."""
    text: str
    """The text inside it."""


def written_by_model(text: str) -> str:
    """Return a text without the characters that enclose replies, which only an environment may write."""
    return text.translate(_MARKS)


def with_reply(response: str, reply: str) -> str:
    """Return a response that ends in a call, followed by the environment's reply."""
    return f"{response}{REPLY_START}{written_by_model(reply)}{REPLY_END}"


def split_turns(response: str) -> list[tuple[str, str | None]]:
    """Return what a model wrote in each turn and the reply to it; the last turn has none, and may be empty."""
    parts = _REPLY.split(response)
    return list(zip(parts[::2], [*parts[1::2], None], strict=True))


def readable(response: str) -> str:
    """Return a response with its replies as models read them: each in the tag ``<reply>``, on a line of its own."""
    return _REPLY.sub(r"\n<reply>\1</reply>\n", response)


def last_call(written: str) -> Call | None:
    """Return the call with which a turn ends; ``None`` if it ends with something else, or inside thoughts."""
    call = _CALL.search(find_thoughts(written).masked)
    return call and Call(call[1], call[2])


def calls_of(response: str) -> list[Call]:
    """Return the calls of a response, or of an answer with its calls, that the environment has replied to."""
    if REPLY_START not in response:
        return []
    turns = split_turns(response)[:-1]
    return [call for written, _ in turns if (call := last_call(written))]


def split_answers(response: str, num_answers: int) -> list[str | None]:
    """Return the text inside each of the tags of ``num_answers`` answers; ``None`` for a tag that is not complete.

    Tags inside thoughts (:mod:`vpo_envs.common.thoughts`) do not count. If a tag occurs several times, the last
    complete block counts. A block runs from an opening tag to the next closing one, with no second opening tag between.
    Text outside tags is never an answer, and no reply of the environment is. The time is linear in the length of the
    response.

    Where the environment has replied before the end of an answer, the calls with their replies precede its text:
    ``<open>Ada Holm</open>``, the reply in its marks, and the text.
    """
    turns = split_turns(response)
    masked = [find_thoughts(written).masked for written, _ in turns]
    has_thoughts = any(said is not written for said, (written, _) in zip(masked, turns, strict=True))
    said = REPLY_END.join(masked)
    answers = []
    for opening, closing in answer_tags(num_answers):
        text = _last_block(said, opening, closing)
        if text is not None and len(turns) > 1:
            end = said.rindex(f"{opening}{text}{closing}") + len(opening) + len(text)
            text = _calls_before(turns[: said.count(REPLY_END, 0, end)]) + bare_answer(text)
        answers.append(text.replace(MASK, "") if text and has_thoughts else text)
    return answers


def _calls_before(turns: Sequence[tuple[str, str | None]]) -> str:
    """Return the calls of turns, each with the reply to it and without what else was written."""
    calls = ""
    for written, reply in turns:
        call = _CALL.search(find_thoughts(written).masked)
        if call is not None and reply is not None:
            calls = with_reply(calls + call[0].rstrip(), reply)
    return calls


def _last_block(text: str, opening: str, closing: str) -> str | None:
    start = text.rfind(opening, 0, max(0, text.rfind(closing)))
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.index(closing, start)]


def bare_answer(answer: str) -> str:
    """Return the text of an answer without the calls before it."""
    return answer.rpartition(REPLY_END)[2]


def format_answers(answers: Sequence[str | None], num_answers: int | None = None) -> str:
    """Return answers in their tags, one per line, the inverse of :func:`split_answers`; missing ones are left out.

    The calls of an answer precede its tag; calls that it shares with the answer before are written only once.

    Args:
        answers: The text inside each tag, in order; at most ``num_answers`` of them.
        num_answers: m, which determines the names of the tags; ``len(answers)`` if ``None``.
    """
    tags = answer_tags(len(answers) if num_answers is None else num_answers)
    blocks = []
    calls = ""
    for (opening, closing), answer in zip(tags, answers, strict=False):
        if answer is None:
            continue
        text = bare_answer(answer)
        calls_of_answer = answer[: len(answer) - len(text)]
        new = calls_of_answer.removeprefix(calls)
        calls = calls_of_answer
        blocks.append(f"{new}{opening}{text}{closing}")
    return "\n".join(blocks)


def several_answers(
    num_answers: int, answers: str = "answers", objectives: str = "objectives", *, conflict: bool = True
) -> str:
    """Return the sentences of a prompt that ask for a set of answers and say how it is judged.

    Args:
        num_answers: Answers in the set.
        answers: What they are, in the plural.
        objectives: What the objectives are, in the plural.
        conflict: Whether the objectives conflict; if not, no trade-off is asked for.
    """
    which = f" that make different trade-offs between these {objectives}" if conflict else ""
    return (
        f"Give {num_answers} different {answers}{which}. They are judged together: under each weighting of the "
        f"{objectives} only the best of them counts."
    )


def runs(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """Return all runs of ``size`` words, in order."""
    return zip(*[words[i:] for i in range(size)], strict=False)


ARTICLES = re.compile(r"\b(a|an|the)\b")
DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_tokens(text: str) -> tuple[str, ...]:
    """Return the words of an answer after SQuAD's normalisation (Rajpurkar et al., 2016); there may be none.

    The text is lower-cased, stripped of ASCII punctuation and of the articles a, an and the, and split at blanks.
    """
    return tuple(ARTICLES.sub(" ", text.lower().translate(DROP_PUNCTUATION)).split())


def count_tokens(tokens: Sequence[str]) -> dict[str, int]:
    """Return how often each token occurs, the form that :func:`token_f1` compares with."""
    return dict(Counter(tokens))


def token_f1(answer: Sequence[str], gold: Mapping[str, int]) -> float:
    """Return the F1 of two multisets of tokens, in [0, 1]; with an empty one, 1 if both are empty and else 0."""
    gold_size = sum(gold.values())
    if not answer or not gold_size:
        return float(not answer and not gold_size)
    left = dict(gold)
    common = 0
    for token in answer:
        if left.get(token, 0):
            left[token] -= 1
            common += 1
    # This is 2PR / (P + R) with precision P = common / answer and recall R = common / gold.
    return 2 * common / (len(answer) + gold_size)


LETTERS_WITHOUT_ACCENT = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ħ": "h", "ŧ": "t"}
    | {"\N{LATIN SMALL LETTER DOTLESS I}": "i", "\N{CYRILLIC SMALL LETTER IO}": "\N{CYRILLIC SMALL LETTER IE}"}
)
"""Letters that Unicode does not decompose into a plain one and an accent."""
STRESS = "\N{COMBINING GRAVE ACCENT}\N{COMBINING ACUTE ACCENT}"
VOWEL_POINTS = frozenset(map(chr, (*range(0x0591, 0x05C8), *range(0x064B, 0x0653), 0x0670)))
"""Marks of Hebrew and Arabic that are usually left out."""


def fold_accents(text: str) -> str:
    """Return a text in lower case without accents: compatibility forms decomposed, ø as o, ß as ss.

    Accents are the marks of Latin and Greek letters, the stress of Cyrillic ones, and the vowel points of Hebrew and
    Arabic. In other scripts a mark makes another letter: Japanese ha and pa, the vowels of Hindi and Thai.
    """
    if text.isascii():
        return text.lower()
    letters: list[str] = []
    bearer = "a"
    for letter in unicodedata.normalize("NFKD", text):
        if unicodedata.category(letter) != "Mn":
            bearer = letter if letter.isalpha() else bearer
        elif _is_accent(letter, bearer):
            continue
        letters.append(letter)
    return unicodedata.normalize("NFC", "".join(letters)).casefold().translate(LETTERS_WITHOUT_ACCENT)


@lru_cache(maxsize=4096)
def _is_accent(mark: str, bearer: str) -> bool:
    script = unicodedata.name(bearer, "LATIN").partition(" ")[0]
    return script in ("LATIN", "GREEK") or mark in VOWEL_POINTS or (script == "CYRILLIC" and mark in STRESS)


class _Punctuation(dict[int, str]):
    """A table for ``str.translate`` that drops punctuation and invisible signs, or makes blanks of what parts words."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        parts = category in ("Pc", "Pd", "Ps", "Pe")
        self[code] = " " if parts else "" if category in ("Po", "Pi", "Pf", "Cf") else chr(code)
        return self[code]


_PUNCTUATION = _Punctuation(
    dict.fromkeys(map(ord, "/\\:;|\N{KATAKANA MIDDLE DOT}"), " ")
    | dict.fromkeys(map(ord, "`^"), "")
    | {ord("&"): " and "}
    | {ord(sign): sign for sign in "#%*@"}  # C# is not C
)
INITIAL = re.compile(r"\b(\w)\.\s+(?=\w\.)")
STARTS_WITH_A = re.compile(r"[\W_]*(?:the[\s_]+)*an?[\s_]")


def normalise_name(text: str) -> str:
    """Return a name in the form in which names are compared.

    Underscores, hyphens, slashes, colons and brackets become blanks, ``&`` becomes "and", accents are folded, letters
    lower-cased, and other punctuation dropped. Symbols stay, so C++, C# and C differ. "The" is dropped, and "a" or "an"
    at the start. If nothing would be left (a band called "The The"), the articles stay.
    """
    return _normal_short_name(text) if len(text) <= SHORT_NAME else _normal_name(text)


SHORT_NAME = 64
"""Names up to this length are cached, because the rollouts of one prompt repeat the same names."""


def _normal_name(text: str) -> str:
    folded = fold_accents(INITIAL.sub(r"\1.", text))
    words = folded.translate(_PUNCTUATION).split()
    kept = [word for word in words if word != "the"] or words
    return " ".join(kept[1:] if len(kept) > 1 and STARTS_WITH_A.match(folded) else kept)


_normal_short_name = lru_cache(maxsize=65_536)(_normal_name)


def read_tag(text: str, name: str) -> str | None:
    """Return the text in the last complete ``<name>…</name>`` block; ``None`` if there is none.

    As with answers, a block runs from an opening tag to the next closing one with no second opening tag between.
    """
    return _last_block(text, f"<{name}>", f"</{name}>")
