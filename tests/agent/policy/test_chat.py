"""Where turns end, which special tokens are text, and what stands at the ends of a prompt."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from tokenizers.processors import TemplateProcessing
from toys import ALWAYS_THINKS, CHATML, CHATML_MARKS, MAY_THINK, chat_tokenizer, taught

from envs_data import bundled_model_path
from vpo_agent.policy.chat import ChatFormat, read_tokens
from vpo_agent.policy.decoding import ClosingTag
from vpo_agent.policy.language_model import LMPolicy
from vpo_agent.policy.loading import load_model
from vpo_envs.text import answer_tags, split_answers

TURNS = {
    "<|im_end|>": CHATML,
    "<|eot_id|>": (
        "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
        "{% endfor %}"
    ),
    "<end_of_turn>": (
        "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    ),
    # Then the end of the whole text.
    "<|end|>": (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if not add_generation_prompt %}<eos>{% endif %}"
    ),
    "</s>": (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"
    ),
    # The next turn's beginning is all that ends one.
    "<|user|>": "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}",
    # The end of a part of a message is not that of a turn.
    "<|return|>": (
        "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}"
        "{{ '<|return|>' if loop.last and m.role == 'assistant' else '<|end|>' }}{% endfor %}"
    ),
    "": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
}


def sampled(policy: LMPolicy, prompt: str) -> tuple[str, bool]:
    """What the policy writes, and whether it was cut."""
    samples = policy.sample([prompt], rollouts=1, num_answers=1, max_new_tokens=90, temperature=0.05)
    return samples.texts[0], bool(samples.truncated[0])


# --- the end of a turn ---


@pytest.mark.parametrize("end", TURNS)
def test_the_end_of_a_turn_is_read_from_the_template(end: str) -> None:
    marks = [mark for mark in TURNS if mark] + ["<|end|>", "<|start|>", "<|user|>"]
    chat = ChatFormat(chat_tokenizer(TURNS[end], *dict.fromkeys(marks)))
    assert chat.turn_end == end
    assert chat.turn_end_id == (chat_id := chat._token_of(end))
    assert (chat_id is None) == (not end)


def test_a_template_that_takes_no_such_dialogue_has_no_known_end() -> None:
    refusing = (
        "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}"
        "{% endfor %}"
    )
    chat = ChatFormat(chat_tokenizer(refusing))
    assert (chat.turn_end, chat.turn_end_id, len(chat.end_ids)) == ("", None, 1)


@pytest.mark.parametrize("tokens", [("<|im_start|>", "<|im_end|>"), ()], ids=["one token", "several tokens"])
def test_a_response_ends_with_its_turn_though_nothing_names_its_end_as_eos(tokens: tuple[str, ...]) -> None:
    next_turn = "\n<|im_start|>user\n3+3?<|im_end|>\n<|im_start|>assistant\n<answer>6</answer>"
    policy = taught(chat_tokenizer(CHATML, *tokens), "2+2?", f"I do not know.<|im_end|>{next_turn}")
    text, cut = sampled(policy, "2+2?")
    assert text == "I do not know." + ("" if tokens else "<|im_end|>")
    assert not cut


# --- special tokens ---

SPECIAL = (*(tag for m in (1, 3) for pair in answer_tags(m) for tag in pair), "<final>", "</final>")


@pytest.mark.parametrize("special", [False, True])
def test_tags_are_text_however_they_were_added(special: bool) -> None:
    tokenizer = toys.bpe_tokenizer()
    tokenizer.add_tokens(list(SPECIAL), special_tokens=special)
    said = "so <answer_1><final>U</final></answer_1><answer_3>x</answer_3>"
    ids = tokenizer(said + "<eos><pad>", add_special_tokens=False)["input_ids"]
    assert read_tokens(tokenizer, [ids, []]) == [said, ""]
    texts = read_tokens(tokenizer, [[token] for token in range(len(tokenizer))])
    stop = ClosingTag(tokenizer, "</answer_3>", texts)
    assert next(end for end in range(1, len(ids)) if stop(ids[:end])) == len(ids) - 2


def test_special_tokens_of_the_template_and_spare_ones_are_no_text() -> None:
    marks = ("<start_of_turn>", "<end_of_turn>", "<unused3>", "<|extra|>")
    tokenizer = chat_tokenizer(TURNS["<end_of_turn>"], *marks, "<answer>", "</answer>")
    ids = tokenizer("a<unused3><|extra|><answer>b</answer><end_of_turn>", add_special_tokens=False)["input_ids"]
    assert read_tokens(tokenizer, [ids]) == ["a<answer>b</answer>"]


def test_a_bundled_model_with_its_tags_as_special_tokens_answers_as_before(tmp_path: Path) -> None:
    model, tokenizer = load_model(bundled_model_path("tiny-countdown"), torch.float32)
    tags = [tag for pair in answer_tags(3) for tag in pair]
    model.save_pretrained(tmp_path)
    tokenizer.add_special_tokens({"additional_special_tokens": tags})
    tokenizer.save_pretrained(tmp_path)
    settings: dict[str, Any] = {"rollouts": 4, "num_answers": 3, "max_new_tokens": 50}
    expected, found = (
        LMPolicy.from_pretrained(name, device="cpu").sample(["Use 1 2 3 to make 6"], **settings)
        for name in ("tiny-countdown", tmp_path)
    )
    assert found.texts == expected.texts
    assert any("</answer_3>" in text for text in found.texts)


# --- the ends of a prompt ---


def with_ends(before: str, behind: str) -> Any:
    """A tokenizer that puts tokens around every text."""
    tokenizer = toys.bpe_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<bos>"})
    tokens = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<bos>", "<eos>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{before} $A {behind}".strip(), special_tokens=tokens
    )
    return tokenizer


@pytest.mark.parametrize("behind", ["", "<eos>"])
@pytest.mark.parametrize("before", ["", "<bos>"])
def test_a_prompt_has_one_beginning_and_no_end(before: str, behind: str) -> None:
    tokenizer = with_ends(before, behind)
    chat = ChatFormat(tokenizer)
    written = tokenizer("the maze", add_special_tokens=False)["input_ids"]
    first = [tokenizer.bos_token_id] if before else []
    for text in ("the maze", f"{before}the maze"):
        assert chat.encode([text]) == [[*first, *written]]
    with pytest.raises(ValueError, match="a prompt has no tokens"):
        ChatFormat(with_ends("", behind)).encode([""])


def test_a_template_writes_the_beginning_itself() -> None:
    tokenizer = with_ends("<bos>", "<eos>")
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    ids = ChatFormat(tokenizer).encode(["the maze"])[0]
    assert tokenizer.decode(ids) == "<bos>the maze"


def test_a_chat_reaches_a_model_without_a_template_as_its_texts() -> None:
    tokenizer = toys.bpe_tokenizer()
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the maze"}]
    assert tokenizer.decode(ChatFormat(tokenizer).encode([chat])[0]) == "Be brief.\n\nthe maze"
    tokenizer.chat_template = CHATML
    assert "system\nBe brief." in tokenizer.decode(ChatFormat(tokenizer).encode([chat])[0])


# --- thoughts ---

SAID = "Perhaps <answer>41</answer>? No.</think>\n<answer>42</answer>"


def test_the_switch_for_thinking_reaches_the_template() -> None:
    tokenizer = chat_tokenizer(MAY_THINK, *CHATML_MARKS)
    question = [{"role": "user", "content": "x"}]
    on, off = (ChatFormat(tokenizer, thinking=thinking).apply(question) for thinking in (True, False))
    assert on.endswith("assistant\n")
    assert off.endswith("<think>\n\n</think>\n\n")
    other = chat_tokenizer(CHATML + "{% if thinking %}<think>{% endif %}", *CHATML_MARKS)
    assert ChatFormat(other, thinking=True).opened == "<think>"
    assert not ChatFormat(other).thinks
    assert not ChatFormat(chat_tokenizer("Begin with <think>. " + CHATML, *CHATML_MARKS)).thinks


@pytest.mark.parametrize("template", [CHATML, None])
def test_thinking_without_a_switch_for_it_is_refused(template: str | None) -> None:
    with pytest.raises(ValueError, match="no switch for thinking: leave out --thinking on"):
        ChatFormat(chat_tokenizer(template or "", *CHATML_MARKS) if template else toys.bpe_tokenizer(), thinking=True)


@pytest.mark.parametrize("said", [f"<think>{SAID}", "[THINK]Perhaps <answer>41</answer>[/THINK]<answer>42</answer>"])
def test_a_draft_in_thoughts_does_not_end_a_response(said: str) -> None:
    tokenizer = toys.bpe_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[THINK]", "[/THINK]"]})
    assert sampled(taught(tokenizer, "6*7?", f"{said} and more"), "6*7?") == (said, False)


def test_thoughts_that_the_template_opens_are_part_of_the_text() -> None:
    tokenizer = chat_tokenizer(ALWAYS_THINKS, *CHATML_MARKS)
    chat = ChatFormat(tokenizer)
    assert (chat.opened, chat.closed, chat.thinks) == ("<think>\n", "</think>\n\n", True)
    text, cut = sampled(taught(tokenizer, "6*7?", f"{SAID} and more"), "6*7?")
    assert (text, cut, split_answers(text, 1)) == (f"<think>\n{SAID}", False, ["42"])


def test_a_response_that_ends_inside_its_thoughts_counts_as_cut() -> None:
    tokenizer = chat_tokenizer(ALWAYS_THINKS, *CHATML_MARKS)
    text, cut = sampled(taught(tokenizer, "6*7?", "Perhaps <answer>41</answer><|im_end|>"), "6*7?")
    assert cut
    assert split_answers(text, 1) == [None]


def test_marks_of_thoughts_are_text_if_they_are_special_tokens() -> None:
    channels = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>")
    said = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|><answer>42</answer>"
    tokenizer = chat_tokenizer(TURNS["<|return|>"], *channels)
    ids = tokenizer(said + "<|return|>", add_special_tokens=False)["input_ids"]
    (text,) = read_tokens(tokenizer, [ids])
    assert text == said.replace("<|start|>", "")
    assert split_answers(text, 1) == ["42"]
    # Elsewhere the same token ends a turn, and is no text.
    ids = (other := chat_tokenizer(TURNS["<|end|>"], "<|end|>"))("a<|end|>", add_special_tokens=False)["input_ids"]
    assert read_tokens(other, [ids]) == ["a"]


# --- the date ---


@pytest.mark.parametrize("form", ["%d %b %Y", "%Y-%m-%d", "%A, %-d %B %Y", "%H:%M on %j"])
def test_a_template_writes_the_day_that_it_is_given(form: str) -> None:
    template = f"{{% if strftime_now is defined %}}Today: {{{{ strftime_now('{form}') }}}}\n{{% endif %}}{CHATML}"
    tokenizer = chat_tokenizer(template, *CHATML_MARKS)
    chat, other = (ChatFormat(tokenizer, date=date) for date in ("2026-02-03", "2026-11-14"))
    text = chat.apply([{"role": "user", "content": "x"}])
    assert (
        text == f"Today: {datetime(2026, 2, 3).strftime(form)}\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text != other.apply([{"role": "user", "content": "x"}])
    assert (chat.date, tokenizer.chat_template) == ("2026-02-03", template)


def test_a_template_without_a_date_is_as_it_was() -> None:
    chat = ChatFormat(chat_tokenizer(CHATML, *CHATML_MARKS), date="2026-02-03")
    assert (chat.date, chat.template) == (None, CHATML)


# --- chats that a template does not take ---

WITHOUT_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content | trim }} <eos>{% endif %}{% endfor %}"
)
"""As that of several chat models: messages of other roles are left out without a word."""
REFUSES_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML


@pytest.mark.parametrize(
    ("template", "role", "reason"),
    [
        (WITHOUT_SYSTEM, "system", "it leaves out the message of the role system"),
        (WITHOUT_SYSTEM, "developer", "it leaves out the message of the role developer"),
        (REFUSES_SYSTEM, "system", "no system role"),
    ],
)
def test_a_chat_that_the_template_does_not_write_whole_is_refused(template: str, role: str, reason: str) -> None:
    chat = ChatFormat(chat_tokenizer(template, *CHATML_MARKS))
    question = {"role": "user", "content": "2 + 2?"}
    with pytest.raises(ValueError, match=rf"does not take a chat of the roles {role}, user \({reason}\)"):
        chat.encode([[{"role": role, "content": "Answer in capitals."}, question]])
    assert chat.encode([[question]])


def test_a_template_may_trim_messages_and_take_earlier_thoughts_away() -> None:
    template = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] | trim }}")
    chat = ChatFormat(chat_tokenizer(template, *CHATML_MARKS))
    turns = [
        {"role": "system", "content": " Answer in capitals.\n"},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "<think>Two and two.</think>4"},
        {"role": "user", "content": "3 + 3?"},
    ]
    text = chat.apply(turns)
    assert "Answer in capitals.<|im_end|>" in text
    assert "assistant\n4<|im_end|>" in text
