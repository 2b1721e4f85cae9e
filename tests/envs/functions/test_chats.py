"""Rows whose prompt is a chat: the model is asked all of it, and functions in TRL's signature get messages."""

from __future__ import annotations

from typing import Any

import pytest

import vpo_envs
from vpo_envs.functions.env import PromptTask
from vpo_envs.text import as_messages, as_text

SYSTEM = {"role": "system", "content": "Answer in capitals."}
EARLIER = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "HELLO."}]


def asked(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"What is {number} + 1?"}


def chats(*before: dict[str, str]) -> list[dict[str, Any]]:
    return [{"prompt": [*before, asked(number)], "answer": str(number + 1)} for number in range(40)]


def right(response: str, answer: str) -> float:
    return float(response == answer)


@pytest.mark.parametrize("before", [(), (SYSTEM,), (SYSTEM, *EARLIER)], ids=["alone", "system", "turns"])
@pytest.mark.parametrize("num_answers", [1, 3])
def test_a_model_is_asked_the_whole_chat(before: tuple[dict[str, str], ...], num_answers: int) -> None:
    env = vpo_envs.from_functions(chats(*before), [right], num_answers=num_answers)
    task = env.task(0)
    *earlier, last = as_messages(env.chat_prompt(task, num_answers))
    question = task.row["prompt"][-1]["content"]
    assert earlier == list(before)
    assert last["role"] == "user"
    assert last["content"].startswith(f"{question}\n\n")
    assert last["content"].count("your answer") == num_answers
    assert env.prompt(task, num_answers) == "\n\n".join([*(one["content"] for one in before), last["content"]])
    assert env.reset(options={"index": 0})[0] == env.prompt(task, num_answers)


def test_a_text_is_asked_as_before() -> None:
    rows = [{"prompt": asked(number)["content"], "answer": str(number + 1)} for number in range(40)]
    env = vpo_envs.from_functions(rows, [right])
    task = env.task(0)
    assert env.chat_prompt(task, 1) == env.prompt(task, 1)
    single = vpo_envs.from_functions(chats(), [right])
    assert [single.prompt(single.task(index), 1) for index in range(9)] == [
        env.prompt(env.task(index), 1) for index in range(9)
    ]
    # What a run draws for a row follows from its hash.
    row = PromptTask(prompt="What is 1 + 1?", fields={"answer": "2"})
    assert row.content_hash() == "36f4db116866bbff2fac892069235008"


def test_tags_that_any_message_names_are_not_asked_for_again() -> None:
    form = {"role": "system", "content": "Answer as <answer> your answer </answer>."}
    env = vpo_envs.from_functions(chats(form), [right])
    task = env.task(0)
    assert env.chat_prompt(task, 1) == [form, task.row["prompt"][-1]]


def test_functions_get_a_chat_in_the_form_of_their_signature() -> None:
    seen: list[Any] = []

    def in_lists(prompts: list[Any], completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        """As TRL's own rewards."""
        seen.append((prompts[0], completions[0]))
        return [float(one[0]["content"] == gold) for one, gold in zip(completions, answer, strict=True)]

    def one_by_one(prompt: str, response: str, answer: str) -> float:
        seen.append((prompt, response))
        return right(response, answer)

    env = vpo_envs.from_functions(chats(SYSTEM), [in_lists, one_by_one])
    task = env.task(0)
    seen.clear()
    gold = str(task.fields["answer"])
    assert env.score_batch([task], [f"<answer>{gold}</answer>"]).rewards.tolist() == [[[1.0, 1.0]]]
    question = task.row["prompt"][-1]
    assert seen == [
        ([SYSTEM, question], [{"role": "assistant", "content": gold}]),
        (question["content"], gold),
    ]


def test_a_file_may_hold_chats_and_texts() -> None:
    def lengths(prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
        kinds = {(type(prompt), type(completion)) for prompt, completion in zip(prompts, completions, strict=True)}
        assert kinds <= {(str, str), (list, list)}
        return [1.0] * len(prompts)

    rows = [*chats(), *({"prompt": f"Say {number}.", "answer": "x"} for number in range(40))]
    env = vpo_envs.from_functions(rows, [lengths])
    tasks = [env.task(index) for index in range(len(env.rows))]
    assert {isinstance(task.prompt, str) for task in tasks} == {False, True}
    assert (env.score_batch(tasks, ["<answer>x</answer>"] * len(tasks)).rewards == 1).all()


def test_what_the_system_says_does_not_part_rows_of_one_question() -> None:
    task, other = (PromptTask(prompt=(*before, asked(1)), fields={}) for before in ((), (SYSTEM,)))
    assert task.canonical == other.canonical == asked(1)["content"]
    assert task.content_hash() != other.content_hash()
    assert PromptTask(prompt=(*EARLIER, asked(1)), fields={}).canonical == as_text([*EARLIER, asked(1)])
    assert PromptTask.model_validate_json(other.model_dump_json()) == other


def test_parts_of_a_message_are_its_text() -> None:
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "2 + 1?"}]
    row = {"prompt": [SYSTEM, {"role": "user", "content": parts}], "answer": "3"}
    task = vpo_envs.from_functions(chats(), [right]).read_row(row)
    assert as_messages(task.asked)[-1]["content"] == "What is 2 + 1?"


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ([*EARLIER], "its last message is the assistant's, so nothing is left to answer"),
        ([{"role": "user", "content": [{"type": "image", "image": "x.png"}]}], "message 1 of the chat has no text"),
        ([SYSTEM, {"role": "user", "content": None}], "message 2 of the chat has no text"),
        ([], "neither a text nor a chat, or empty"),
        (["What?"], "neither a text nor a chat, or empty"),
    ],
)
def test_a_chat_that_a_model_cannot_be_asked_is_refused(chat: list[Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        vpo_envs.from_functions([{"prompt": chat, "answer": "1"}], [right])
