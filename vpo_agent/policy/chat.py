"""How prompts become tokens and tokens become text: chat templates, ends of turns and special tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from jinja2.exceptions import TemplateError

from vpo_envs.common.thoughts import CLOSING, MASK, find_thoughts
from vpo_envs.text import Message, Prompt, as_messages, as_text, readable, with_reply

PROBE, REPLY = "PROBEQUESTION", "PROBEREPLY"
"""Contents of the dialogue that a template is read from: plain words, which no template changes."""
TAG, ANSWER_TAG = re.compile(r"</?[A-Za-z]\w*>"), re.compile(r"</?answer(_\d+)?>")
THINKING_SWITCHES = ("enable_thinking", "thinking")
"""Names under which templates take whether the model is to think."""
CLOCK = "strftime_now"
"""The function with which templates write the time; its argument is as for ``datetime.strftime``."""
DATE_CODES = tuple(f"%{flag}{letter}" for letter in "aAbBcdDeFHIjmMpSTuUwWxXyYzZ" for flag in ("", "-"))
ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")
MARK = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
"""How a template writes the end of a turn that is no token of its own."""
REFUSALS = (TemplateError, TypeError, ValueError, KeyError, AttributeError)
"""What templates raise at chats that they do not take; the sandbox that runs them has errors of its own."""
MOST_TAKEN = 64
"""How many sequences of roles are remembered: a server's clients may send any."""
_hidden: WeakKeyDictionary[Any, tuple[int, frozenset[int] | None]] = WeakKeyDictionary()


