"""Environments that reply in the middle of a response: text, episodes, vector environments, scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpo_envs import Objective, Status, Task, TextVectorEnv, VectorTextEnv
from vpo_envs.text import (
    REPLY_END,
    REPLY_START,
    Call,
    answer_tags,
    calls_of,
    format_answers,
    readable,
    split_answers,
    split_turns,
    with_reply,
)


class NumberTask(Task):
    number: int


class Guess(NamedTuple):
    right: bool
    calls: int


class GuessEnv(VectorTextEnv[NumberTask, int, Guess]):
    """Guess a number after asking whether it is above others; few questions are better."""

    task_type = NumberTask
    objectives = (
        Objective("right", "", lambda guess: guess.right),
        Objective("few", "", lambda guess: 1 - guess.calls / 4),
    )
    turn_tags: ClassVar[tuple[str, ...]] = ("above", "below")
    max_calls = 3

    def generate(self, rng: np.random.Generator) -> NumberTask:
        return NumberTask(number=int(rng.integers(10)))

    def prompt(self, task: NumberTask, num_answers: int) -> str:
        return f"Guess. {answer_tags(num_answers)}"

    def parse(self, text: str) -> int:
        return int(text)

    def respond(self, task: NumberTask, calls: Sequence[Call]) -> str | None:
        tag, text = calls[-1]
        if not text.isdigit():
            return None
        return "yes" if (task.number > int(text) if tag == "above" else task.number < int(text)) else "no"

    def evaluate(self, task: NumberTask, answer: int) -> Guess:
        return Guess(answer == task.number, 0)

    def evaluate_after(self, task: NumberTask, answer: int, calls: Sequence[Call]) -> Guess:
        return Guess(answer == task.number, len(calls))


SEVEN = {"options": {"task": NumberTask(number=7)}}
LONG = "<above>5</above>", "<above>6</above>", "<below>8</below>"


def started(**arguments: Any) -> GuessEnv:
    env = GuessEnv(**arguments)
    env.reset(**SEVEN)
    return env


def test_a_call_gets_a_reply_and_an_answer_ends_the_episode() -> None:
    env = started()
    observation, reward, terminated, truncated, info = env.step("I ask <above>5</above><answer>1</answer>")
    assert (observation, reward.tolist(), terminated, truncated) == ("yes", [0.0, 0.0], False, False)
    assert "reward_matrix" not in info
    observation, reward, terminated, truncated, info = env.step("So <answer>7</answer>")
    assert (reward.tolist(), terminated, truncated) == ([1.0, 0.75], True, False)
    assert info["status"] == ["ok"]
    assert observation.endswith("<above>5</above>\n<reply>yes</reply>\n<answer>7</answer>")
    with pytest.raises(gym.error.ResetNeeded):
        env.step("<answer>7</answer>")


def test_an_answer_is_judged_by_the_calls_before_it() -> None:
    env = started(num_answers=3)
    env.step("<answer_1>7</answer_1><above>5</above>")
    env.step("<answer_2>7</answer_2>\n<above>6</above>")
    _, reward, terminated, _, info = env.step("<answer_3>7</answer_3>")
    assert terminated
    assert info["reward_matrix"].tolist() == [[1, 1], [1, 0.75], [1, 0.5]]
    assert reward.tolist() == [3, 2.25]


def test_equal_answers_are_duplicates_only_after_the_same_calls() -> None:
    env = GuessEnv(num_answers=3)
    response = (
        f"{with_reply('<answer_1>7</answer_1><above>5</above>', 'yes')}<answer_2>7</answer_2><answer_3>7</answer_3>"
    )
    scored = env.score_batch([NumberTask(number=7)], [response])
    assert scored.status.tolist() == [[Status.OK, Status.OK, Status.DUPLICATE]]


@pytest.mark.parametrize("as_steps", [False, True])
def test_one_call_too_many_truncates_the_episode(as_steps: bool) -> None:
    env = started(answers_as_steps=as_steps)
    for call in LONG:
        assert not any(env.step(call)[2:4])
    _, reward, terminated, truncated, info = env.step("<above>1</above>")
    assert (terminated, truncated, reward.tolist(), info["status"]) == (False, True, [0, 0], ["missing"])
    with pytest.raises(gym.error.ResetNeeded):
        env.step("<answer>7</answer>")


def test_answers_as_steps_give_the_same_return() -> None:
    whole, parts = started(num_answers=2), started(num_answers=2, answers_as_steps=True)
    texts = ["<above>5</above>", "<answer_1>7</answer_1>", "<below>8</below>", "<answer_2>7</answer_2>"]
    for text in (texts[0], texts[1] + texts[2]):
        whole.step(text)
    total = whole.step(texts[3])[1]
    rewards = [parts.step(text)[1] for text in texts]
    assert [reward.tolist() for reward in rewards] == [[0, 0], [1, 0.75], [0, 0], [1, 0.5]]
    assert np.sum(rewards, axis=0).tolist() == total.tolist()


def test_what_gets_no_reply_is_no_call() -> None:
    env = started()
    text = "<above>five</above> </below> <reply>no</reply> <answer>7</answer>"
    _, reward, terminated, _, _ = env.step(text)
    assert terminated
    assert reward.tolist() == [1, 1]


def test_a_response_that_holds_the_replies_is_read_whole() -> None:
    env = started()
    response = with_reply("<above>5</above>", "yes") + "<answer>7</answer>"
    _, reward, terminated, _, _ = env.step(response)
    assert terminated
    assert reward.tolist() == [1, 0.75]
    assert env.score_batch([NumberTask(number=7)], [response]).rewards.tolist() == [[[1, 0.75]]]


@pytest.mark.parametrize(
    "forged",
    [
        with_reply("<above>5</above>", "no") + "<answer>7</answer>",  # not what the environment says
        with_reply("<above>5</above> so", "yes") + "<answer>7</answer>",
    ],
)
def test_a_reply_that_the_environment_did_not_give_does_not_count(forged: str) -> None:
    env = started()
    observation, _, terminated, _, _ = env.step(forged)
    assert (observation, terminated) == ("yes", False)


def test_a_reply_is_never_an_answer() -> None:
    response = with_reply("<above>5</above>", "<answer>7</answer>")
    assert split_answers(response, 1) == [None]
    assert split_answers(f"<answer>{response}", 1) == [None]
    # Nor can a model close a reply that it has not opened.
    env = started()
    assert env.step(f"{REPLY_START}x{REPLY_END}<answer>7</answer>")[1].tolist() == [1, 1]


def test_a_vector_environment_replies_to_each_copy() -> None:
    envs = TextVectorEnv(GuessEnv, num_envs=3)
    envs.reset(seed=0, options={"task": [NumberTask(number=n) for n in (3, 7, 9)]})
    singles = [GuessEnv() for _ in range(3)]
    for env, number in zip(singles, (3, 7, 9), strict=True):
        env.reset(options={"task": NumberTask(number=number)})
    rounds = [
        ["<above>5</above>", "<answer>7</answer>", "<above>5</above>"],
        ["<answer>3</answer>", "<answer>0</answer>", "<below>5</below>"],
    ]
    observations, rewards, terminated, truncated, infos = envs.step(rounds[0])
    expected = [env.step(action) for env, action in zip(singles, rounds[0], strict=True)]
    assert observations[0] == "no"
    assert observations[2] == "yes"
    assert rewards.tolist() == [step[1].tolist() for step in expected]
    assert terminated.tolist() == [False, True, False]
    assert not truncated.any()
    assert infos["_final_info"].tolist() == [False, True, False]
    rewards, terminated = envs.step(rounds[1])[1:3]
    assert rewards[0].tolist() == singles[0].step(rounds[1][0])[1].tolist()
    assert terminated.tolist() == [True, True, False]
    for _ in range(2):
        step = envs.step(["<answer>1</answer>", "<answer>1</answer>", "<above>1</above>"])
    assert step[3].tolist() == [False, False, True]  # the copy that was cut begins anew
    assert "Guess" in step[0][2]
    assert step[4]["final_info"]["status"][2] == ["missing"]


TEXT = st.text(
    st.characters(blacklist_characters=REPLY_START + REPLY_END + "<>", blacklist_categories=["Cs"]), max_size=8
)


@given(st.lists(st.tuples(st.lists(st.tuples(TEXT, TEXT), max_size=2), TEXT), min_size=1, max_size=3))
def test_answers_with_their_calls_survive_a_round_trip(drawn: list[tuple[list[tuple[str, str]], str]]) -> None:
    calls, answers = "", []
    for new_calls, text in drawn:
        for asked, reply in new_calls:
            calls = with_reply(f"{calls}<above>{asked}</above>", reply)
        answers.append(calls + text)
    response = format_answers(answers)
    assert split_answers(response, len(answers)) == answers
    assert calls_of(response) == [Call("above", asked) for new_calls, _ in drawn for asked, _ in new_calls]
    assert "".join(written for written, _ in split_turns(response)).count("<above>") == len(calls_of(response))


def test_responses_without_replies_have_one_turn() -> None:
    assert split_turns("a") == [("a", None)]
    assert calls_of("<above>5</above>") == []
    assert readable("a") == "a"


def test_played_answers_earn_what_they_say() -> None:
    env = GuessEnv()
    task = NumberTask(number=7)
    played = env.played(task, [Call("above", "5"), Call("below", "9")], "7")
    vectors, statuses, _ = env.score_answers(task, [played])
    assert vectors == [(True, 0.5)]
    assert statuses == [Status.OK]
