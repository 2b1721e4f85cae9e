"""The archive: its front by brute force, what a document costs, and rows of MuSiQue."""

from __future__ import annotations

import random
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from vpo_envs import ArchiveEnv, Status, Unparsable
from vpo_envs.core import AnyEnv, Call
from vpo_envs.pareto import non_dominated
from vpo_envs.tasks.archive.task import OPEN
from vpo_envs.text import format_answers

PRESETS = ("compact", "conflict", "paper")


def make(preset: str, **options: Any) -> AnyEnv:
    return ArchiveEnv(preset=preset, **options)


def titles(task: Any) -> list[str]:
    """What opens each document or paragraph."""
    if hasattr(task, "documents"):
        return [document.title for document in task.documents]
    return [str(paragraph.number) for paragraph in task.paragraphs]


def candidates(task: Any) -> list[str]:
    """All answers that could be worth something: every word of the archive, or the gold answers and other steps'."""
    if hasattr(task, "documents"):
        words = {word.strip(".,:") for document in task.documents for word in document.text.split()}
        return sorted(words | {task.kind, task.near, task.far})
    return [*task.answers, *(hop.answer for hop in task.hops)]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_front_is_that_of_every_answer_after_every_set_of_documents(preset: str) -> None:
    env = make(preset)
    for index in range(3):
        task = env.task(index)
        names = titles(task)
        # More documents than the way has can only cost.
        most = 4 if preset != "paper" else len(set(task.support))
        pool = names if preset != "paper" else [str(number) for number in {*task.support}] + names[:2]
        vectors = []
        for size in range(most + 1):
            for opened in combinations(sorted(set(pool)), size):
                calls = [Call(OPEN, title) for title in opened]
                vectors += [
                    env.reward_vector(env.evaluate_after(task, env.parse(answer), calls)) for answer in candidates(task)
                ]
        points = np.unique(np.array(vectors), axis=0)
        best = points[non_dominated(points)]
        front = np.array([point.vector for point in env.front(task)])
        assert np.allclose(np.sort(front, axis=0), np.sort(best, axis=0))
        assert len(front) == len(best)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_answers_of_the_front_earn_it_in_one_response(preset: str) -> None:
    env = make(preset)
    task = env.task(0)
    front = env.front(task)
    batch = env.score_batch([task], [format_answers([point.answer for point in front])], len(front))
    assert np.allclose(batch.rewards[0], [point.vector for point in front])


@pytest.mark.parametrize("preset", ["compact", "conflict"])
def test_the_order_in_which_documents_are_opened_does_not_matter(preset: str) -> None:
    env = make(preset)
    task = env.task(1)
    found = {
        env.evaluate_after(task, env.parse(task.far), [Call(OPEN, title) for title in order])
        for order in permutations(task.way)
    }
    assert len(found) == 1


def test_a_title_is_found_however_it_is_written_and_counts_once() -> None:
    env = make("conflict")
    task = env.task(0)
    first = task.way[0]
    calls = [Call(OPEN, first), Call(OPEN, f"  {first.upper()} ")]
    assert env.respond(task, calls) == env.respond(task, calls[:1])
    assert env.evaluate_after(task, env.parse(task.kind), calls).opened == 1
    assert env.respond(task, [Call(OPEN, "Nobody")]) == "There is no such document."
    assert env.evaluate_after(task, env.parse(task.kind), [Call(OPEN, "Nobody"), *calls]).opened == 2


def test_the_prompt_says_that_titles_count_whether_they_exist_or_not() -> None:
    env = make("conflict")
    task = env.task(0)
    said = (
        "saved: 1, less 1/3 for each different title that you asked for before the answer, whether there is such a "
        "document or not, and 0 from 3 titles on."
    )
    assert all(said in env.prompt(env.task(index), count) for index in range(10) for count in (1, 3))
    kind = env.parse(task.kind)
    first = Call(OPEN, task.way[0])
    for asked, saved in ((["Nobody"], 1 / 3), (["Nobody", "nobody"], 1 / 3), (["Nobody", "Noone"], 0)):
        calls = [first, *(Call(OPEN, title) for title in asked)]
        assert env.reward_vector(env.evaluate_after(task, kind, calls)) == pytest.approx((0.4, 0.4, saved))


def test_numbers_that_are_not_listed_open_nothing_and_count_as_calls() -> None:
    env = make("paper")
    task = env.task(0)
    prompt = env.prompt(task, 1)
    assert "A number that is not listed opens nothing." in prompt
    assert f"You may do so at most {env.max_calls} times in all" in prompt
    answer = env.parse(task.answers[0])
    strange = [Call(OPEN, "99"), Call(OPEN, "none")]
    assert env.respond(task, strange[:1]) == "There is no such document."
    assert env.evaluate_after(task, answer, strange) == env.evaluate_after(task, answer, ())
    env.reset(options={"task": task})
    ends = [env.step("<open>99</open>")[2:4] for _ in range(env.max_calls + 1)]
    assert ends == [(False, False)] * env.max_calls + [(False, True)]


@pytest.mark.parametrize("preset", ["compact", "conflict"])
def test_one_full_stop_at_the_end_of_an_answer_is_ignored(preset: str) -> None:
    env = make(preset)
    for index in range(20):
        task = env.task(index)
        assert all(env.parse(answer) == answer.casefold() for answer in candidates(task))
        for answer in (task.kind, task.near, task.far):
            assert env.parse(f" {answer.capitalize()}. ") == env.parse(answer) == env.parse(f"{answer} .")
            assert len({env.parse(answer), env.parse(f"{answer}.."), env.parse(f"{answer}!")}) == 3
        front = env.front(task)
        batch = env.score_batch([task], [format_answers([f"{point.answer}." for point in front])], len(front))
        assert np.allclose(batch.rewards[0], [point.vector for point in front])
    with pytest.raises(Unparsable):
        env.parse(" . ")


def test_saving_alone_earns_nothing() -> None:
    env = make("compact")
    task = env.task(0)
    for answer in (task.kind, task.near, task.far, "n0"):
        assert env.score_batch([task], [format_answers([answer])], 1).rewards.sum() == 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("num_answers", [1, 3, 8])
def test_demonstrations_are_different_answers(preset: str, num_answers: int) -> None:
    env = make(preset)
    for index in range(20):
        task = env.task(index)
        answers = env.demonstrations(task, np.random.default_rng(index), num_answers)
        status = env.score_batch([task], [format_answers(answers)], num_answers).status
        assert (status == Status.OK).all()


def test_rows_of_musique_are_read() -> None:
    env = ArchiveEnv(source=[make("paper").example_row], num_answers=2, split="train")
    assert type(env).__name__ == "ArchivePaperEnv"


@pytest.mark.parametrize("preset", ["conflict", "compact"])
def test_rows_are_refused_with_a_preset_whose_tasks_are_generated(preset: str) -> None:
    with pytest.raises(ValueError, match=f"preset='{preset}' of Archive.* needs source='builtin', since its tasks"):
        make(preset, source=[ArchiveEnv.example_row])


def test_the_kind_cannot_be_told_from_the_prompt() -> None:
    env = make("conflict")
    source = random.Random(0)
    for index in source.sample(range(1000), 30):
        task = env.task(index)
        assert not any(word in env.prompt(task, 3).split() for word in (task.kind, task.near, task.far))