class ChatFormat:
    """How a tokenizer writes prompts, and where the responses to them end.

    Args:
        tokenizer: The tokenizer, with a chat template or without.
        thinking: Whether the template is asked for thoughts before the answer.
        date: The date for templates that write one, such as ``2026-01-31``; today by default.

    Raises:
        ValueError: Thinking is asked for, and the template has no switch for it.
    """

    def __init__(self, tokenizer: Any, *, thinking: bool = False, date: str | None = None) -> None:
        self._tokenizer = tokenizer
        template = tokenizer.get_chat_template() if tokenizer.chat_template is not None else ""
        self.date = (date or datetime.now().strftime("%Y-%m-%d")) if CLOCK in template else None
        """The day that the template writes; ``None`` if it writes none."""
        self.template = template if self.date is None else _dated(template, self.date)
        """The chat template, with the day fixed; empty without one."""
        self._taken_roles: set[tuple[str, ...]] = set()  # all of whose messages the template writes
        self.thinking = thinking
        """Whether the template is asked for thoughts."""
        self.is_chat: bool = tokenizer.chat_template is not None
        """Whether prompts go through a chat template."""
        self.turn_end = self._find_turn_end() if self.is_chat else ""
        """What the template writes after the assistant's last message, such as ``<|im_end|>``; empty if unknown."""
        self.turn_end_id = self._token_of(self.turn_end)
        """The token that is :attr:`turn_end`; ``None`` if it is several tokens, or unknown."""
        self.turn_end_text = self.turn_end if self.turn_end_id is None else ""
        """The end of a turn where it is several tokens; otherwise empty."""
        self._before, self._behind = self._find_added()
        formatted = self._formatted(thinking=thinking)
        self.opened = _opened(formatted.partition(PROBE)[2])
        """The mark of thoughts that the template writes in front of every response, such as ``<think>``, to its end."""
        self.thinks = thinking or bool(self.opened)
        """Whether responses are expected to begin with thoughts."""
        if thinking and not self.opened and formatted == self._formatted(thinking=False):
            raise ValueError(
                f"the chat template of {tokenizer.name_or_path!r} has no switch for thinking: leave out --thinking on"
            )

    @property
    def closed(self) -> str:
        """What a response without thoughts begins with: the mark that closes :attr:`opened`."""
        mark = next((closing for opening, closing in CLOSING.items() if self.opened.startswith(opening)), "")
        return mark and mark + "\n\n"

    def read(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of responses, each with :attr:`opened` in front."""
        return [self.opened + text for text in read_tokens(self._tokenizer, rows)]

    @property
    def end_ids(self) -> list[int]:
        """Tokens that end a response: the end of a turn, or else the end of a text; there may be none."""
        end = self._tokenizer.eos_token_id if self.turn_end_id is None else self.turn_end_id
        return [] if end is None else [end]

    def encode(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the tokens of prompts. With a template, a text becomes the user's message; without one, a chat becomes
        its texts.

        Raises:
            ValueError: A prompt has no tokens.
        """
        if self.is_chat:
            rows = self.encode_texts([self.apply(as_messages(prompt)) for prompt in prompts])
        else:
            rows = self.encode_plain([as_text(prompt) for prompt in prompts])
        for prompt, row in zip(prompts, rows, strict=True):
            if not row:
                text = as_text(prompt)
                raise ValueError(
                    f"a prompt has no tokens: the tokenizer reads {text!r:.80} as empty text; leave it out"
                )
        return rows

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts, adding no special tokens, since a template has written them."""
        rows: list[list[int]] = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return rows

    def encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts that a model continues.

        They begin with the tokens that the tokenizer puts before a text, but not twice if the text itself has them.
        Tokens that it puts after a text are left out, since they would end the text.
        """
        rows: list[list[int]] = self._tokenizer(list(texts), verbose=False)["input_ids"]
        before, behind = self._before, self._behind
        for number, row in enumerate(rows):
            if behind and row[-len(behind) :] == behind:
                row = row[: -len(behind)]
            if before and row[: 2 * len(before)] == before * 2:
                row = row[len(before) :]
            rows[number] = row
        return rows

    @property
    def switches(self) -> dict[str, bool]:
        """The arguments of the template that switch thinking on or off; a template ignores arguments that it does not
        have."""
        return dict.fromkeys(THINKING_SWITCHES, self.thinking)

    def apply(self, messages: Sequence[Message], *, ready: bool = True, thinking: bool | None = None) -> str:
        """Format a chat by the template.

        Args:
            messages: The chat.
            ready: Whether it ends with what comes before the model's answer.
            thinking: Whether to ask for thoughts; ``None`` takes the setting of this format.

        Raises:
            ValueError: The template refuses such a chat, or leaves out one of its messages.
        """
        switches = self.switches if thinking is None else dict.fromkeys(THINKING_SWITCHES, thinking)
        options = {"chat_template": self.template, "tokenize": False, "add_generation_prompt": ready, **switches}
        try:
            self._check_roles(messages, options)
            return str(self._tokenizer.apply_chat_template(list(messages), **options))
        except REFUSALS as error:
            raise ValueError(
                f"the chat template of {self._tokenizer.name_or_path!r} does not take a chat of the roles "
                f"{', '.join(message['role'] for message in messages)} ({error}): write such messages into the user's, "
                "or choose another --model"
            ) from error

    def _check_roles(self, messages: Sequence[Message], options: Mapping[str, Any]) -> None:
        """Raise a ValueError if the template leaves a message of these roles out, as some do with the system message.

        It is tried with plain words, since templates may trim a message, or take earlier thoughts away.
        """
        roles = tuple(message["role"] for message in messages)
        if roles in self._taken_roles:
            return
        probes = [{"role": role, "content": f"{PROBE}{number}END"} for number, role in enumerate(roles)]
        written = {*re.findall(f"{PROBE}\\d+END", self._tokenizer.apply_chat_template(probes, **options))}
        for probe in probes:
            if probe["content"] not in written:
                raise ValueError(f"it leaves out the message of the role {probe['role']}")
        if len(self._taken_roles) < MOST_TAKEN:
            self._taken_roles.add(roles)

    def _formatted(self, *, thinking: bool) -> str:
        """Return a question as the template formats it; empty without a template."""
        return self.apply([{"role": "user", "content": PROBE}], thinking=thinking) if self.is_chat else ""

    def reply_text(self, reply: str) -> str:
        """Return what stands between a call of the model and its next words, if its environment replies.

        With a template the reply is the user's message; without, it stands in the tag ``<reply>``.
        """
        if self.is_chat:
            question, call = {"role": "user", "content": PROBE}, {"role": "assistant", "content": REPLY}
            try:
                return self.apply([question, call, {"role": "user", "content": reply}]).partition(REPLY)[2]
            except REFUSALS:
                pass
        return readable(with_reply("", reply))

    def _find_turn_end(self) -> str:
        """Return what ends the assistant's message, from a dialogue that the template has formatted.

        It stands after the last message; if a template leaves that message open, it is what begins the next turn.
        """
        question, reply = {"role": "user", "content": PROBE}, {"role": "assistant", "content": REPLY}
        for dialogue in ([question, reply], [question, reply, question]):
            try:
                text = self.apply(dialogue, ready=False)
            except REFUSALS:
                continue
            behind = text.partition(REPLY)[2].partition(PROBE)[0].lstrip()
            if end := self._first_token(behind) or ((mark := MARK.match(behind)) and mark.group()):
                return end
        return ""

    def _first_token(self, text: str) -> str:
        """Return the added token that a text begins with, the longest; empty if there is none."""
        added = [token.content for token in self._tokenizer.added_tokens_decoder.values()]
        return max((token for token in added if token.strip() and text.startswith(token)), key=len, default="")

    def _token_of(self, text: str) -> int | None:
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return ids[0] if len(ids) == 1 else None

    def _find_added(self) -> tuple[list[int], list[int]]:
        """Return the tokens that the tokenizer puts before and after every text."""
        plain, whole = (
            self._tokenizer(REPLY, add_special_tokens=special, verbose=False)["input_ids"] for special in (False, True)
        )
        for start in range(len(whole) - len(plain) + 1):
            if plain and whole[start : start + len(plain)] == plain:
                return whole[:start], whole[start + len(plain) :]
        return [], []


def _dated(template: str, date: str) -> str:
    """Return a template whose clock stands still at the beginning of a day."""
    day = datetime.fromisoformat(date)
    replaced = "".join(f".replace({code!r}, {day.strftime(code)!r})" for code in DATE_CODES)
    # A block and the line break behind it leave nothing in the text.
    return f"{{% macro {CLOCK}(format) %}}{{{{ format{replaced} }}}}{{% endmacro %}}\n{template}"


def _opened(text: str) -> str:
    """Return the end of a text, from the mark of thoughts that it opens and does not close; empty if there is none."""
    masked, unclosed = find_thoughts(text)
    return text[len(masked.rstrip(MASK)) :] if unclosed else ""


def _special_marks(special: set[str]) -> set[str]:
    """Return the special tokens that marks of thoughts consist of, for the kinds of marks that the tokenizer knows."""
    marks: set[str] = set()
    for opening, closing in CLOSING.items():
        parts = {token for token in special if token in opening}
        rest = opening
        for token in parts:
            rest = rest.replace(token, "")
        if parts and (not rest or rest.isalpha()):
            marks |= parts | {token for token in special if token in closing}
    return marks


def read_tokens(tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[str]:
    """Return the texts of rows of tokens, without special ones.

    Tags that were added as special tokens, such as ``<answer_1>``, are text like any other.
    """
    size, hidden = _hidden.get(tokenizer, (-1, None))
    if size != len(tokenizer):
        hidden = _find_hidden(tokenizer)
        _hidden[tokenizer] = len(tokenizer), hidden
    if hidden is None:
        texts: list[str] = tokenizer.batch_decode([list(row) for row in rows], skip_special_tokens=True)
        return texts
    shown = [[token for token in row if token not in hidden] for row in rows]
    return list(tokenizer.batch_decode(shown, skip_special_tokens=False))


def _find_hidden(tokenizer: Any) -> frozenset[int] | None:
    """Return the special tokens that are no text; ``None`` if no special token is text."""
    special = {number: token.content for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    special |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    with_a_role = {str(getattr(tokenizer, f"{role}_token", None)) for role in ROLES}
    template = str(tokenizer.chat_template or "")

    def is_text(token: str) -> bool:
        """Whether a special token is a tag for responses, and neither a token of the template nor a spare one."""
        if token in with_a_role or not TAG.fullmatch(token):
            return False
        return bool(ANSWER_TAG.fullmatch(token)) or (token not in template and "unused" not in token)

    marks = _special_marks(set(special.values()) - with_a_role)
    shown = {number for number, token in special.items() if is_text(token) or token in marks}
    return frozenset(special) - shown if shown else None
