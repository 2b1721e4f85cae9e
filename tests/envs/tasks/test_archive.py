"""The archive: its front by brute force, what a document costs, and rows of MuSiQue."""

from __future__ import annotations

import random
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from vpo_envs import ArchiveEnv, Status
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
