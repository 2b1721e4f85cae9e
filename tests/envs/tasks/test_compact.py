"""The compact tasks: fronts by brute force, scores by hand, and what answers earn that do not read the task."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import vpo_envs  # noqa: F401 - registers the environments
from vpo_envs.core import Status, VectorTextEnv
from vpo_envs.tasks.code.compact import WISHES, CodeCompactEnv, SuiteTask
from vpo_envs.tasks.eureqa.compact import ChainTask, EUREQACompactEnv, whole_chains
from vpo_envs.tasks.language import LISTS
from vpo_envs.tasks.musique.compact import MuSiQueCompactEnv, ReadingsTask
from vpo_envs.tasks.tools.compact import RequestTask, ToolsCompactEnv
from vpo_envs.text import format_answers

Env = VectorTextEnv[Any, Any, Any]
NAMES = ("EUREQA", "MuSiQue", "Tools", "Code")
ALL = pytest.mark.parametrize("name", NAMES)
HARDER = {
    "EUREQA": {"length": 5, "part": 0.3, "strangers": 4, "crossing": 2},
    "MuSiQue": {"hops": [2, 4], "others": 1, "broad": 0.45},
    "Tools": {"arguments": 1, "alike": 1, "others": 1, "rough": 0.5},
    "Code": {"common": [1, 1], "tests": 4, "shared": 2},
}


def made(name: str, **options: Any) -> Env:
    env = gym.make(f"vpo/{name}-v0", preset="compact", **options).unwrapped
    assert isinstance(env, VectorTextEnv)
    return env


def vectors(env: Env, task: Any, answers: list[str]) -> list[tuple[float, ...]]:
    batch = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers], 1)
    return [tuple(vector) for vector in batch.rewards[:, 0].round(6).tolist()]


def best(points: set[tuple[float, ...]]) -> set[tuple[float, ...]]:
    """Return the points that no other point matches or beats in every objective."""
    beaten = {p for p in points for q in points if p != q and all(b >= a for a, b in zip(p, q, strict=True))}
    return points - beaten


def every_answer(env: Env, task: Any) -> Iterator[str]:
    """Write every answer that can matter, from the words of the prompt alone."""
    *lines, last = [line.split() for line in env.prompt(task, 1).splitlines()]
    if isinstance(task, ChainTask):
        chains = [(last[-1],)]
        for _ in range(env.config.length + 1):
            chains = [(*chain, by, other) for chain in chains for by, one, other in lines if one == chain[-1]]
            yield from map(" ".join, chains)
    elif isinstance(task, ReadingsTask):
        words = sorted({word for line in lines for word in line})
        for steps in itertools.chain.from_iterable(itertools.combinations(words, count) for count in range(4)):
            yield from (" ".join((*steps, final)) for final in words)
    elif isinstance(task, RequestTask):
        wants = [line[1:] for line in lines if line[0] == "want"]
        stated = [f"{line[i]} {line[i + 1]}" for line in wants for i in range(0, len(line), 2)]
        for tool, count in itertools.product([line[0] for line in lines], range(4)):
            yield from (" ".join((tool, *given)) for given in itertools.combinations(stated, count))
    else:
        assert isinstance(task, SuiteTask)
        for count in range(1, env.config.longest + 1):
            yield from map(" ".join, itertools.product(LISTS, repeat=count))


@pytest.mark.parametrize(
    ("name", "knobs"), [(name, knobs) for name in NAMES for knobs in ({}, {"named": True}, HARDER[name])]
)
def test_the_front_is_that_of_all_answers(name: str, knobs: dict[str, Any]) -> None:
    env = made(name, difficulty=knobs)
    for index in range(1 if name == "Code" else 2):
        task = env.task(index)
        reached = set(vectors(env, task, list(every_answer(env, task))))
        front = {tuple(np.float32(point.vector).round(6).tolist()) for point in env.front(task)}
        assert front == best(reached)


@ALL
@pytest.mark.parametrize("named", [False, True])
def test_a_compromise_beats_the_specialists_under_the_mean_and_loses_to_their_set(name: str, named: bool) -> None:
    env = made(name, difficulty={"named": named})
    for index in range(50):
        task = env.task(index)
        scores = np.array(vectors(env, task, [" ".join(way) for way in env.ways(task)]))  # type: ignore[attr-defined]
        specialists = scores[(scores == 1).any(axis=1)]
        (compromise,) = scores[(scores < 1).all(axis=1)]
        assert sorted(map(tuple, specialists)) == sorted(map(tuple, np.eye(env.reward_dim)))
        assert compromise == pytest.approx([0.4] * env.reward_dim, abs=1e-6)
    # A program may do better than the one it was built around; in the other tasks no answer does.
    fronts = [env.front(env.task(index)) for index in range(20)]
    means = [max(np.mean(point.vector) for point in front) for front in fronts]
    assert means == pytest.approx([0.4] * 20) if name != "Code" else np.mean(means) < 0.42


def words_of(env: Env, count: int = 300) -> set[str]:
    """The words of prompts and of the compromises of some tasks."""
    tasks = [env.task(index) for index in range(count)]
    return {word for task in tasks for word in (*env.prompt(task, 3).split(), *env.ways(task)[-1])}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "letter"), [("MuSiQue", "z"), ("Tools", "r"), ("EUREQA", "m")])
def test_only_a_named_compromise_has_a_letter_of_its_own(name: str, letter: str) -> None:
    kinds = {"MuSiQue": "n", "Tools": "tkv", "EUREQA": "n"}[name]

    def letters(named: bool) -> set[str]:
        return {
            word[0] for word in words_of(made(name, difficulty={"named": named})) if re.fullmatch(r"[a-z]\d+", word)
        }

    assert letters(False) == {*kinds}
    assert letters(True) == {*kinds, letter}


def test_only_a_named_compromise_of_code_has_a_line_of_its_own() -> None:
    unnamed, named = (made("Code", difficulty={"named": named}) for named in (False, True))
    for index in range(50):
        task = unnamed.task(index)
        lines = [line.split()[1:] for line in unnamed.prompt(task, 3).splitlines()[:-1]]
        assert [[WISHES[step] for step in program] for program in task.programs] == lines
        assert named.prompt(named.task(index), 3).startswith("all ")
    places = {place for index in range(50) for place in unnamed.task(index).places}
    assert places == {0, 1, 2}


@pytest.mark.parametrize("length", [3, 4, 6])
def test_chains_that_cross_are_worth_less_than_the_compromise(length: int) -> None:
    env = made("EUREQA", difficulty={"length": length})
    for index in range(20):
        task = env.task(index)
        chains = list(whole_chains(task))
        assert len(chains) == len(set(chains)) == 4 * 2 ** (length - 1)
        scores = np.array(vectors(env, task, [" ".join(chain) for chain in chains if chain not in task.chains]))
        assert scores.max() <= 0.4 + 1e-6
        assert scores.min(axis=1).max() == 0


@pytest.mark.parametrize("crossing", [0, 1, 3])
def test_a_knob_says_how_many_links_cross(crossing: int) -> None:
    env = made("EUREQA", difficulty={"crossing": crossing})
    for index in range(20):
        task = env.task(index)
        chain_of = {person: chain for chain in task.chains for person in chain[2::2]}
        onwards = [(person, known) for _, person, known in task.links if person in chain_of]
        assert sum(chain_of[person] != chain_of.get(known) for person, known in onwards) == 2 * crossing


def test_nothing_but_the_question_tells_which_names_count() -> None:
    env = made("MuSiQue")
    for index in range(20):
        task = env.task(index)
        targets = {target for _, target in task.paragraphs}
        heads = Counter(name for name, _ in task.paragraphs if name not in targets)
        assert [*heads.values()] == [4] * 4
        assert task.about in heads


@ALL
def test_demonstrations_are_the_ways_and_each_is_as_likely(name: str) -> None:
    env, rng = made(name), np.random.default_rng(0)
    firsts = []
    tasks = [env.task(index) for index in range(20)]
    for task in tasks * 20:
        ways = [" ".join(way) for way in env.ways(task)]  # type: ignore[attr-defined]
        given = env.demonstrations(task, rng, 5)
        assert sorted(given[:4]) == sorted(ways)
        assert given[4] not in ways
        firsts.append(ways.index(given[0]))
    assert np.bincount(firsts, minlength=4) == pytest.approx([100] * 4, abs=40)


def test_tools_that_look_like_the_rough_one_serve_nothing() -> None:
    env = made("Tools")
    for index in range(50):
        task = env.task(index)
        stated = {name: value for need in task.needs for name, value in need}
        alike = [(tool, takes) for tool, takes in task.tools if len(takes) == 3]
        calls = [" ".join((tool, *(f"{name} {stated[name]}" for name in takes))) for tool, takes in alike]
        assert sorted(sum(vector) for vector in vectors(env, task, calls)) == pytest.approx([0, 0, 0, 1.2])


# --- scores by hand ---

CHAIN = ChainTask(
    leaf="n1",
    links=(("a", "n1", "n2"), ("a", "n2", "n3"), ("bc", "n1", "n4"), ("a", "n4", "n5"), ("b", "n3", "n6")),
    chains=(("n1", "a", "n2", "a", "n3"), ("n1", "bc", "n4", "a", "n5")),
    part=0.4,
)
READINGS = ReadingsTask(
    about="n1",
    paragraphs=(
        ("n1", "n2"),
        ("n2", "n3"),
        ("n3", "n4"),
        ("n1", "n5"),
        ("n5", "n6"),
        ("n1", "n7"),
        ("n7", "n8"),
        ("n1", "z1"),
    ),
    readings=(("n2", "n3", "n4"), ("n5", "n6"), ("n7", "n8")),
    region="z1",
    broad=0.4,
)
REQUEST = RequestTask(
    needs=((("k1", "v1"), ("k2", "v2")), (("k3", "v3"), ("k4", "v4")), (("k5", "v5"), ("k6", "v6"))),
    tools=(("t1", ("k1", "k2")), ("t2", ("k1", "k3", "k5")), ("t3", ("k8", "k9")), ("t4", ("k1", "k4", "k5"))),
    rough=0.4,
)
SUITES = SuiteTask(
    common=("reverse",),
    own=("sort", "head", "even"),
    places=(1, 1, 1),
    inputs=(((3, 1), (1, 3)), ((1, 2, 3, 4),), ((1, 2),)),
)


@pytest.mark.parametrize(
    ("env", "task", "answer", "vector"),
    [
        (EUREQACompactEnv(), CHAIN, "n1 a n2 a n3", (1, 0, 0)),
        (EUREQACompactEnv(), CHAIN, " n1 bc n4\na n5 ", (0.4, 0.4, 0.4)),
        (EUREQACompactEnv(), CHAIN, "n1 a n2 a n3 b n6", (0, 0, 0)),
        (EUREQACompactEnv(), CHAIN, "n1 a n2", (0, 0, 0)),
        (EUREQACompactEnv(), CHAIN, "n1 a n2 a n5", (0, 0, 0)),
        (EUREQACompactEnv(), CHAIN, "n1 a n2 b n3", (0, 0, 0)),
        (EUREQACompactEnv(), CHAIN, "n1 b n4 a n5", (0, 0, 0)),
        (EUREQACompactEnv(), CHAIN, "n2 a n3 b n6", (0, 0, 0)),
        (EUREQACompactEnv(), CHAIN, "n1 n2 n3", (0, 0, 0)),
        (MuSiQueCompactEnv(), READINGS, "n2 n3 n4", (1, 0, 0)),
        (MuSiQueCompactEnv(), READINGS, "n4", (0.5, 0, 0)),
        (MuSiQueCompactEnv(), READINGS, "n3 n4", (0.75, 0, 0)),
        (MuSiQueCompactEnv(), READINGS, "n5 n7 n2 n3 n4", (0.5, 0, 0)),
        (MuSiQueCompactEnv(), READINGS, "n2 n2 n3 n4", (1, 0, 0)),
        (MuSiQueCompactEnv(), READINGS, "n5 n6", (0, 1, 0)),
        (MuSiQueCompactEnv(), READINGS, "z1", (0.4, 0.4, 0.4)),
        (MuSiQueCompactEnv(), READINGS, "z1 n7", (0, 0, 0)),
        (MuSiQueCompactEnv(), READINGS, "n5", (0, 0, 0)),
        (ToolsCompactEnv(), REQUEST, "t1 k2 v2 k1 v1", (1, 0, 0)),
        (ToolsCompactEnv(), REQUEST, "t1 k1 v1", (0, 0, 0)),
        (ToolsCompactEnv(), REQUEST, "t1 k1 v1 k2 v1", (0, 0, 0)),
        (ToolsCompactEnv(), REQUEST, "t1 k1 v1 k2 v2 k2 v2", (0, 0, 0)),
        (ToolsCompactEnv(), REQUEST, "t2 k1 v1 k3 v3 k5 v5", (0.4, 0.4, 0.4)),
        (ToolsCompactEnv(), REQUEST, "t3 k8 v1 k9 v1", (0, 0, 0)),
        (ToolsCompactEnv(), REQUEST, "t4 k1 v1 k4 v4 k5 v5", (0, 0, 0)),
        (ToolsCompactEnv(), REQUEST, "t1", (0, 0, 0)),
        (CodeCompactEnv(), SUITES, "sort", (1, 0, 0)),
        (CodeCompactEnv(), SUITES, "reverse", (0.5, 0, 0)),
        (CodeCompactEnv(), SUITES, "reverse head", (0.5, 1, 0)),
        (CodeCompactEnv(), SUITES, "even reverse", (0, 0, 1)),
    ],
)
def test_scores(env: Env, task: Any, answer: str, vector: tuple[float, ...]) -> None:
    assert vectors(env, task, [answer]) == [pytest.approx(vector)]


def test_the_front_of_code_counts_programs_that_change_nothing() -> None:
    same = SuiteTask(
        common=("reverse",),
        own=("sort", "unique", "positive"),
        places=(0, 0, 1),
        inputs=(((3,),), ((4, 4),), ((5,),)),
    )
    assert [point.vector for point in CodeCompactEnv().front(same)] == [(1, 1, 1)]


def test_programs_of_unknown_steps_or_too_many_are_unparsable() -> None:
    for answer in ("", "reverse jump", "sort sort sort sort"):
        batch = CodeCompactEnv().score_batch([SUITES], [format_answers([answer])])
        assert batch.status.tolist() == [[Status.UNPARSABLE]]


def test_a_range_of_common_steps_draws_each_number_and_allows_one_step_more() -> None:
    env = CodeCompactEnv(difficulty={"common": [1, 3]})
    assert {len(env.task(index).common) for index in range(20)} == {1, 2, 3}
    assert [env.score_batch([SUITES], [format_answers([" ".join(["sort"] * n)])]).status[0, 0] for n in (4, 5)] == [
        Status.OK,
        Status.UNPARSABLE,
    ]


# --- what cheating earns ---


@ALL
def test_answers_that_do_not_read_the_task_earn_little(name: str) -> None:
    env = made(name, split="validation")
    source = random.Random(0)
    others = [made(name).task(i) for i in range(50)]
    for cheat in ("another task's answer", "the prompt", "all its words", "random words"):
        earned = []
        for index in range(100):
            task = env.task(index)
            words = env.prompt(task, 1).split()
            answer = {
                "another task's answer": env.demonstrations(others[index % 50], np.random.default_rng(index), 1)[0],
                "the prompt": env.prompt(task, 1),
                "all its words": " ".join(dict.fromkeys(words)),
                "random words": " ".join(source.choices(list(LISTS) if name == "Code" else words, k=3)),
            }[cheat]
            earned.append(max(vectors(env, task, [answer])[0]))
        # Tests that ask for short lists are passed by chance now and then.
        assert np.mean(earned) < (0.15 if name == "Code" else 0.1), cheat


@pytest.mark.parametrize(
    ("name", "knobs", "message"),
    [
        ("EUREQA", {"crossing": 5}, "crossing"),
        ("MuSiQue", {"hops": [2, 9]}, "hops"),
        ("Tools", {"rough": 2}, "rough"),
        ("Code", {"shared": 6}, "shared must be at most tests=5, got 6"),
    ],
)
def test_bad_knobs_are_named(name: str, knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(name, difficulty=knobs)
